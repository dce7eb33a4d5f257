"""A .properties file reads as Java reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.settings.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a \t = \t1 ", {"a": "1 "}),
        ("a==1", {"a": "=1"}),
        ("a : = 1", {"a": "= 1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("# a=1\n! b=2\n\n  # c=3", {}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n# still the value", {"a": "1# still the value"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u4E2D", {"a": "é中"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("path=C\\:\\\\kafka", {"path": "C:\\kafka"}),
    ],
)
def test_lines_mean_what_they_mean_to_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text.encode()) == expected


def test_utf8_is_read_as_utf8_and_anything_else_as_latin1() -> None:
    assert parse_properties("a=é".encode()) == {"a": "é"}
    assert parse_properties("a=é".encode("latin-1")) == {"a": "é"}
    assert parse_properties(b"\xef\xbb\xbfa=1") == {"a": "1"}


def test_a_broken_unicode_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        parse_properties(b"a=\\u12g4")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_escaped_comes_back(entries: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join(
            c if c.isascii() and c.isalnum() else "".join(
                f"\\u{unit:04x}" for unit in [ord(c)]
            )
            for c in text
            if ord(c) < 0x10000
        )

    kept = {escape(name): escape(value) for name, value in entries.items()}
    lines = "\n".join(f"{name}={value}" for name, value in kept.items())
    plain = {
        "".join(c for c in name if ord(c) < 0x10000): "".join(c for c in v if ord(c) < 0x10000)
        for name, v in entries.items()
    }
    assert {k: v for k, v in parse_properties(lines.encode()).items() if k} == {
        k: v for k, v in plain.items() if k
    }


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_properties(data)
    except ValueError as error:
        assert "hexadecimal" in str(error)
