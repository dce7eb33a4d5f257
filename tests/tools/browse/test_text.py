"""How keys are decoded, and lines of text cut, wrapped and shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tools.browse.keys import decode
from ottla.tools.browse.text import columns_of, cut, data, moment, row, whole, wrapped
from ottla.wire.records import Record


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("\x1b[A\x1b[5~x", ["up", "pageup", "x"]),
        ("\x1bOB\x1bOF", ["down", "end"]),
        ("\x1b", ["escape"]),
        ("\x1b\x1b[B", ["escape", "down"]),
        ("\x1b[1;5Cq", ["q"]),  # Ctrl with an arrow is ignored, also its 1;5C
        ("\x1b[", []),
        ("\r\x7fä\x01", ["enter", "backspace", "ä"]),
    ],
)
def test_bytes_of_a_terminal_are_keys(sent: str, keys: list[str]) -> None:
    assert decode(sent) == keys


@given(st.text(max_size=60))
def test_any_input_is_decoded(sent: str) -> None:
    assert all(decode(sent))


@given(st.text(max_size=60), st.integers(min_value=1, max_value=50))
def test_text_is_cut_to_exactly_the_width(text: str, width: int) -> None:
    assert sum(map(columns_of, cut(text, width))) == width


@given(st.text(max_size=200), st.integers(min_value=2, max_value=50))
def test_wrapping_loses_nothing_and_fits(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join(lines) == text
    assert all(sum(map(columns_of, line)) <= width for line in lines)


@given(
    st.builds(
        Record, st.integers(0, 2**62), st.integers(-(2**62), 2**62),
        st.none() | st.binary(max_size=600), st.none() | st.binary(max_size=600),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
    )
)  # fmt: skip
def test_any_record_is_shown_without_a_character_that_does_something(record: Record) -> None:
    for line in [row(record, 80), *whole(record, 80)]:
        assert line.isprintable(), line


def test_long_text_is_not_taken_for_bytes_where_it_was_cut_off() -> None:
    assert data(("x" + "é" * 500).encode()).endswith("éé")
    assert data(b"\xff\x00") == "0xff00"
    assert moment(-1) == "-"
    assert moment(2**62) == str(2**62)
