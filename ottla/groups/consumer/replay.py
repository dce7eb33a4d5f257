"""The effect of each record on a KIP-848 group."""

from __future__ import annotations

from typing import Any

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    CurrentMemberKey,
    GroupKey,
    Key,
    OffsetKey,
    RegularExpressionKey,
    TargetEpochKey,
    TargetMemberKey,
)
from ottla.groups.result import Result


def replay_consumer(
    groups: dict[str, ClassicGroup | ConsumerGroup], key: Key, value: Any
) -> None:
    """Applies one record; the group is created by its first and removed with its epoch."""
    group_id = key.group_id
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return  # a tombstone of a group that no longer exists
        group = groups[group_id] = ConsumerGroup(group_id)
    if isinstance(key, ConsumerGroupKey):
        if value is None:
            del groups[group_id]
        else:
            group.replay_epoch(value)
    elif isinstance(key, ConsumerMemberKey):
        group.replay_member(key.member_id, value)
    elif isinstance(key, TargetEpochKey):
        group.replay_target_epoch(value)
    elif isinstance(key, TargetMemberKey):
        group.replay_target(key.member_id, value)
    elif isinstance(key, CurrentMemberKey):
        group.replay_current(key.member_id, value)
    elif isinstance(key, RegularExpressionKey):
        group.replay_pattern(key.pattern, value)


def upgraded(group_id: str, result: Result) -> ConsumerGroup:
    """The KIP-848 group resulting from the records of this turn, before they are appended."""
    groups: dict[str, ClassicGroup | ConsumerGroup] = {}
    for key, value in result.records:
        if not isinstance(key, GroupKey | OffsetKey):
            replay_consumer(groups, key, value)
    group = groups[group_id]
    assert isinstance(group, ConsumerGroup)
    return group
