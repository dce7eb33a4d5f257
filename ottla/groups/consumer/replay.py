"""The effect of each record on a KIP-848 group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    CurrentMemberKey,
    RegularExpressionKey,
    TargetEpochKey,
    TargetMemberKey,
)

if TYPE_CHECKING:
    from ottla.groups.result import Result

EFFECTS: dict[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupKey: lambda group, key, value: group.replay_epoch(value),
    ConsumerMemberKey: lambda group, key, value: group.replay_member(key.member_id, value),
    TargetEpochKey: lambda group, key, value: group.replay_target_epoch(value),
    TargetMemberKey: lambda group, key, value: group.replay_target(key.member_id, value),
    CurrentMemberKey: lambda group, key, value: group.replay_current(key.member_id, value),
    RegularExpressionKey: lambda group, key, value: group.replay_pattern(key.pattern, value),
}
"""The effect of a record, by the type of the record's key."""


def replay_consumer(group: ConsumerGroup, key: Any, value: Any) -> bool:
    """Applies one record. Returns whether the group still exists: a tombstone of the group's epoch
    removes the group."""
    EFFECTS[type(key)](group, key, value)
    return value is not None or type(key) is not ConsumerGroupKey


def upgraded(group_id: str, result: Result) -> ConsumerGroup:
    """The KIP-848 group resulting from the records of this turn, before they are appended."""
    group = ConsumerGroup(group_id)
    for key, value in result.records:
        if type(key) in EFFECTS:
            replay_consumer(group, key, value)
    return group
