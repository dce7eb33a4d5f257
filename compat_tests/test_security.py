"""Stock clients use every security protocol and mechanism. The broker serves and refuses them as
Apache Kafka does.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    ScramMechanism,
    UserScramCredentialDeletion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from compat_tests.brokers import Broker
from compat_tests.kafka_tools import KafkaTools
from compat_tests.requirements import built, program
from compat_tests.secured import (
    CASES,
    SCRAM_MODULE,
    Secured,
    admin,
    make_user,
    start_secured,
)
from compat_tests.write_and_read import by_librdkafka
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ApiVersionsRequest, MetadataRequest, SaslHandshakeRequest
from tests.broker.running import WireClient
from tests.broker.security.logging_in import log_in, send_token, shake

VALUES = [b"value-%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def secured(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    key = "delegation.token.secret.key=the-secret-of-all-tokens"
    found = start_secured(new_broker, tmp_path_factory.mktemp("authority"), key)
    yield found
    found.broker.stop()


def topic_of(client: str, case: tuple[str, str]) -> str:
    return f"{client}-{'-'.join(filter(None, case))}-{os.getpid()}"


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_librdkafka_writes_and_reads(secured: Secured, case: tuple[str, str]) -> None:
    by_librdkafka(secured.librdkafka(*case), topic_of("confluent", case), VALUES)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_kafka_python_writes_and_reads(secured: Secured, case: tuple[str, str]) -> None:
    topic, settings = topic_of("kafka-python", case), kafka_python(secured, *case)
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.close(30)
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


def kafka_python(secured: Secured, protocol: str, mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap(protocol), "security_protocol": protocol,
    }
    if mechanism:
        user, password = secured.user(mechanism)
        settings |= {
            "sasl_mechanism": mechanism, "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
    if protocol.endswith("SSL"):
        settings["ssl_context"] = context(secured, protocol)
    return settings


def context(secured: Secured, protocol: str) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(secured.authority.file))
    if protocol == "SSL":
        found.load_cert_chain(str(secured.key))
    return found


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_aiokafka_writes_and_reads(secured: Secured, case: tuple[str, str]) -> None:
    topic, settings = topic_of("aiokafka", case), kafka_python(secured, *case)

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_javas_console_tools_write_and_read(
    secured: Secured, tools: KafkaTools, tmp_path: Path, case: tuple[str, str]
) -> None:
    topic, config = topic_of("java", case), tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in secured.java(*case).items()))
    where = ["--bootstrap-server", secured.bootstrap(case[0]), "--topic", topic]
    common = [*where, "--command-config", str(config)]
    made = tools.run("kafka-topics", ["--create", *common])
    assert made.status == 0, made.stdout + made.stderr
    written = tools.run("kafka-console-producer", common, b"\n".join(VALUES) + b"\n")
    assert written.status == 0, written.stderr
    read = tools.run(
        "kafka-console-consumer",
        [*common, "--from-beginning", "--max-messages", str(len(VALUES)), "--timeout-ms", "30000"],
    )
    assert read.stdout.encode().split() == VALUES, read.stderr


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_franz_go_writes_and_reads(secured: Secured, case: tuple[str, str]) -> None:
    protocol, mechanism = case
    topic, franz = topic_of("franz", case), str(built("bin/franz"))
    environment = dict(os.environ)
    if mechanism:
        environment["FRANZ_SASL"] = ":".join([mechanism, *secured.user(mechanism)])
    if protocol.endswith("SSL"):
        environment["FRANZ_CA"] = str(secured.authority.file)
    if protocol == "SSL":
        environment["FRANZ_KEY"] = str(secured.key)
    admin(secured).list_topics(topic, timeout=60)
    bootstrap = secured.bootstrap(protocol)
    for command in (["produce", bootstrap, topic, "none", "100"], ["read", bootstrap, topic]):
        done = subprocess.run([franz, *command], env=environment, capture_output=True, timeout=180)
        assert done.returncode == 0, done.stderr
    assert sorted(line.rpartition(b"\t")[2] for line in done.stdout.splitlines()) == sorted(VALUES)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_kafkajs_writes(secured: Secured, case: tuple[str, str]) -> None:
    protocol, mechanism = case
    user, password = secured.user(mechanism)
    options: dict[str, Any] = {"key": str(secured.key)}
    if mechanism:
        options = {
            "sasl": {"mechanism": mechanism.lower(), "username": user, "password": password}
        }
    if protocol.endswith("SSL"):
        options["ca"] = str(secured.authority.file)
    command = [
        program("node"), str(Path(__file__).with_name("node") / "roundtrip.js"),
        secured.bootstrap(protocol), topic_of("kafkajs", case), "none", "100", json.dumps(options),
    ]
    environment = os.environ | {"NODE_PATH": str(built("node/node_modules"))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert {each["high"] for each in json.loads(done.stdout)["offsets"]} == {"50"}


@pytest.mark.parametrize("case", [c for c in CASES if not c[1].startswith("SCRAM")], ids="-".join)
def test_kcat_reads(secured: Secured, case: tuple[str, str]) -> None:
    # kcat's librdkafka 2.0 repeats its nonce in SCRAM, which neither broker accepts.
    topic, settings = topic_of("kcat", case), secured.librdkafka(*case)
    producer = Producer(settings)
    producer.produce(topic, b"one")
    assert producer.flush(60) == 0
    options = [part for k, v in settings.items() for part in ("-X", f"{k}={v}")]
    command = [program("kcat"), "-C", "-e", "-q", "-t", topic, *options]
    done = subprocess.run(command, capture_output=True, timeout=180)
    assert done.stdout == b"one\n", done.stderr


# -- refusals --------------------------------------------------------------------------------------

MASKED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)
NO_TOKEN = "an authorization id that is different from username"


def wire(secured: Secured) -> WireClient:
    host, _, port = secured.bootstrap("SASL_PLAINTEXT").rpartition(":")
    return WireClient((host, int(port)))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["paula", "sam", "nobody"])
def test_a_wrong_password_is_told_in_kafkas_words(
    secured: Secured, mechanism: str, user: str
) -> None:
    with wire(secured) as client:
        answer = log_in(client, mechanism, user, "wrong")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Authentication failed: Invalid username or password" if mechanism == "PLAIN"
            else f"{MASKED} {mechanism}"
        )
        assert client.is_closed()


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", b"paula", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("PLAIN", b"\0\0x", "Authentication failed: username not specified"),
        ("PLAIN", b"\0paula\0", "Authentication failed: password not specified"),
        ("PLAIN", b"other\0paula\0p-secret", NO_TOKEN),
        ("SCRAM-SHA-256", b"garbage", f"{MASKED} SCRAM-SHA-256"),
        ("SCRAM-SHA-256", b"n,a=other,n=sam,r=abc", NO_TOKEN),
    ],
)
def test_a_token_that_is_not_right_is_told_in_kafkas_words(
    secured: Secured, mechanism: str, token: bytes, message: str
) -> None:
    with wire(secured) as client:
        shake(client, mechanism)
        answer = send_token(client, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert message in answer.error_message
        assert client.is_closed()


def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(secured: Secured) -> None:
    with wire(secured) as client:
        answer = shake(client, "OAUTHBEARER")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert sorted(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert client.is_closed()


def test_before_the_login_nothing_else_is_answered(secured: Secured) -> None:
    with wire(secured) as client:
        client.send(MetadataRequest(topics=[]), 9)
        assert client.is_closed()
    with wire(secured) as client:
        client.negotiate()
        client.send(ApiVersionsRequest(), 0)
        assert client.is_closed()
    with wire(secured) as client:
        shake(client, "PLAIN")
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        received = client.socket.recv(1000)
        assert received == b"" or b"Unexpected Kafka request" in received or len(received) < 40


def test_after_the_login_another_one_is_refused(secured: Secured) -> None:
    with wire(secured) as client:
        assert log_in(client, "PLAIN", "paula", "p-secret").error_code == 0
        assert shake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_deleted_user_is_refused(secured: Secured) -> None:
    make_user(secured, "leaver", "x", "SCRAM-SHA-256")
    with wire(secured) as client:
        assert log_in(client, "SCRAM-SHA-256", "leaver", "x").error_code == 0
    gone = UserScramCredentialDeletion("leaver", ScramMechanism.SCRAM_SHA_256)
    asked = admin(secured)
    asked.alter_user_scram_credentials([gone])["leaver"].result(60)
    with wire(secured) as client:
        assert log_in(client, "SCRAM-SHA-256", "leaver", "x").error_code == 58


def test_librdkafka_and_kafka_python_tell_their_users_of_a_wrong_password(
    secured: Secured
) -> None:
    errors: list[KafkaError] = []
    settings = secured.librdkafka("SASL_SSL", "PLAIN") | {"sasl.password": "wrong"}
    producer = Producer({**settings, "error_cb": errors.append})
    while not errors:
        producer.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    with pytest.raises(KafkaPythonError):
        KafkaProducer(
            **kafka_python(secured, "SASL_PLAINTEXT", "PLAIN") | {"sasl_plain_password": "wrong"},
            bootstrap_timeout_ms=10_000,
        )


def test_javas_tools_tell_their_users_of_a_wrong_password(
    secured: Secured, tools: KafkaTools, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    settings = secured.java("SASL_SSL", "SCRAM-SHA-512", "wrong")
    config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    done = tools.run("kafka-topics", [
        "--list", "--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config",
        str(config),
    ])  # fmt: skip
    assert f"{MASKED} SCRAM-SHA-512" in done.stdout + done.stderr


# -- delegation tokens and kafka-configs -----------------------------------------------------------


def test_kafkas_own_tools_make_users_and_tokens_that_java_logs_in_with(
    secured: Secured, tools: KafkaTools, tmp_path: Path
) -> None:
    made = tools.run("kafka-configs", [
        "--bootstrap-server", secured.bootstrap("PLAINTEXT"), "--alter", "--entity-type", "users",
        "--entity-name", "tom", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=t-secret]",
    ])  # fmt: skip
    assert made.status == 0, made.stdout + made.stderr

    def run(name: str, user: str, password: str, *arguments: str, token: bool = False) -> str:
        config = tmp_path / "client.properties"
        settings = secured.java("SASL_SSL", "SCRAM-SHA-256")
        settings["sasl.jaas.config"] = (
            f'{SCRAM_MODULE} required username="{user}" password="{password}"'
            f"{' tokenauth=true' if token else ''};"
        )
        config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        where = ["--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config"]
        done = tools.run(name, [*where, str(config), *arguments])
        return done.stdout + done.stderr

    printed = run("kafka-delegation-tokens", "tom", "t-secret", "--create",
                  "--max-life-time-period", "-1", "--renewer-principal", "User:sam")
    row = printed.splitlines()[-1].split()
    token, hmac = row[0], row[1]
    assert "User:tom" in row
    assert token in run("kafka-delegation-tokens", "tom", "t-secret", "--describe",
                        "--owner-principal", "User:tom")
    assert "Completed renew" in run("kafka-delegation-tokens", "tom", "t-secret", "--renew",
                                    "--renew-time-period", "-1", "--hmac", hmac)
    topic = f"by-token-{os.getpid()}"
    assert f"Created topic {topic}." in run(
        "kafka-topics", token, hmac, "--create", "--topic", topic, token=True)
    environment = os.environ | {
        "FRANZ_SASL": f"SCRAM-SHA-256:{token}:{hmac}", "FRANZ_TOKEN": "1",
        "FRANZ_CA": str(secured.authority.file),
    }  # fmt: skip
    at = secured.bootstrap("SASL_SSL")
    command = [str(built("bin/franz")), "produce", at, topic, "none", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "not allowed" in run("kafka-delegation-tokens", token, hmac, "--create",
                                "--max-life-time-period", "-1", token=True)
    assert "Completed expire" in run("kafka-delegation-tokens", "tom", "t-secret", "--expire",
                                     "--expiry-time-period", "-1", "--hmac", hmac)
    assert MASKED in run("kafka-topics", token, hmac, "--list", token=True)
