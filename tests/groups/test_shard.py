"""Requests that concern a whole group: deletion in slices, limits, and answers before which a
coordinator has to prove by a record that it still coordinates the group."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.messages import Join, Leaving
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.groups.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
)
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.records import OffsetKey, Record
from ottla.groups.shard import OFFSETS_AT_ONCE
from ottla.wire.errors import ErrorCode
from tests.groups.bench import Workbench


def commit(bench: Workbench, count: int, topic: str = "t") -> Any:
    request = Commit("g", [OffsetToCommit(topic, index, 5, -1, "") for index in range(count)])
    return bench.ask(lambda s, r: s.commit(request, r))


def join(bench: Workbench, session_ms: int = 10_000, group: str = "g") -> Any:
    request = Join(group, "", None, "a", "/h", session_ms, 60_000, "consumer", (("range", b""),))
    return bench.ask(lambda s, r: s.join(request, lambda reply: None, r), group)


def beat(bench: Workbench, epoch: int = 0, member_id: str = "m", topics: str = "t") -> Any:
    joins = epoch == 0
    request = Heartbeat(
        "g", member_id, epoch, None, None, 60_000 if joins else -1,
        frozenset(topics) if joins else None, owned=frozenset() if joins else None,
    )
    return bench.ask(lambda s, r: s.beat(request, r))


def delete(bench: Workbench) -> Any:
    """Delete a slice of the group; returns whether offsets are left, or the refusal."""
    left: list[bool] = []
    refusal = bench.ask(lambda s, r: r.reply(left.append, s.delete_group("g", r)))
    return left[0] if left else refusal


@pytest.mark.parametrize(("count", "slices"), [
    (OFFSETS_AT_ONCE - 1, 1), (OFFSETS_AT_ONCE, 2), (OFFSETS_AT_ONCE + 1, 2),
])
def test_a_group_with_many_offsets_is_deleted_in_slices_and_nobody_joins_meanwhile(
    count: int, slices: int
) -> None:
    bench = Workbench()
    commit(bench, count)
    for _ in range(slices - 1):
        assert delete(bench) is True
        for asked in (commit(bench, 1), join(bench), beat(bench)):
            assert isinstance(asked, CoordinatorLoadInProgress)
    assert delete(bench) is False
    assert not bench.shard().groups and not bench.shard().offsets
    assert commit(bench, 1) == [ErrorCode.NONE]
    assert "g" in bench.shard().groups


def test_a_deletion_that_is_given_up_lets_members_in_again() -> None:
    bench = Workbench()
    commit(bench, OFFSETS_AT_ONCE + 5)
    assert delete(bench) is True
    bench.shard().keep_group("g")
    assert commit(bench, 1) == [ErrorCode.NONE]
    assert len(bench.shard().offsets) == 6


def test_only_a_group_without_members_that_exists_is_deleted() -> None:
    bench = Workbench()
    assert isinstance(delete(bench), GroupIdNotFound)
    bench.cluster.make("t", 1)
    beat(bench)
    assert isinstance(delete(bench), NonEmptyGroup)
    beat(bench, -1)
    assert delete(bench) is False and not bench.shard().groups
    bench.crash()
    assert not bench.shard().groups


@pytest.mark.parametrize(("session_ms", "accepted"), [
    (5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False),
])
def test_sessions_have_limits(session_ms: int, accepted: bool) -> None:
    assert isinstance(join(Workbench(), session_ms), InvalidSessionTimeout) is not accepted


def test_requests_of_the_classic_protocol_need_the_id_of_a_group() -> None:
    bench = Workbench()
    assert isinstance(join(bench, group=""), InvalidGroupId)
    leave = bench.ask(lambda s, r: s.leave("", [Leaving("m")], r), "")
    assert isinstance(leave, InvalidGroupId)
    assert isinstance(bench.ask(lambda s, r: s.delete_offsets("", [], r), ""), InvalidGroupId)
    with pytest.raises(InvalidGroupId):
        bench.shard("").heartbeat("", 1, "m", None, 0)


def test_a_member_without_an_id_gets_one_when_it_joins() -> None:
    bench = Workbench()
    bench.cluster.make("t", 1)
    request = Heartbeat(
        "g", "", 0, None, None, 60_000, frozenset("t"), owned=frozenset(), version=0)
    reply = bench.ask(lambda s, r: s.beat(request, r))
    assert isinstance(reply, HeartbeatReply) and reply.member_id
    assert list(bench.consumers().members) == [reply.member_id]


def test_offsets_of_topics_that_a_member_reads_are_not_deleted() -> None:
    bench = Workbench()
    for name in "tu":
        bench.cluster.make(name, 2)
    commit(bench, 2)
    commit(bench, 1, "u")
    beat(bench)
    wanted = [("t", 0), ("u", 0), ("u", 7)]
    told: list[Any] = []
    bench.ask(lambda s, r: r.reply(told.append, s.delete_offsets("g", wanted, r)))
    assert told == [[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]]
    assert [*bench.shard().offsets.of_group("g")] == [("t", 0), ("t", 1)]


@pytest.mark.parametrize("replicated", [False, True])
def test_success_without_a_record_is_proved_where_another_broker_may_have_taken_over(
    replicated: bool,
) -> None:
    bench = Workbench(replicated=replicated)
    commit(bench, 1)
    bench.records.clear()
    told: list[Any] = []
    bench.ask(lambda s, r: r.reply(told.append, s.delete_offsets("g", [("t", 9)], r)))
    assert told == [[ErrorCode.NONE]]
    assert bench.records == ([Record(OffsetKey("g", "", 0), None)] if replicated else [])
    bench.records.clear()
    bench.ask(lambda s, r: r.reply(told.append, s.delete_offsets("g", [("t", 0)], r)))
    assert bench.records == [Record(OffsetKey("g", "t", 0), None)]


@pytest.mark.parametrize("replicated", [False, True])
def test_a_leave_of_a_stranger_is_proved_before_it_is_refused(replicated: bool) -> None:
    bench = Workbench(replicated=replicated)
    told = join(bench)
    for member_id, code, proved in (
        ("x", ErrorCode.UNKNOWN_MEMBER_ID, replicated), (told.member_id, ErrorCode.NONE, False),
    ):
        bench.records.clear()
        leaving = [Leaving(member_id)]
        assert bench.ask(lambda s, r, leaving=leaving: s.leave("g", leaving, r)) == [code]
        assert bench.records == ([Record(OffsetKey("g", "", 0), None)] if proved else [])


def test_a_shard_tells_when_it_began_to_coordinate() -> None:
    bench = Workbench()
    shard = bench.shard()
    assert shard.is_loaded and shard.loaded_ms == bench.clock.now_ms()
    assert shard.waiting() == []
    join(bench)
    assert bench.shard().group("g") is shard.groups["g"]
    with pytest.raises(GroupIdNotFound):
        shard.group("h")
