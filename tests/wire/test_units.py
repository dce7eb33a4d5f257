"""Times and sizes with units mean what people write, and mistakes are named."""

from __future__ import annotations

import pytest

from ottla.wire.units import (
    InvalidUnit,
    as_typed,
    duration_ms,
    number_of,
    size_bytes,
    to_write,
)
from ottla.wire.wording import counted


@pytest.mark.parametrize(("text", "expected"), [
    ("7", 7), ("7ms", 7), ("5s", 5_000), ("3m", 180_000), ("2h", 7_200_000), ("1d", 86_400_000),
    ("1w", 604_800_000), (" 1.5 S ", 1_500), ("0.5ms", 0.5),
])
def test_a_time_is_in_milliseconds(text: str, expected: float) -> None:
    assert duration_ms(text) == expected


def test_a_number_alone_has_the_unit_that_the_caller_names() -> None:
    assert duration_ms("2", plain="m") == 120_000
    assert duration_ms("2s", plain="m") == 2_000


@pytest.mark.parametrize("text", ["", "s", "-1s", "1x", "1 kB", "1e3", "1.s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidUnit, match=r"is not a time: expected a number with ms, s, m, h, d"):
        duration_ms(text)


@pytest.mark.parametrize(("text", "expected"), [
    ("7", 7), ("7b", 7), ("1kB", 1_000), ("2MB", 2_000_000), ("1gb", 10**9), ("1TB", 10**12),
    ("1KiB", 1_024), ("1.5 MiB", 1_572_864), ("1GiB", 1 << 30), ("2tib", 2 << 40),
])
def test_a_size_is_in_bytes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1s", "1 M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidUnit, match="is not a size: expected a number with kB, MB, GB"):
        size_bytes(text)


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("retention.ms", "7d", "604800000"), ("retention.ms", "100", "100"),
    ("retention.ms", "-1", "-1"), ("x.seconds", "2m", "120"), ("x.minutes", "2h", "120"),
    ("log.retention.hours", "2d", "48"), ("segment.bytes", "1MiB", "1048576"),
    ("consumer_byte_rate", "1MB", "1000000"), ("fetch.size", "2kB", "2000"),
    ("compression.type", "7d", "7d"),           # neither a time nor a size
])
def test_a_setting_loses_its_unit_in_the_unit_of_its_name(
    name: str, value: str, expected: str
) -> None:
    assert number_of(name, value) == expected


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("x.hours", "90m", "x.hours=90m is not a whole number of hours"),
    ("x.ms", "0.5ms", "x.ms=0.5ms is not a whole number of milliseconds"),
    ("x.ms", "5MB", "'mb' is not a unit of time; known units: ms, s, m, h, d, w"),
    ("x.bytes", "5d", "'d' is not a unit of size; known units: kB, MB, GB, TB, KiB, MiB"),
])
def test_a_unit_of_another_kind_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidUnit, match=reason):
        number_of(name, value)
    assert to_write(name, value) == ""


def test_an_error_says_which_number_to_write() -> None:
    assert to_write("retention.ms", "1d") == "; for 1d write 86400000"
    assert to_write("retention.ms", "1") == to_write("retention.ms", "many") == ""


def test_an_error_about_a_number_repeats_what_was_typed() -> None:
    assert as_typed("retention.ms", "1d") == "; 1d is 86,400,000"
    assert as_typed("segment.bytes", "1MB") == "; 1MB is 1,000,000, and 1MiB is 1,048,576"
    assert as_typed("segment.bytes", "1KiB") == "; 1KiB is 1,024"
    assert as_typed("segment.bytes", "1000") == ""


def test_a_number_is_told_with_its_noun() -> None:
    told = [counted(number, "partition") for number in (0, 1, 2, 1_234)]
    assert told == ["0 partitions", "1 partition", "2 partitions", "1,234 partitions"]
    assert [counted(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]
