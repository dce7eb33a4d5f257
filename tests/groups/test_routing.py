"""Groups and transactional ids are on the partitions on which Kafka has them."""

from __future__ import annotations

import pytest

from ottla.groups.routing import CACHED_CHARS_MAX, java_hash, partition_for


@pytest.mark.parametrize(("text", "value"), [
    ("", 0), ("a", 97), ("ab", 3105), ("hello", 99162322), ("Aa", 2112), ("BB", 2112),
    ("polygenelubricants", -2147483648), ("ä", 228),
    ("aä", 97 * 31 + 228), ("😀", 0xD83D * 31 + 0xDE00), ("\ud800", 0xD800),
])
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_smallest_hash_counts_as_zero() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
    negative = next(name for name in map("z{}".format, range(10**6)) if java_hash(name) < 0)
    assert partition_for(negative, 50) == -java_hash(negative) % 50


@pytest.mark.parametrize("length", [CACHED_CHARS_MAX, CACHED_CHARS_MAX + 1])
def test_names_of_any_length_have_a_partition(length: int) -> None:
    name = "x" * length
    assert partition_for(name, 7) == partition_for(name, 7) == abs(java_hash(name)) % 7
