"""The state of a KIP-848 group after a replay of its records, in any order that a compacted log may
have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.groups.cluster_view import Topic
from ottla.groups.consumer.group import ConsumerGroup, hash_of
from ottla.groups.errors import UnknownMember
from ottla.groups.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    MemberState,
    Record,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)

TOPIC_ID = b"t" * 16
OWNED = CurrentMemberValue(3, 2, assigned={(TOPIC_ID, 0): 3}, revoking={(TOPIC_ID, 1): 2})


def value(instance_id: str | None = None) -> ConsumerMemberValue:
    return ConsumerMemberValue("client", "/h", instance_id, topics=frozenset({"t"}))


@pytest.fixture
def group() -> ConsumerGroup:
    return ConsumerGroup("g")


def test_a_member_without_a_record_of_what_it_owns_owns_nothing_at_epoch_0(
    group: ConsumerGroup,
) -> None:
    group.replay_member("m", value())
    assert group.members["m"].current == CurrentMemberValue(0)
    group.replay_current("m", OWNED)
    assert group.members["m"].current == OWNED
    assert group.owners == {(TOPIC_ID, 0): "m", (TOPIC_ID, 1): "m"}
    group.replay_current("m", None)
    assert group.members["m"].current == CurrentMemberValue(0)
    assert group.owners == {}


@pytest.mark.parametrize("removed", [False, True])
def test_what_a_member_owns_may_be_read_before_the_member(
    group: ConsumerGroup, removed: bool
) -> None:
    group.replay_current("m", OWNED)
    assert group.owners == {}
    if removed:
        group.replay_current("m", None)
    group.replay_member("m", value())
    assert group.members["m"].current == (CurrentMemberValue(0) if removed else OWNED)
    assert len(group.owners) == (0 if removed else 2)
    assert not group.early


def test_a_partition_that_another_member_has_by_now_stays_its_own(group: ConsumerGroup) -> None:
    for name in ("m", "n"):
        group.replay_member(name, value())
        group.replay_current(name, OWNED)
    group.replay_member("m", None)
    assert set(group.owners.values()) == {"n"} and list(group.members) == ["n"]
    group.replay_member("n", None)
    assert group.owners == {}


def test_an_instance_belongs_to_the_member_that_had_it_last(group: ConsumerGroup) -> None:
    group.replay_member("m", value("i"))
    group.replay_member("n", value("i"))
    group.replay_member("m", None)
    assert group.static_members == {"i": "n"}
    group.replay_member("n", None)
    assert group.static_members == {} and not group.members


def test_a_groups_state_follows_from_its_epochs(group: ConsumerGroup) -> None:
    assert (group.state_name, group.is_empty, group.is_unused) == ("Empty", True, True)
    group.replay_member("m", value())
    group.replay_epoch(ConsumerGroupValue(2, 9))
    assert (group.epoch, group.metadata_hash, group.state_name) == (2, 9, "Assigning")
    assert not group.is_empty and not group.is_unused
    group.replay_target_epoch(TargetEpochValue(2, 1000))
    assert (group.target_epoch, group.target_ms, group.state_name) == (2, 1000, "Reconciling")
    group.replay_current("m", CurrentMemberValue(2, 1))
    assert group.state_name == "Stable" and group.summary == "Stable, epoch 2, 1 member"
    for epoch, state in ((2, MemberState.UNRELEASED_PARTITIONS), (1, MemberState.STABLE)):
        group.replay_current("m", CurrentMemberValue(epoch, 1, state))
        assert group.state_name == "Reconciling"
    group.replay_epoch(None)
    assert group.epoch == 2
    group.replay_target_epoch(None)
    assert (group.target_epoch, group.target_ms) == (0, 0)


def test_targets_and_patterns_come_and_go(group: ConsumerGroup) -> None:
    group.replay_member("m", replace(value(), pattern="lo.*"))
    member = group.member("m")
    assert group.assigned(member) == frozenset()
    group.replay_target("m", TargetMemberValue(frozenset({(TOPIC_ID, 0)})))
    assert group.assigned(member) == {(TOPIC_ID, 0)}
    group.replay_target("m", None)
    group.replay_target("m", None)
    assert group.assigned(member) == frozenset()
    assert group.topics_of(member.value) == {"t"} and not group.subscribes_to("logs")
    group.replay_pattern("lo.*", RegularExpressionValue(frozenset({"logs"}), 1, 2))
    assert group.topics_of(member.value) == {"t", "logs"}
    assert group.subscribes_to("logs") and group.subscribes_to("t") and not group.subscribes_to("x")
    group.resolved["lo.*"] = group.seen_version = 4
    assert group.has_seen(4, "lo.*") and group.has_seen(4, None) and group.has_seen(4, "")
    assert not group.has_seen(5, None) and not group.has_seen(4, "other")
    for _ in range(2):
        group.replay_pattern("lo.*", None)
    assert group.topics_of(member.value) == {"t"} and group.resolved == {}
    with pytest.raises(UnknownMember):
        group.member("n")


def test_tombstones_name_all_that_a_group_has(group: ConsumerGroup) -> None:
    for name in ("m", "n"):
        group.replay_member(name, value())
    group.replay_pattern("lo.*", RegularExpressionValue(frozenset(), 1, 2))
    assert group.tombstones() == [Record(key, None) for key in (
        CurrentMemberKey("g", "m"), TargetMemberKey("g", "m"), ConsumerMemberKey("g", "m"),
        CurrentMemberKey("g", "n"), TargetMemberKey("g", "n"), ConsumerMemberKey("g", "n"),
        RegularExpressionKey("g", "lo.*"), TargetEpochKey("g"), ConsumerGroupKey("g"),
    )]


def test_the_hash_of_topics_is_about_each_of_them_in_any_order() -> None:
    a, b = Topic("a", b"a" * 16, 3), Topic("b", b"b" * 16, 3)
    known = hash_of({"a": a, "b": b})
    assert known == hash_of({"b": b, "a": a}) and -(2**63) <= known < 2**63
    others = [
        {"a": a}, {"a": a, "b": b._replace(partitions=4)}, {"a": a, "c": b},
        {"a": a, "b": b._replace(topic_id=b"c" * 16)}, {},
    ]
    assert len({known, *map(hash_of, others)}) == 6
