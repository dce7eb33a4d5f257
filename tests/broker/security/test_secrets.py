"""Passwords, keys and tokens appear in no log line at any level, no answer, no process list and no
core dump."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    DescribeConfigsRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    IncrementalAlterConfigsRequest,
    SaslAuthenticateRequest,
)
from tests.broker.running import NODE_ID, WireClient
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import SaslBroker, log_in, make_user, send_token, shake

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = (
    f"{MODULE}"
    ' user_alice="PLAIN-hunter2" user_bob="PLAIN-correct-horse";'
)
SECRETS = (
    "hunter2", "correct-horse", "SCRAM-battery", "SALTED-staple", "TOKEN-master", "STORE-password",
    "wrong-guess",
)  # fmt: skip


def alter(client: WireClient, **configs: str) -> Any:
    made = IncrementalAlterConfigsRequest.Resource
    return client.call(IncrementalAlterConfigsRequest(resources=[
        made(resource_type=4, resource_name=str(NODE_ID), configs=[
            made.Config(name=name, config_operation=0, value=value)
            for name, value in configs.items()
        ])
    ]), 1).responses[0]  # fmt: skip


def use_every_secret(broker: SaslBroker) -> str:
    """Log in with right and wrong passwords, and send administrative requests that have secrets;
    returns the answers as text."""
    answers: list[object] = []
    with WireClient(broker.address) as admin:
        make_user(admin, "sam", "SCRAM-battery", "SCRAM-SHA-256")
        upsertion = AlterUserScramCredentialsRequest.Upsertion(
            name="eve", mechanism=1, iterations=1, salt=b"x", salted_password=b"SALTED-staple",
        )
        answers += [
            admin.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0),
            alter(admin, **{"listener.name.inside.plain.sasl.jaas.config": JAAS + " "}),
            alter(admin, **{"listener.name.inside.plain.sasl.jaas.config": JAAS[:-5]}),
            alter(admin, **{"listener.name.tls.ssl.keystore.password": "STORE-password"}),
            alter(admin, **{"plugin.credentials": "hunter2", "SSL.KEY.PASSWORD": "hunter2"}),
            admin.call(DescribeUserScramCredentialsRequest(users=None), 0),
        ]
        kind = DescribeConfigsRequest.Resource
        answers.append(admin.call(DescribeConfigsRequest(
            resources=[kind(resource_type=4, resource_name=str(NODE_ID))],
            include_synonyms=True), 4,
        ))  # fmt: skip
    for mechanism, user, password in (
        ("PLAIN", "alice", "PLAIN-hunter2"), ("PLAIN", "alice", "wrong-guess"),
        ("SCRAM-SHA-256", "sam", "SCRAM-battery"), ("SCRAM-SHA-256", "sam", "wrong-guess"),
    ):  # fmt: skip
        with WireClient(broker.inside) as client:
            answers.append(log_in(client, mechanism, user, password))
    with WireClient(broker.inside) as client:
        log_in(client, "PLAIN", "alice", "PLAIN-hunter2")
        token = client.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        answers.append(token.error_code)
        client.call(DescribeDelegationTokenRequest(owners=None), 3)
    with WireClient(broker.inside) as client:
        shake(client, "PLAIN")
        send_token(client, b"PLAIN-hunter2 without its form")
    with WireClient(broker.inside) as client:
        shake(client, "PLAIN")
        cut = SaslAuthenticateRequest(auth_bytes=b"\0alice\0PLAIN-hunter2").encode(2)
        client.send_frame(b"\x00\x24\x00\x02\x00\x00\x00\x01\xff\xff\x00" + cut[:-9])
        assert client.is_closed()
    return f"{answers} {bytes(token.hmac).hex()}" if token.error_code else repr(answers)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_no_line_and_no_answer_has_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level)
    caplog.set_level(level, "ottla")
    caplog.set_level(level, "ottla.requests")
    settings = {
        "listener.name.inside.plain.sasl.jaas.config": JAAS,
        "delegation.token.secret.key": "TOKEN-master",
    }
    with SaslBroker(tmp_path, settings) as broker:
        answers = use_every_secret(broker)
    for secret in SECRETS:
        assert secret not in answers
        assert secret not in caplog.text, [r for r in caplog.text.split("\n") if secret in r]
        assert secret.encode().hex() not in caplog.text


def test_a_configuration_that_is_refused_is_told_without_its_secrets(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    key = authority.issue("server", password="STORE-password")
    properties = tmp_path / "server.properties"
    for wrong in (
        f"ssl.keystore.location={key}\nssl.keystore.type=PEM\nssl.key.password=wrong-guess\n",
        f"ssl.keystore.type=PEM\nssl.keystore.key={key.read_text().encode()!r}-correct-horse\n",
        f"listener.name.s.plain.sasl.jaas.config={JAAS[:-1]}\n",
        # A password without its quotes, an escape that is not valid, a value without its name.
        f"listener.name.s.plain.sasl.jaas.config={MODULE} user_a=a hunter2 correct-horse;\n",
        "ssl.key.password=hunter2\\users\n", "=hunter2\n",
        # A key whose lines do not end with a backslash, so that each line is read as a setting's
        # name.
        f"ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{'hunter2' * 9}\n",
    ):
        properties.write_text(
            f"listeners=S://127.0.0.1:0\nlistener.security.protocol.map=S:SASL_SSL\n"
            f"sasl.enabled.mechanisms=PLAIN\nlog.dirs={tmp_path}/data\n{wrong}"
        )
        ran = subprocess.run(
            [sys.executable, "-m", "ottla.broker.main", "server", "start", str(properties)],
            capture_output=True, text=True, timeout=60,
        )
        printed = ran.stdout + ran.stderr
        assert ran.returncode and "Traceback" not in printed
        assert not [secret for secret in SECRETS if secret in printed], printed


@pytest.mark.parametrize(
    ("hard", "limit", "dumpable"), [(resource.RLIM_INFINITY, 1, 1), (4096, 1, 1), (0, 0, 0)]
)
def test_no_file_and_no_program_gets_a_core(hard: int, limit: int, dumpable: int) -> None:
    """With a core size limit of 0, the kernel writes no file, but it still starts the program that
    `core_pattern` names, for example systemd-coredump."""
    if 0 <= resource.getrlimit(resource.RLIMIT_CORE)[1] < (1 << 62 if hard < 0 else hard):
        pytest.skip("this process may not raise its limit")
    shown = (
        "import ctypes, resource\n"
        "from ottla.broker.core_dumps import forbid_core_dumps\n"
        f"resource.setrlimit(resource.RLIMIT_CORE, (0, {hard}))\n"
        "forbid_core_dumps()\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.split() == [str(limit), str(dumpable)]


def test_a_running_broker_writes_no_core_and_its_command_line_has_no_secret(
    tmp_path: Path,
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "listeners=S://127.0.0.1:0\nlistener.security.protocol.map=S:SASL_PLAINTEXT\n"
        f"sasl.enabled.mechanisms=PLAIN\nlog.dirs={tmp_path}/data\n"
        f"listener.name.s.plain.sasl.jaas.config={JAAS}\n"
    )
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    broker = subprocess.Popen(
        [sys.executable, "-m", "ottla.broker.main", "server", "start", str(properties)],
        stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert any("ottla ready" in line for line in broker.stdout)
        process = Path(f"/proc/{broker.pid}")
        limits = {
            line[:26].strip(): line[26:].split()[0]
            for line in (process / "limits").read_text().splitlines()[1:]
        }
        assert limits["Max core file size"] in ("0", "1")
        for name in ("cmdline", "environ"):
            shown = (process / name).read_bytes().decode()
            assert not [secret for secret in SECRETS if secret in shown]
    finally:
        broker.terminate()
        broker.wait(30)
        assert broker.stdout is not None
        broker.stdout.close()
    assert os.listdir(tmp_path)
