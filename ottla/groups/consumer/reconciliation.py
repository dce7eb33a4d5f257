"""Moves a KIP-848 member from the partitions that it owns to its target, heartbeat by heartbeat.

                        gives up partitions that are not in the target
      Stable ------------------> UnrevokedPartitions
        ^  ^                            |  the client no longer reports them
        |  +----------------------------+
        |                               v
        +---------------------- UnreleasedPartitions: other members still hold part of its target

A member that has nothing to give up skips UnrevokedPartitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.groups.records import CurrentMemberValue, MemberState, TopicPartition

Owned = frozenset[TopicPartition] | None
"""The partitions that a heartbeat reports as owned; None if it reports nothing about them."""


def reconcile(
    current: CurrentMemberValue,
    target: frozenset[TopicPartition],
    target_epoch: int,
    owned: Owned,
    is_held: Callable[[TopicPartition], bool],
) -> CurrentMemberValue:
    """The member's next state; `current` itself if nothing changes.

    `is_held` returns whether another member owns a partition or has yet to give it up.
    """
    if current.state == MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state == MemberState.UNREVOKED_PARTITIONS and _still_owns(
        owned, current.revoking
    ):
        return current
    return _next(current, target, target_epoch, owned, is_held)


def _still_owns(owned: Owned, partitions: Iterable[TopicPartition]) -> bool:
    return owned is None or any(partition in owned for partition in partitions)


def _next(
    current: CurrentMemberValue,
    target: frozenset[TopicPartition],
    target_epoch: int,
    owned: Owned,
    is_held: Callable[[TopicPartition], bool],
) -> CurrentMemberValue:
    kept = {p: epoch for p, epoch in current.assigned.items() if p in target}
    lost = {p: epoch for p, epoch in current.assigned.items() if p not in target}
    if lost and _still_owns(owned, lost):
        # The member epoch stays: the member may commit with it until the partitions are revoked.
        return _changed(
            current, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, lost
        )
    wanted = [p for p in target if p not in kept]
    free = {p: target_epoch for p in wanted if not is_held(p)}
    state = (
        MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS
    )
    return _changed(current, target_epoch, state, {**kept, **free}, {})


def _changed(
    current: CurrentMemberValue,
    epoch: int,
    state: int,
    assigned: dict[TopicPartition, int],
    revoking: dict[TopicPartition, int],
) -> CurrentMemberValue:
    assert epoch >= current.epoch, "the member's epoch would fall"
    assert assigned.keys().isdisjoint(revoking), "a partition is both kept and revoked"
    changed = CurrentMemberValue(epoch, current.epoch, state, assigned, revoking)
    if (
        epoch == current.epoch
        and state == current.state
        and assigned == current.assigned
        and revoking == current.revoking
    ):
        return current
    return changed
