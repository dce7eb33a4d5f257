"""A timer's action is done eventually, although a full disk refuses to record it at first."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.wire.errors import StorageFailed
from tests.groups.bench import Workbench
from tests.groups.members import GROUP, TOPIC, Member

FULL = StorageFailed("disk full")


def beat(bench: Workbench, name: str, epoch: int, **told: Any) -> Any:
    joins = {"rebalance_timeout_ms": 5_000, "topics": frozenset({TOPIC}), "owned": frozenset()}
    request = Heartbeat(GROUP, name, epoch, **((joins if epoch == 0 else {}) | told))
    return bench.ask(lambda s, r: s.beat(request, r))


def members(bench: Workbench) -> set[str]:
    return set(bench.consumers(GROUP).members)


def appends_refused(bench: Workbench, ms: int) -> int:
    """Refuse all appends while this time passes; returns how many were refused."""
    asked = 0
    taken = bench.append

    def refuse(*_: Any) -> None:
        nonlocal asked
        asked += 1
        raise FULL

    bench.append = refuse
    bench.wait(ms)
    bench.append = taken
    return asked


def test_a_downgrade_that_the_log_refuses_is_tried_ten_times_a_second() -> None:
    bench = Workbench(offsets_topic_num_partitions=1)
    bench.cluster.make(TOPIC, 2)
    modern, classic = Member(bench, "a", True, "range"), Member(bench, "b", False, "range")
    for member in (modern, classic, classic, classic, modern, classic):
        member.step()
    modern.leave()
    assert not isinstance(bench.shard().groups[GROUP], ClassicGroup)
    assert 5 <= appends_refused(bench, 1_000) <= 11
    bench.wait(100)
    assert isinstance(bench.shard().groups[GROUP], ClassicGroup)
    for _ in range(5):
        classic.step()
    assert classic.owned == {0, 1}


def test_a_start_between_the_last_leave_and_the_downgrade_makes_up_for_it() -> None:
    bench = Workbench(offsets_topic_num_partitions=1)
    bench.cluster.make(TOPIC, 2)
    modern, classic = Member(bench, "a", True, "range"), Member(bench, "b", False, "range")
    for member in (modern, classic, classic, classic, modern, classic):
        member.step()
    modern.leave()
    bench.crash()
    bench.wait(1)
    assert isinstance(bench.shard().groups[GROUP], ClassicGroup)


def test_a_member_that_fell_silent_is_removed_once_there_is_room() -> None:
    bench = Workbench()
    bench.cluster.make(TOPIC, 2)
    beat(bench, "a", 0)
    assert 1 <= appends_refused(bench, 50_000) <= 6
    assert members(bench) == {"a"}
    bench.wait(1_000)
    assert members(bench) == set()


@pytest.mark.parametrize("how", ["leave", "rebalance"])
def test_a_member_whose_removal_was_refused_does_not_stay_for_ever(how: str) -> None:
    bench = Workbench()
    bench.cluster.make(TOPIC, 2)
    owner = beat(bench, "a", 0)
    if how == "leave":
        bench.refusal = FULL
        assert isinstance(beat(bench, "a", -1), StorageFailed)
        bench.refusal = None
        bench.wait(50_000)
    else:
        assert isinstance(beat(bench, "b", 0), HeartbeatReply)
        topic_id = bench.cluster.topics[TOPIC].topic_id
        owned = frozenset((topic_id, index) for index in range(2))
        told = beat(bench, "a", owner.member_epoch, owned=owned)
        assert len(told.assignment) == 1
        # Member a continues as if it had not received the request to revoke a partition.
        assert appends_refused(bench, 5_500) >= 1
        beat(bench, "a", owner.member_epoch, owned=owned)
        bench.wait(1_000)
        assert members(bench) == {"b"}
        return
    assert members(bench) == set()


def test_a_static_member_whose_restart_was_refused_is_still_removed_when_its_session_ends() -> None:
    bench = Workbench()
    bench.cluster.make(TOPIC, 2)
    beat(bench, "a", 0, instance_id="i")
    beat(bench, "a", -2, instance_id="i")
    bench.refusal = FULL
    assert isinstance(beat(bench, "b", 0, instance_id="i"), StorageFailed)
    bench.refusal = None
    bench.wait(50_000)
    assert members(bench) == set(), "its successor never comes back"


def test_a_member_whose_revocation_was_refused_still_has_its_rebalance_timeout() -> None:
    bench = Workbench()
    bench.cluster.make(TOPIC, 2)
    owner = beat(bench, "a", 0)
    beat(bench, "b", 0)
    topic_id = bench.cluster.topics[TOPIC].topic_id
    owned = frozenset((topic_id, index) for index in range(2))
    told = beat(bench, "a", owner.member_epoch, owned=owned)
    bench.refusal = FULL
    assert isinstance(beat(bench, "a", told.member_epoch, owned=told.assignment), StorageFailed)
    bench.refusal = None
    bench.wait(5_000)
    beat(bench, "a", owner.member_epoch)        # without `owned`
    assert members(bench) == {"b"}
