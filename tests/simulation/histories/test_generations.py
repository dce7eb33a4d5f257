"""Tests which answers about generations and assignments of a classic group the check accepts."""

from __future__ import annotations

from typing import Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.simulation.histories.generations import NO_GENERATION, histories, step
from tests.simulation.histories.history import Call, History
from tests.simulation.histories.search import linearize


class Told(History):
    """A history written by hand."""

    def told(self, request: Any, response: Any) -> None:
        self.answer(self.asked(request), response)

    def asked(self, request: Any) -> Call:
        call = self.ask(request)
        assert call is not None
        return call

    def join(self, generation: int) -> None:
        self.told(
            JoinGroupRequest(group_id="g", session_timeout_ms=1000, protocols=[]),
            JoinGroupResponse(generation_id=generation, members=[]),
        )

    def sync(self, generation: int, got: bytes, own: tuple[bytes, ...] = ()) -> None:
        self.told(sync(generation, own), SyncGroupResponse(assignment=got))

    def beat(self, generation: int, code: int = 0) -> None:
        self.told(
            HeartbeatRequest(group_id="g", generation_id=generation, member_id="m"),
            HeartbeatResponse(error_code=code),
        )

    def holds(self) -> bool:
        return linearize(histories(self.calls)["g"], NO_GENERATION, step).order is not None


def sync(generation: int, own: tuple[bytes, ...] = ()) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g", generation_id=generation, member_id="m",
        assignments=[
            SyncGroupRequest.Assignment(member_id=f"{at}", assignment=each)
            for at, each in enumerate(own)
        ],
    )


def test_members_of_a_generation_get_what_its_leader_has_assigned() -> None:
    told = Told()
    told.join(1)
    told.sync(1, b"a", (b"a", b"b"))
    told.sync(1, b"b")
    told.beat(1)
    assert told.holds()
    told.sync(1, b"c")
    assert not told.holds()


def test_a_member_may_ask_before_the_leader_but_is_answered_after_it() -> None:
    told = Told()
    told.join(1)
    early = told.asked(sync(1))
    leader = told.asked(sync(1, (b"a", b"b")))
    told.answer(early, SyncGroupResponse(assignment=b"b"))
    assert told.holds()                             # the leader's answer may be on its way
    told.answer(leader, SyncGroupResponse(assignment=b"a"))
    assert told.holds()
    told = Told()
    told.join(1)
    told.sync(1, b"b")
    told.sync(1, b"a", (b"a", b"b"))
    assert not told.holds()


def test_a_generation_that_is_recorded_has_one_leader() -> None:
    told = Told()
    told.join(1)
    told.sync(1, b"a", (b"a", b"b"))
    told.sync(1, b"a", (b"c", b"d"))                # too late: gets an assignment of the first
    assert told.holds()
    told.sync(1, b"c", (b"c", b"d"))
    assert not told.holds()


def test_no_generation_before_the_recorded_one_is_served() -> None:
    made, answered = OffsetCommitRequest.Topic, OffsetCommitResponse.Topic
    commit = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=1, member_id="m",
        topics=[made(name="t", partitions=[made.Partition(partition_index=0, committed_offset=1)])],
    )
    done = OffsetCommitResponse(topics=[
        answered(name="t", partitions=[answered.Partition(partition_index=0)])
    ])
    for late in (
        lambda told: told.join(1), lambda told: told.sync(1, b"a"),
        lambda told: told.told(commit, done),
    ):
        told = Told()
        told.join(1)
        told.sync(1, b"a", (b"a",))
        told.told(commit, done)
        told.join(2)
        told.sync(2, b"a", (b"a",))
        told.beat(1, ErrorCode.ILLEGAL_GENERATION)
        assert told.holds()
        late(told)
        assert not told.holds()


def test_a_heartbeat_is_answered_also_while_a_coordinator_is_loaded() -> None:
    """In seed 638 a loading coordinator answered the Heartbeat of a member of an old generation."""
    told = Told()
    told.join(1)
    told.sync(1, b"a", (b"a",))
    told.join(2)
    told.sync(2, b"a", (b"a",))
    told.beat(1)
    assert told.holds()


def test_a_generation_that_was_not_recorded_may_begin_again() -> None:
    told = Told()
    told.join(1)
    told.sync(1, b"a", (b"a",))
    told.join(2)
    told.asked(sync(2, (b"a",)))
    told.beat(1)
    told.join(2)
    told.sync(2, b"b", (b"b",))
    assert told.holds()
