"""Heartbeat by heartbeat, a member gives up partitions that are not in its target, then gets those
that are free."""

from __future__ import annotations

from ottla.groups.consumer.reconciliation import reconcile
from ottla.groups.records import CurrentMemberValue, MemberState, TopicPartition

STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)
A, B, C = ((b"t" * 16, index) for index in range(3))


def step(
    current: CurrentMemberValue, *target: TopicPartition, epoch: int,
    owned: tuple[TopicPartition, ...] | None = None, held: tuple[TopicPartition, ...] = (),
) -> CurrentMemberValue:
    told = None if owned is None else frozenset(owned)
    return reconcile(current, frozenset(target), epoch, told, held.__contains__)


def test_free_partitions_are_given_at_once_in_the_epoch_of_the_target() -> None:
    assert step(CurrentMemberValue(0), A, B, epoch=3) == CurrentMemberValue(
        3, 0, STABLE, {A: 3, B: 3}, {})


def test_a_member_at_its_target_stays_as_it_is() -> None:
    current = CurrentMemberValue(3, 2, STABLE, {A: 2}, {})
    assert step(current, B, epoch=3) is current
    assert step(current, A, epoch=4) == CurrentMemberValue(4, 3, STABLE, {A: 2}, {})


def test_what_is_not_in_the_target_is_given_up_before_anything_is_given() -> None:
    current = CurrentMemberValue(3, 2, STABLE, {A: 2, B: 3}, {})
    revoking = step(current, A, C, epoch=4)
    assert revoking == CurrentMemberValue(3, 3, UNREVOKED, {A: 2}, {B: 3}), "the epoch stays"
    assert step(revoking, A, C, epoch=4) is revoking, "nothing is said of what it owns"
    assert step(revoking, A, C, epoch=4, owned=(A, B)) is revoking
    assert step(revoking, A, C, epoch=5, owned=(A, B)) is revoking, "whatever the target is"
    done = step(revoking, A, C, epoch=4, owned=(A,))
    assert done == CurrentMemberValue(4, 3, STABLE, {A: 2, C: 4}, {})


def test_a_member_that_owns_it_no_more_need_not_give_it_up() -> None:
    current = CurrentMemberValue(3, 2, STABLE, {A: 2, B: 3}, {})
    assert step(current, A, epoch=4, owned=(A,)) == CurrentMemberValue(4, 3, STABLE, {A: 2}, {})
    assert step(current, A, epoch=4, owned=()) == CurrentMemberValue(4, 3, STABLE, {A: 2}, {})
    assert step(current, A, epoch=4, owned=(B,)).state == UNREVOKED


def test_what_others_hold_is_waited_for() -> None:
    waiting = step(CurrentMemberValue(0), A, B, epoch=3, held=(B,))
    assert waiting == CurrentMemberValue(3, 0, UNRELEASED, {A: 3}, {})
    assert step(waiting, A, B, epoch=3, held=(B,)) is waiting
    assert step(waiting, A, B, epoch=3) == CurrentMemberValue(3, 3, STABLE, {A: 3, B: 3}, {})
    later = step(waiting, B, epoch=4, held=(B,), owned=())
    assert later == CurrentMemberValue(4, 3, UNRELEASED, {}, {})
