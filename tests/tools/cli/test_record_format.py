"""Formats of `consume --format`: kcat's tokens and rpk's modifiers, and what is refused.

compat_tests/test_franz_go.py tests that franz-go, which rpk uses, prints the same.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.tools.cli.record_format import formatted

RECORD: dict[str, Any] = {
    "topic": "t", "partition": 3, "offset": 258, "timestamp": 1_700_000_000_123, "key": b"k",
    "value": b"\x01\x02\xff", "headers": [("a", b"1"), ("b", None)], "leader_epoch": 7,
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [
    ("%t-%p-%o %e", b"t-3-258 7"), ("%K %S %V", b"1 3 3"), ("%T %T{ascii}", b"1700000000123 1"),
    ("%h|%H", b"a=1,b=NULL|2"), ("%h{%k:%v;}", b"a:1;b:;"), (r"\x41\\n%n%%%{%}", b"A\\n\n%{}"),
    ("%v{hex} %v{base64} %k{base64raw}", b"0102ff AQL/ aw"), ("%o{hex} %o{hex4}", b"102 2"),
    ("%o{big32}%o{little16}%o{byte}", b"\0\0\1\2\2\1\2"), ("%p{bool} %i", b"true 1"),
    ("%v{unpack[>Hb]}", b"258-1"), ("%v{unpack[>I]}", b"%!(have 3 bytes, need 4)"),
    ("%v{unpack[.$]}", b"\1%!$(not end-of-input)"), ("%d{strftime[%F]}", b"2023-11-14"),
    ("%d{big64}", (1_700_000_000_123).to_bytes(8, "big")), ("", b""), ("100%%", b"100%"),
])  # fmt: skip
def test_a_record_by_a_format(text: str, expected: bytes) -> None:
    assert formatted(text)(SimpleNamespace(**RECORD)) == expected


def test_what_is_missing_has_no_bytes() -> None:
    empty = SimpleNamespace(**{**RECORD, "key": None, "value": None, "leader_epoch": None})
    assert formatted("%k|%v|%K|%V{ascii}|%e|%v{hex}")(empty) == b"||-1|0|-1|"


@pytest.mark.parametrize("timestamp", [1_700_000_000_123_000, (1 << 63) - 1, -1 << 63])
def test_a_time_that_no_calendar_has_is_printed_in_milliseconds(timestamp: int) -> None:
    """Programs write microseconds by mistake; all other records can still be printed."""
    record = SimpleNamespace(**{**RECORD, "timestamp": timestamp})
    assert formatted("%d{strftime[%F]}")(record) == b"%d" % timestamp


@pytest.mark.parametrize("text", [
    "%Q", "%", "%v{", "%v{rot13}", "%o{hex3}", "%o{big4}", "%v{unpack}", "%v{unpack[z]}",
    "%v{unpack[sb]}", "%d{go[2006]}", "%d{strftime}", "%R{hex}", "%h{%Q}", "%v{unpack#b}",
])  # fmt: skip
def test_what_it_does_not_know_is_named(text: str) -> None:
    with pytest.raises(ClientError, match="--format: "):
        formatted(text)
