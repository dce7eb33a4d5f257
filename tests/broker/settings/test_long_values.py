"""Long values of settings are checked in a time that grows linearly with their length.

A value has at most 32767 characters. A quadratic loop over it would take seconds, and all clients
of the broker would wait meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from ottla.broker.security.tls.ciphers import openssl_name
from ottla.broker.security.tls.material import pem_blocks
from ottla.broker.security.tls.names import PrincipalRules
from ottla.broker.settings.addresses import parse_addresses, parse_protocols
from ottla.broker.settings.change_rules import rules_for
from ottla.broker.settings.config import limits_by_host
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.providers import resolve
from ottla.wire.errors import ProtocolError
from tests.broker.running import NODE_ID
from tests.processor import least_seconds

LENGTH = 32_767
SECONDS_MAX = 0.5
"""A quadratic loop takes more than a second for one value, a linear one a few milliseconds."""
PIECES = (
    "1", "1.", "1e1", "-", " ", ",", "a,", "a=b,", "client_id=a,", "0:1,", "a:1,", "User:a;", "${",
    "${env:", "A://:1,", "A://a:1,B://a:2,", "RULE:a/b/,", "RULE:", "\\", "DEFAULT ", "TLS_A_WITH_",
    "-----BEGIN A-----", "-----BEGIN A-----\nB: ", "-----BEGIN A----- ", "a=", "[", "(", "*:",
)


def seconds_of(work: Callable[[], object]) -> float:
    def decide() -> None:
        with suppress(SettingsError, ProtocolError, LookupError):
            work()

    return least_seconds(decide, SECONDS_MAX)


def values_of(piece: str) -> list[str]:
    body = piece * (LENGTH // len(piece) - 1)
    distinct = "".join(
        re.sub("a", f"a{number}", piece) for number in range(LENGTH // (len(piece) + 5))
    )
    return [body, f"{body}\x00", f"{body}!", distinct]


@pytest.mark.parametrize("piece", PIECES)
def test_every_setting_decides_a_long_value_fast(piece: str) -> None:
    rules = rules_for([NODE_ID], NODE_ID, {})
    slow = []
    for value in values_of(piece):
        for kind, scope in (
            ("topic", "topic"), ("broker", "broker"), ("client-metrics", "client-metrics"),
            ("group", "group"),
        ):
            for name in kafka_settings(scope):
                configs = {name: value}
                spent = seconds_of(lambda: rules[kind].check(  # noqa: B023
                    str(NODE_ID), configs, frozenset(configs)))  # noqa: B023
                if spent > SECONDS_MAX:
                    slow.append((name, value[:30], spent))
    assert not slow


READERS: Mapping[str, Callable[[str], object]] = {
    "addresses": lambda text: parse_addresses("listeners", text.split(",")),
    "protocols": parse_protocols,
    "limits by host": limits_by_host,
    "references": lambda text: resolve({"a": text, "config.providers": "env"}, {}, {"": ""}),
    "principal rules": PrincipalRules,
    "cipher suites": openssl_name,
    "PEM": lambda text: pem_blocks("ssl.keystore.key", text),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_listeners_read_is_read_fast(reader: str) -> None:
    read = READERS[reader]
    slow = [
        (value[:30], spent)
        for piece in PIECES for value in values_of(piece)
        if (spent := seconds_of(lambda: read(value))) > SECONDS_MAX  # noqa: B023
    ]
    assert not slow
