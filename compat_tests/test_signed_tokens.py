"""Every stock client that has OAUTHBEARER logs in with a signed token, with TLS and without.
librdkafka and kafka-python are refused with a token for another audience."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokens
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider

from compat_tests.brokers import Broker, KafkaBroker, OttlaBroker
from compat_tests.kafka_tools import KafkaTools
from compat_tests.requirements import built, program
from compat_tests.signed_tokens import OAUTH, Signer
from compat_tests.write_and_read import by_librdkafka, by_spark
from ottla.tools.zookeeper.local import free_port
from tests.broker.security.authority import Authority

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
VALUES = [b"value-%d" % number for number in range(100)]
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"


@dataclass
class ByToken:
    """The broker, its addresses by protocol, the issuer of its certificate, the signer of tokens,
    and a file with one token."""

    broker: Broker
    addresses: dict[str, str]
    authority: Authority
    signer: Signer
    token: Path

    def allowed(self) -> dict[str, str]:
        """The system properties without which Java's client reads no token from a file."""
        return {
            f"{ALLOWED}.urls": f"file:{self.signer.keys},file:{self.token}",
            f"{ALLOWED}.files": f"{self.signer.keys},{self.token}",
        }

    def java(self, protocol: str) -> dict[str, str]:
        """Properties of Java's clients."""
        found = {
            "security.protocol": protocol, "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"file:{self.token}",
        }
        if protocol == "SASL_SSL":
            found |= {
                "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.file),
            }
        return found

    def librdkafka(self, protocol: str, audience: str = "kafka") -> dict[str, Any]:
        """Settings of librdkafka."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.addresses[protocol], "security.protocol": protocol,
            "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: self.signer.token(audience),
        }
        if protocol == "SASL_SSL":
            found["ssl.ca.location"] = str(self.authority.file)
        return found

    def python(self, protocol: str, provider: object) -> dict[str, Any]:
        """Settings of kafka-python and aiokafka."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.addresses[protocol], "security_protocol": protocol,
            "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider,
        }
        if protocol == "SASL_SSL":
            found["ssl_context"] = ssl.create_default_context(cafile=str(self.authority.file))
        return found


@pytest.fixture(scope="module")
def by_token(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ByToken]:
    directory = tmp_path_factory.mktemp("tokens")
    authority, signer, token = Authority(directory), Signer(directory), directory / "token.jwt"
    token.write_text(signer.token()[0])
    server = authority.issue("server")
    broker = new_broker(
        *signer.settings(), "ssl.keystore.type=PEM", f"ssl.keystore.location={server}",
    )  # fmt: skip
    assert isinstance(broker, OttlaBroker | KafkaBroker)
    ports = {name: free_port() for name in PROTOCOLS}
    broker.listen_also(ports)
    addresses = {name: f"localhost:{port}" for name, port in ports.items()}
    found = ByToken(broker, addresses, authority, signer, token)
    if isinstance(broker, KafkaBroker):     # Apache Kafka reads keys only from allowed URLs
        broker.java_options(" ".join(f"-D{name}={text}" for name, text in found.allowed().items()))
    broker.start()
    yield found
    broker.stop()


def topic_of(client: str, protocol: str) -> str:
    return f"{client}-{protocol}-{os.getpid()}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_librdkafka(by_token: ByToken, protocol: str) -> None:
    errors: list[KafkaError] = []
    settings = by_token.librdkafka(protocol) | {"error_cb": errors.append}
    by_librdkafka(settings, topic_of("librdkafka", protocol), VALUES)
    assert not errors
    foreign = Producer(by_token.librdkafka(protocol, "another") | {"error_cb": errors.append})
    while not errors:
        foreign.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


class Tokens(AbstractTokenProvider):
    """Tokens for kafka-python."""

    def __init__(self, signer: Signer, audience: str = "kafka") -> None:
        self.signer, self.audience = signer, audience

    def token(self) -> str:
        return self.signer.token(self.audience)[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafka_python(by_token: ByToken, protocol: str) -> None:
    topic = topic_of("kafka-python", protocol)
    settings = by_token.python(protocol, Tokens(by_token.signer))
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.close(30)
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()
    with pytest.raises(KafkaPythonError):
        KafkaProducer(
            **by_token.python(protocol, Tokens(by_token.signer, "another")),
            bootstrap_timeout_ms=10_000,
        )


class TokensLater(AsyncTokens):     # type: ignore[misc]
    """Tokens for aiokafka."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer

    async def token(self) -> str:
        return self.signer.token()[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_aiokafka(by_token: ByToken, protocol: str) -> None:
    topic = topic_of("aiokafka", protocol)

    async def run() -> list[bytes]:
        settings = by_token.python(protocol, TokensLater(by_token.signer))
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_franz_go(by_token: ByToken, protocol: str) -> None:
    topic, franz = topic_of("franz", protocol), str(built("bin/franz"))
    environment = os.environ | {"FRANZ_SASL": f"OAUTHBEARER::{by_token.signer.token()[0]}"}
    if protocol == "SASL_SSL":
        environment["FRANZ_CA"] = str(by_token.authority.file)
    where = by_token.addresses[protocol]
    producer = Producer(by_token.librdkafka(protocol))
    producer.list_topics(topic, timeout=60)     # creates the topic
    for command in (["produce", where, topic, "none", "100"], ["read", where, topic]):
        done = subprocess.run([franz, *command], env=environment, capture_output=True, timeout=180)
        assert done.returncode == 0, done.stderr
    assert sorted(line.rpartition(b"\t")[2] for line in done.stdout.splitlines()) == sorted(VALUES)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkajs(by_token: ByToken, protocol: str) -> None:
    options = {"token": by_token.signer.token()[0]}
    if protocol == "SASL_SSL":
        options["ca"] = str(by_token.authority.file)
    command = [
        program("node"), str(Path(__file__).with_name("node") / "roundtrip.js"),
        by_token.addresses[protocol], topic_of("kafkajs", protocol), "none", "100",
        json.dumps(options),
    ]  # fmt: skip
    environment = os.environ | {"NODE_PATH": str(built("node/node_modules"))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert {each["high"] for each in json.loads(done.stdout)["offsets"]} == {"50"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_java(
    by_token: ByToken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    options = " ".join(f"-D{name}={text}" for name, text in by_token.allowed().items())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    tools, config = KafkaTools(), tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in by_token.java(protocol).items()))
    topic = topic_of("java", protocol)
    where = ["--bootstrap-server", by_token.addresses[protocol], "--command-config", str(config)]
    try:
        made = tools.run("kafka-topics", [*where, "--create", "--topic", topic])
        assert f"Created topic {topic}." in made.stdout, made.stdout + made.stderr
        where += ["--topic", topic]
        written = tools.run("kafka-console-producer", where, b"\n".join(VALUES) + b"\n")
        assert written.status == 0, written.stderr
        read = tools.run(
            "kafka-console-consumer",
            [*where, "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000"],
        )
        assert read.stdout.encode().split() == VALUES, read.stderr
    finally:
        tools.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spark(by_token: ByToken, spark: SparkSession, protocol: str) -> None:
    system: Any = spark.sparkContext._jvm
    for name, text in by_token.allowed().items():
        system.java.lang.System.setProperty(name, text)
    topic, at = topic_of("spark", protocol), by_token.addresses[protocol]
    by_spark(spark, topic, by_token.java(protocol), at)
