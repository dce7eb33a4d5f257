"""Our kafka-delegation-tokens and Apache Kafka's print the same about one broker's tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from compat_tests.kafka_tools import KafkaTools
from tests.broker.security.logging_in import SaslBroker
from tests.tools.kafka_names.comparison import run

LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="alice" password="alice-secret";
"""
Tool = Callable[[list[str]], tuple[int, str]]
HMAC = re.compile(r"(?<!\S)[\w+/]{80,}={0,2}")


def neutral(text: str) -> str:
    """The text without hashes, ids and times. Runs of spaces or dashes become one space, because
    the width of columns depends on those values."""
    text = HMAC.sub("HMAC", text.replace("hmac :", "hmac : "))
    text = re.sub(r"(?<![\w-])(?=-*\w)[\w-]{22}(?=\s)", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d|\b\d{13}\b", "TIME", text)
    return re.sub(r"[ \t]+|-{2,}", " ", text)


def life(tool: Tool) -> list[tuple[int, str]]:
    """Create, describe, renew and expire a token; return each step's exit status and output."""
    made = tool(["--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"])
    hmac = HMAC.search(made[1])
    assert hmac, made
    # Without an owner Kafka's tool sends an empty list, which selects nothing.
    shown = tool(["--describe", "--owner-principal", "User:alice"])
    steps = [made, shown, tool(["--describe", "--owner-principal", "User:nobody"]),
             tool(["--renew", "--renew-time-period", "-1", "--hmac", hmac[0]]),
             tool(["--expire", "--expiry-time-period", "-1", "--hmac", hmac[0]]),
             tool(["--expire", "--expiry-time-period", "-1", "--hmac", hmac[0]])]  # fmt: skip
    return [(status, neutral(text)) for status, text in steps]


def test_a_token_lives_alike_with_both_tools(tmp_path: Path) -> None:
    (tmp_path / "admin.properties").write_text(LOGIN)
    tools = KafkaTools()
    with SaslBroker(tmp_path / "data", {"delegation.token.secret.key": "master"}) as broker:
        at = ["--bootstrap-server", "{}:{}".format(*broker.inside),
              "--command-config", str(tmp_path / "admin.properties")]  # fmt: skip
        name = "kafka-delegation-tokens"
        try:
            theirs = life(lambda words: tools.run(name, at + words)[:2])
            ours = life(lambda words: run([name, *at, *words], b"")[:2])
            assert ours == theirs
            assert [status for status, _ in ours] == [0, 0, 0, 0, 0, 1]
            for _ in range(2):
                tools.run(name, [*at, "--create", "--max-life-time-period", "-1"])
            mine = [*at, "--describe", "--owner-principal", "User:alice"]
            assert run([name, *mine], b"").stdout == tools.run(name, mine).stdout
        finally:
            tools.close()
