"""Findings say what a group waits for; they are derived from the state of its members. The tests
cover each kind of finding, with its numbers at their limits."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.subscription import write_assignment
from ottla.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup
from ottla.groups.group import Group
from ottla.groups.history.group_history import Rebalance
from ottla.groups.history.rings import event
from ottla.groups.records import (
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentMemberValue,
    MemberState,
    TargetEpochValue,
    TargetMemberValue,
)
from ottla.groups.settings import GroupSettings
from ottla.groups.waits import WAITED_FOR_MAX, Finding, Moment, owners, standing
from tests.groups.bench import FakeCluster

T = b"t".ljust(16, b".")
NOW_MS, TICK_MS = 100_000, 7_000


def cluster() -> FakeCluster:
    known = FakeCluster()
    known.make("t", 4)
    return known


def found(group: Any, rebalance: Rebalance | None = None) -> list[Finding]:
    moment = Moment(NOW_MS, TICK_MS, rebalance, cluster(), GroupSettings())
    return list(standing(group, moment))


def classic(state: ClassicState, *joined: bool, state_ms: int = NOW_MS - 2_000) -> ClassicGroup:
    group = ClassicGroup("g")
    for number, has in enumerate(joined):
        member = ClassicMember(f"m{number}", None, "c", "/h", 5_000, 9_000, (("range", b""),))
        member.awaits_join = print if has else None
        group.add(member, "consumer")
    group.state, group.state_ms = state, state_ms
    return group


def test_a_group_without_members_says_since_when() -> None:
    for since_ms, long in (
        (NOW_MS - 3_000, "had no members for 3 s"), (0, "had no members for 1 min 40 s"),
        (-1, "no members"),
    ):
        (finding,) = found(classic(ClassicState.EMPTY, state_ms=since_ms))
        assert finding == Finding(
            "no_members", f"the group has {long}: nobody reads", {"since_ms": since_ms})
    (finding,) = found(ConsumerGroup("g"))
    assert finding.fields == {"since_ms": -1}
    (finding,) = found(ConsumerGroup("g", target_ms=NOW_MS - 3_000))
    assert finding.fields == {"since_ms": NOW_MS - 3_000}
    assert found(classic(ClassicState.STABLE, False)) == []


@pytest.mark.parametrize(("state_ms", "elapsed", "left", "ends"), [
    (NOW_MS - 2_000, 2_000, 3_000, "whoever has not joined within 3 s is removed"),
    (NOW_MS - 4_999, 4_999, 1, "whoever has not joined within 1 ms is removed"),
    (NOW_MS - 5_000, 5_000, 0, "the wait ends now"),
    (NOW_MS - 9_000, 9_000, 0, "the wait ends now"),
    (NOW_MS + 1_000, 0, 6_000, "whoever has not joined within 6 s is removed"),
])
def test_a_group_that_gathers_says_whom_it_waits_for_and_how_long(
    state_ms: int, elapsed: int, left: int, ends: str
) -> None:
    group = classic(ClassicState.PREPARING, True, False, False, state_ms=state_ms)
    (finding,) = found(group)
    assert finding.kind == "waiting_for_members"
    assert finding.fields == {"elapsed_ms": elapsed, "members": ["m1", "m2"], "left_ms": left}
    assert finding.text.endswith("the group waits for m1 (client c) of h and m2 (client c) of h to"
                                 f" join again; {ends}")
    group = classic(ClassicState.PREPARING, True, state_ms=state_ms)
    assert found(group) == []
    group.pending_joins = {"x", "y"}
    (finding,) = found(group)
    assert finding.kind == "waiting_for_new_members"
    assert finding.fields == {"elapsed_ms": elapsed, "left_ms": left}
    assert finding.text.endswith(
        f"2 clients to repeat JoinGroup with the member id that the broker has assigned; {ends}")


def test_of_many_members_some_are_named() -> None:
    (finding,) = found(classic(ClassicState.PREPARING, *[False] * (WAITED_FOR_MAX + 3)))
    assert len(finding.fields["members"]) == WAITED_FOR_MAX


def test_the_initial_delay_and_the_leader_are_waited_for() -> None:
    group = classic(ClassicState.PREPARING, False)
    group.came_from_empty = True
    assert [each.kind for each in found(group)] == ["initial_delay"]
    (finding,) = found(classic(ClassicState.COMPLETING, False))
    assert finding.kind == "waiting_for_assignment"
    assert finding.fields == {"elapsed_ms": 2_000, "leader": "m0"}
    assert "waits for the leader, m0 (client c) of h, to send" in finding.text
    began = event(0, TICK_MS - 400, "rebalance_began", {})
    why = event(0, 0, "left", {"member": "x"})
    (finding,) = found(classic(ClassicState.COMPLETING, False), Rebalance(began, why))
    assert finding.fields["elapsed_ms"] == 400
    assert "for 400 ms, because member x left at its own request;" in finding.text
    (finding,) = found(classic(ClassicState.COMPLETING, False), Rebalance(began, None))
    assert "for 400 ms; all members have joined" in finding.text
    (finding,) = found(classic(ClassicState.COMPLETING, False, state_ms=-1))
    assert finding.fields["elapsed_ms"] == 0 and "rebalancing; all" in finding.text


def consumer(epoch: int = 3, target_epoch: int = 3) -> ConsumerGroup:
    """A group whose members own their target assignments: `m` owns t-0, and `n` owns t-1."""
    group = ConsumerGroup("g")
    group.replay_epoch(ConsumerGroupValue(epoch, 1))
    group.replay_target_epoch(TargetEpochValue(target_epoch, NOW_MS - 2_000))
    for index, name in enumerate("mn"):
        value = ConsumerMemberValue("c", "/h", "i", topics=frozenset("t"),
                                    rebalance_timeout_ms=9_000)
        group.replay_member(name, value)
        group.replay_target(name, TargetMemberValue(frozenset({(T, index)})))
    group.replay_current("m", CurrentMemberValue(3, 2, assigned={(T, 0): 3}))
    group.replay_current("n", CurrentMemberValue(3, 2, assigned={(T, 1): 3}))
    return group


def test_a_group_of_kip_848_says_which_member_is_behind_and_why() -> None:
    group = consumer()
    assert found(group) == []
    assert [each.kind for each in found(consumer(epoch=4))] == ["rebalancing", "not_assigned_yet"]
    group.replay_current("n", CurrentMemberValue(2, 1))
    rebalancing, behind = found(group)
    assert rebalancing.fields == {"elapsed_ms": 2_000}
    assert (behind.kind, behind.fields) == (
        "waiting_for_heartbeat", {"member": "n", "member_epoch": 2})
    group.replay_current("n", CurrentMemberValue(LEFT_FOR_NOW, 3))
    assert found(group)[1].kind == "member_left_for_now"
    assert "the static member i has left for now" in found(group)[1].text
    group.replay_current("n", CurrentMemberValue(
        2, 1, MemberState.UNREVOKED_PARTITIONS, {}, {(T, 3): 2, (T, 2): 2, (b"x" * 16, 0): 2}))
    assert found(group)[1].kind == "waiting_for_revocation"
    assert found(group)[1].fields["partitions"] == ["t-2", "t-3"]
    assert found(group)[1].text.endswith(
        "t-2 and t-3; the member is removed if this takes longer than its rebalance timeout of 9 s")


def test_who_waits_for_partitions_says_who_has_them() -> None:
    group = consumer()
    waits = CurrentMemberValue(3, 2, MemberState.UNRELEASED_PARTITIONS)
    group.replay_current("n", waits)
    (_, behind) = found(group)
    assert (behind.kind, behind.fields["held_by"]) == ("waiting_for_release", [])
    assert behind.text.endswith(
        "waits for t-1; the answer to its next heartbeat assigns the free partitions")
    group.replay_current("m", CurrentMemberValue(3, 2, assigned={(T, 0): 3, (T, 1): 3}))
    (_, behind) = found(group)
    assert behind.fields["partitions"] == ["t-1"] and behind.fields["held_by"] == ["m"]
    assert behind.text.endswith("waits for t-1, which m still has")
    group.replay_target("n", TargetMemberValue(frozenset({(T, 1), (T, 2)})))
    group.replay_member("o", ConsumerMemberValue("c", "/h"))
    group.replay_current("o", CurrentMemberValue(3, 2, assigned={(T, 2): 3}))
    behind = found(group)[1]
    assert behind.text.endswith("waits for t-1 and t-2, which m and o still have")


def test_the_owner_of_each_partition_is_known_as_far_as_it_can_be_read() -> None:
    group: Group = consumer()       # type: ignore[assignment]
    assert owners(group, cluster()) == {("t", 0): "m", ("t", 1): "n"}
    gone = FakeCluster()
    assert owners(group, gone) == {}
    other: Any = classic(ClassicState.STABLE, False)
    other.members["m0"].assignment = write_assignment({"t": [0, 2]}, 1)
    assert owners(other, gone) == {("t", 0): "m0", ("t", 2): "m0"}
    other.protocol_type = "connect"
    assert owners(other, gone) == {}
