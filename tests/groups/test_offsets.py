"""Committed offsets, visible and pending, and the requests that change and read them."""

from __future__ import annotations

import pytest

from ottla.groups.offset_requests import (
    NEVER_MS,
    Commit,
    FetchedOffset,
    OffsetToCommit,
    commit_records,
    fetch_offsets,
)
from ottla.groups.offsets import Offsets
from ottla.groups.records import CommittedOffset, OffsetKey, Record
from ottla.groups.result import Result
from ottla.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode

T0, T1, U0 = OffsetKey("g", "t", 0), OffsetKey("g", "t", 1), OffsetKey("h", "t", 0)
ONE, TWO, THREE = (CommittedOffset(number) for number in (1, 2, 3))


@pytest.fixture
def offsets() -> Offsets:
    """Group `g` has the offset t-0=1, and the pending offsets t-0=2 of producer 7 and t-1=3 of
    producer 8. Group `h` has t-0=1."""
    offsets = Offsets()
    offsets.replay(T0, ONE)
    offsets.replay(U0, ONE)
    offsets.replay(T0, TWO, 7)
    offsets.replay(T1, THREE, 8)
    return offsets


def test_pending_offsets_are_known_and_not_visible(offsets: Offsets) -> None:
    assert len(offsets) == 2 and {*offsets.groups()} == {"g", "h"}
    assert offsets.of_group("g") == {("t", 0): ONE} and offsets.of_group("x") == {}
    assert offsets.find("g", "t", 1) is None and offsets.find("x", "t", 0) is None
    assert [*offsets.values("g", "t", 0)] == [ONE, TWO]
    assert [*offsets.values("g", "t", 1)] == [THREE] and [*offsets.values("x", "t", 1)] == []
    assert offsets.is_pending("g", "t", 1) and not offsets.is_pending("h", "t", 0)
    assert offsets.has_pending("g") and not offsets.has_pending("h")
    assert offsets.has_any("g") and offsets.has_any("h") and not offsets.has_any("x")
    assert offsets.has_offset("g", "t", 1) and offsets.has_offset("h", "t", 0)
    assert not offsets.has_offset("h", "t", 1)
    assert {*offsets.pending_of("g")} == {("t", 0), ("t", 1)} and not [*offsets.pending_of("h")]
    assert offsets.pending() == {(7, T0): TWO, (8, T1): THREE}
    assert offsets.indexes_of("g") == [("t", 0), ("t", 1)]
    offsets.replay(OffsetKey("p", "t", 0), ONE, 9)
    assert offsets.all_groups() == ["g", "h", "p"] and {*offsets.groups()} == {"g", "h"}
    assert offsets.has_any("p")


def test_a_marker_makes_an_offset_visible_or_drops_it(offsets: Offsets) -> None:
    offsets.end_transaction(7, True)
    assert offsets.find("g", "t", 0) == TWO and offsets.pending() == {(8, T1): THREE}
    offsets.end_transaction(8, False)
    assert offsets.find("g", "t", 1) is None and offsets.pending() == {}
    assert not offsets.has_pending("g")
    offsets.end_transaction(99, True)
    assert offsets.of_group("g") == {("t", 0): TWO}


@pytest.mark.parametrize("committed", [True, False])
def test_a_later_commit_is_not_overtaken_by_an_earlier_one(
    offsets: Offsets, committed: bool
) -> None:
    offsets.replay(T0, THREE)
    assert offsets.pending()[7, T0] is None
    offsets.end_transaction(7, committed)
    assert offsets.find("g", "t", 0) == THREE


def test_of_two_transactions_the_later_commit_wins(offsets: Offsets) -> None:
    offsets.replay(T0, THREE, 8)
    offsets.end_transaction(8, True)
    assert offsets.find("g", "t", 0) == THREE and offsets.pending() == {(7, T0): None}
    offsets.end_transaction(7, True)
    assert offsets.find("g", "t", 0) == THREE


