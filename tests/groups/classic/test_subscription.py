"""The embedded consumer protocol: Kafka's bytes are written and read. Other bytes are ignored."""

from __future__ import annotations

import pytest

from ottla.groups.classic.subscription import (
    Subscription,
    has_user_data,
    read_assignment,
    read_subscription,
    topics_of,
    write_assignment,
    write_subscription,
)

FULL = Subscription(("t", "uu"), b"xy", {"t": (0, 7), "v": ()}, 3, "rack")
# version | 2 topics | user data | owned: 2 topics | generation | rack
TOPICS = "0002 0000 0002 0001 74 0002 7575"
DATA, OWNED = "0000 0002 7879", "0000 0002 0001 74 0000 0002 0000 0000 0000 0007 0001 76 0000 0000"
BYTES = [
    bytes.fromhex(text) for text in (
        f"0000 {TOPICS[5:]} {DATA}", f"0001 {TOPICS[5:]} {DATA} {OWNED}",
        f"0002 {TOPICS[5:]} {DATA} {OWNED} 0000 0003",
        f"0003 {TOPICS[5:]} {DATA} {OWNED} 0000 0003 0004 7261 636b",
    )
]


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_has_the_bytes_of_its_version(version: int) -> None:
    assert write_subscription(FULL, version) == BYTES[version]
    assert read_subscription(BYTES[version]) == Subscription(
        FULL.topics, FULL.user_data, FULL.owned if version >= 1 else {},
        3 if version >= 2 else -1, "rack" if version >= 3 else None,
    )
    assert read_subscription(BYTES[version] + b"of a later version") is not None


def test_user_data_and_the_rack_may_be_missing_or_empty() -> None:
    for data, rack in ((None, None), (b"", ""), (None, ""), (b"x", None)):
        plain = Subscription((), data, {}, -1, rack)
        assert read_subscription(write_subscription(plain, 3)) == plain
    assert read_subscription(bytes.fromhex("0000 00000000 ffffffff")) == Subscription(())
    assert read_subscription(bytes.fromhex("0000 ffffffff ffffffff")) == Subscription(())


@pytest.mark.parametrize("version", range(4))
def test_bytes_that_end_early_are_no_subscription(version: int) -> None:
    for size in range(len(BYTES[version])):
        assert read_subscription(BYTES[version][:size]) is None


@pytest.mark.parametrize("text", [
    "", "00", "ffff 00000000 ffffffff",
    "0000 7fffffff ffffffff",                       # more topics than there are bytes
    "0000 00000001 ffff ffffffff",                  # a topic without a name
    "0000 00000001 0001 ff ffffffff",               # not UTF-8
    "0000 00000000 00000001",
])
def test_other_bytes_are_no_subscription(text: str) -> None:
    assert read_subscription(bytes.fromhex(text)) is None


def test_as_many_topics_as_fit_are_read_and_no_more_is_tried() -> None:
    names = bytes.fromhex("0000" * 100)
    many = bytes.fromhex("0000 00000064") + names
    assert read_subscription(many + b"\xff" * 4) == Subscription(("",) * 100)
    assert read_subscription(many) is None


def test_the_topics_of_a_group_are_those_of_all_members() -> None:
    one, other = (write_subscription(Subscription(names), 0) for names in (("a", "b"), ("b", "c")))
    assert topics_of([one, other]) == frozenset("abc")
    assert topics_of([]) == frozenset()
    assert topics_of([one, b"else"]) is None


ASSIGNMENT = bytes.fromhex(
    "0000 00000002 0001 61 00000001 00000004 0001 62 00000002 00000000 00000002 ffffffff")


def test_an_assignment_is_sorted_and_read_as_it_was_written() -> None:
    assert write_assignment({"b": {2, 0}, "a": [4]}) == ASSIGNMENT
    assert write_assignment({"b": {2, 0}, "a": [4]}, 1) == b"\0\1" + ASSIGNMENT[2:]
    assert read_assignment(ASSIGNMENT) == {"a": (4,), "b": (0, 2)}
    assert read_assignment(b"") == read_assignment(b"\xff\xff" + ASSIGNMENT[2:]) == {}
    for size in range(len(ASSIGNMENT) - 4):
        assert read_assignment(ASSIGNMENT[:size]) == {}


@pytest.mark.parametrize(("end", "expected"), [
    ("ffffffff", False), ("00000000", False), ("00000001 78", True), ("00000002 78", False),
    ("", False), ("0000", False),
])
def test_user_data_of_an_assignor_are_found(end: str, expected: bool) -> None:
    data = ASSIGNMENT[:-4] + bytes.fromhex(end)
    assert has_user_data(data) is expected
    assert has_user_data(b"\xff\xff" + data[2:]) is False
