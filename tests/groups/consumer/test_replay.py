"""What a KIP-848 group is after its records, in any order that a compacted log may have."""

from __future__ import annotations

import pytest

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.records import ConsumerMemberValue, CurrentMemberValue

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