def test_an_earlier_commit_leaves_a_later_one_pending(offsets: Offsets) -> None:
    offsets.replay(T0, THREE, 8)
    offsets.end_transaction(7, True)
    assert offsets.find("g", "t", 0) == TWO and offsets.pending()[8, T0] == THREE
    offsets.end_transaction(8, True)
    assert offsets.find("g", "t", 0) == THREE


def test_a_tombstone_drops_what_is_pending_too(offsets: Offsets) -> None:
    offsets.replay(T0, THREE, 8)
    offsets.replay(T0, None)
    assert offsets.pending() == {(8, T1): THREE} and not offsets.has_offset("g", "t", 0)
    assert {*offsets.groups()} == {"h"}, "nothing is left of the group that is visible"
    for producer_id in (7, 8):
        offsets.end_transaction(producer_id, True)
    assert offsets.of_group("g") == {("t", 1): THREE}
    offsets.replay(T1, None)
    assert not offsets.has_any("g")
    offsets.replay(T1, None)


def test_an_offset_may_be_deleted_while_its_transaction_ends(offsets: Offsets) -> None:
    offsets.replay(T1, TWO, 7)
    offsets.replay(U0, THREE, 7)
    steps = offsets.ending_steps(7, True)
    next(steps)
    assert offsets.find("g", "t", 0) == TWO and offsets.is_pending("g", "t", 1)
    offsets.replay(T1, None)
    assert [*steps] == [None] and offsets.find("g", "t", 1) is None
    assert offsets.find("h", "t", 0) == THREE, "those after it go on"
    assert not [key for key in offsets.pending() if key[0] == 7]


@pytest.mark.parametrize(("most", "left"), [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_tombstones_are_made_a_few_at_a_time(offsets: Offsets, most: int, left: int) -> None:
    assert offsets.tombstones("g", most) == [Record(T0, None), Record(T1, None)][:left]


def test_a_fetch_tells_what_is_there_and_on_request_what_is_not_stable(offsets: Offsets) -> None:
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    t0, t1, t2 = (("t", index) for index in range(3))
    assert fetch_offsets(offsets, "g", None, False) == [FetchedOffset(*t0, ONE)]
    assert fetch_offsets(offsets, "g", None, True) == [
        FetchedOffset(*t0, None, unstable), FetchedOffset(*t1, None, unstable)]
    assert fetch_offsets(offsets, "g", [t1, t2], False) == [
        FetchedOffset(*t1, None), FetchedOffset(*t2, None)]
    assert fetch_offsets(offsets, "g", [t2, t1], True) == [
        FetchedOffset(*t2, None), FetchedOffset(*t1, None, unstable)]
    assert fetch_offsets(offsets, "h", None, True) == [FetchedOffset(*t0, ONE)]


@pytest.mark.parametrize(("retention_ms", "expire_ms"), [
    (-1, -1), (0, 1000), (5, 1005), (NEVER_MS, NEVER_MS), (NEVER_MS - 1000, NEVER_MS),
    (NEVER_MS - 1001, NEVER_MS - 1),
])
def test_a_commit_records_each_offset_whose_metadata_are_small(
    retention_ms: int, expire_ms: int
) -> None:
    settings = GroupSettings(offset_metadata_max_bytes=3)
    result = Result(1000, 5)
    request = Commit("g", [
        OffsetToCommit("t", 0, 7, 2, "abc", b"t" * 16), OffsetToCommit("t", 1, 8, -1, "abcd"),
        OffsetToCommit("t", 2, 9, -1, ""),
    ], retention_ms=retention_ms)
    assert commit_records(request, result, settings) == [
        ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert result.records == [
        Record(T0, CommittedOffset(7, 2, "abc", 1000, expire_ms, b"t" * 16)),
        Record(OffsetKey("g", "t", 2), CommittedOffset(9, -1, "", 1000, expire_ms, bytes(16))),
    ]
    assert NEVER_MS == 0x7FFFFFFFFFFFFFFF
