"""A classic group applies a recorded change once its records are in the log, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.messages import Join, Joined, Leaving, Sync
from ottla.groups.consumer.heartbeat import Heartbeat
from ottla.groups.result import RETRY_MS
from ottla.groups.waits import Finding, Moment, standing
from ottla.wire.errors import (
    CoordinatorNotAvailable,
    NotEnoughReplicas,
    ProtocolError,
    StorageFailed,
)
from tests.groups.bench import Workbench
from tests.groups.compacting import durable

FULL = StorageFailed("disk full")
TOO_FEW = NotEnoughReplicas("1 of 2 replicas is in sync")
PROTOCOLS = (("range", b"r"), ("cooperative", b"c"))


def join(bench: Workbench, instance_id: str | None, member_id: str = "", **told: Any) -> list[Any]:
    request = Join(
        "g", member_id, instance_id, "c", "/h", 10_000, 10_000, "consumer", PROTOCOLS, **told
    )
    answers: list[Any] = []
    bench.runtime.change("g", lambda s, r: s.join(request, answers.append, r))
    return answers


def stable_group(*instances: str) -> tuple[Workbench, list[str]]:
    """A bench with a stable group of static members, and the ids of the members, the leader's
    first."""
    bench = Workbench(group_initial_rebalance_delay_ms=0)
    answers = [join(bench, instance) for instance in instances]
    bench.wait(0)
    ids = [each[0].member_id for each in answers]
    request = Sync("g", 1, ids[0], assignments=tuple((each, each.encode()) for each in ids))
    bench.runtime.change("g", lambda s, r: s.sync(request, lambda reply: None, r))
    return bench, ids


def state(bench: Workbench) -> dict[str, Any]:
    return durable(bench.shard())


def assert_a_restart_shows(bench: Workbench, expected: dict[str, Any]) -> None:
    assert state(bench) == expected
    bench.crash()
    assert state(bench) == expected


def test_a_static_member_stays_until_its_successor_is_recorded() -> None:
    bench, ids = stable_group("one", "two")
    before = state(bench)
    bench.refusal = FULL
    assert join(bench, "two") == [FULL]
    assert bench.heartbeat("g", 1, ids[1], "two") == 0
    assert_a_restart_shows(bench, before)
    bench.refusal = None
    successor = join(bench, "two")[0]
    assert isinstance(successor, Joined)
    assert successor.generation == 1
    assert bench.heartbeat("g", 1, successor.member_id, "two") == 0


def test_a_successor_keeps_all_protocols_of_its_join() -> None:
    bench, _ids = stable_group("one", "two")
    successor = join(bench, "two")[0]
    # The group's record has only the chosen protocol. Compared with it, this join would be a
    # change.
    again = join(bench, "two", successor.member_id)
    assert again[0].generation == 1


def test_a_static_member_whose_successor_was_refused_still_expires() -> None:
    bench, _ = stable_group("one", "two")
    bench.refusal = FULL
    join(bench, "two")
    bench.refusal = None
    bench.wait(30_000)
    assert state(bench)["groups"]["g"][5].name == "EMPTY"


def sync(bench: Workbench, generation: int, member_id: str, *ids: str) -> list[Any]:
    request = Sync("g", generation, member_id, assignments=tuple((one, b"new") for one in ids))
    answers: list[Any] = []
    bench.runtime.change("g", lambda s, r: s.sync(request, answers.append, r))
    return answers


def findings(bench: Workbench) -> list[Finding]:
    moment = Moment(bench.clock.now_ms(), bench.runtime.tick_ms(),
                    bench.runtime.history.rebalance("g"), bench.cluster, bench.settings)
    return list(standing(bench.shard().groups["g"], moment))


@pytest.mark.parametrize("refusal", [FULL, TOO_FEW])
def test_a_refused_assignment_is_tried_again_once_a_second(refusal: ProtocolError) -> None:
    """librdkafka joins again at once, which would be a thousand times a second. So the answer to
    its join has to wait."""
    bench, ids = stable_group("one", "two")
    group = bench.shard().groups["g"]
    bench.refusal, told = refusal, FULL if refusal is FULL else CoordinatorNotAvailable("")
    third = join(bench, None, needs_member_id=False)
    joins = [join(bench, name, one) for name, one in zip(("one", "two"), ids, strict=True)]
    for attempt in range(2, 6):
        leader = joins[0][0]
        assert leader.generation == third[0].generation == attempt
        followers = [sync(bench, attempt, third[0].member_id), sync(bench, attempt, ids[1])]
        refused = sync(bench, attempt, ids[0], *ids)
        assert {one[0].code for one in (*followers, refused)} == {told.code}
        assert group.state_name == "PreparingRebalance", "as in Kafka"
        [finding] = findings(bench)
        assert finding.kind == "assignment_refused" and finding.fields["reason"] in finding.text
        third = join(bench, None, third[0].member_id)
        joins = [join(bench, name, one) for name, one in zip(("one", "two"), ids, strict=True)]
        bench.wait(RETRY_MS - 1)
        assert not joins[0] and not third, "nobody is answered before the pause has ended"
        bench.wait(1)
        [finding] = findings(bench)
        assert finding.kind == "assignment_refused", "it is still the reason"
    bench.refusal = None
    assert sync(bench, 6, ids[0], *ids)[0].assignment == b"new"
    assert group.state_name == "Stable" and findings(bench) == []
    bench.wait(RETRY_MS)
    assert group.state_name == "Stable", "the pause of the next refusal was not needed"


def test_a_member_that_does_not_join_after_a_refused_assignment_is_awaited() -> None:
    bench = Workbench(group_initial_rebalance_delay_ms=0)
    first = join(bench, None, needs_member_id=False)
    bench.wait(0)
    second = join(bench, None, needs_member_id=False)
    join(bench, None, first[0].member_id)
    group = bench.shard().groups["g"]
    bench.refusal = FULL
    assert sync(bench, 2, first[0].member_id) == [FULL]
    bench.refusal = None
    again = join(bench, None, first[0].member_id)
    bench.wait(RETRY_MS)
    assert not again and len(group.members) == 2
    assert [one.kind for one in findings(bench)] == ["assignment_refused", "waiting_for_members"]
    bench.wait(10_000)
    assert again[0].generation == 3 and second[0].member_id not in group.members


@pytest.mark.parametrize("how", ["leave", "silence"])
def test_a_group_that_nobody_is_in_becomes_empty_once_there_is_room(how: str) -> None:
    bench, ids = stable_group("one")
    bench.crash()
    recorded = state(bench)
    bench.refusal = FULL
    if how == "leave":
        left = bench.ask(lambda s, r: s.leave("g", [Leaving(ids[0])], r))
        assert isinstance(left, StorageFailed)
    bench.wait(30_000)
    group = bench.shard().groups["g"]
    assert group.state_name == "PreparingRebalance"
    bench.refusal = None
    bench.wait(1_000)
    assert group.state_name == "Empty"
    assert state(bench) != recorded
    assert_a_restart_shows(bench, state(bench))


def test_a_member_is_refused_where_its_group_cannot_become_classic() -> None:
    bench = Workbench(group_initial_rebalance_delay_ms=0)
    bench.cluster.make("t", 1)
    for epoch in (0, -1):
        beat = Heartbeat("g", "m", epoch, topics=frozenset({"t"}), owned=frozenset(),
                    rebalance_timeout_ms=1_000)
        bench.ask(lambda s, r, beat=beat: s.beat(beat, r))
    before = state(bench)
    bench.refusal = FULL
    assert join(bench, None, needs_member_id=False) == [FULL]
    bench.wait(400_000)
    assert_a_restart_shows(bench, before)
    bench.refusal = None
    joined = join(bench, None, needs_member_id=False)
    bench.wait(0)
    assert joined[0].generation == 1
