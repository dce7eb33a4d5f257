"""A KIP-848 group: every change of it is a record, and `replay` applies the records.

    group epoch     grows with every change of members, subscriptions or topics
    target epoch    the group epoch of the last assignment
    member epoch    the target epoch that a member has reached; it fences commits and heartbeats

A member first gives up the partitions that are not in its target (UnrevokedPartitions). Then it
moves to the target epoch and takes the partitions that are free. It waits for the partitions that
other members still hold (UnreleasedPartitions).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.groups.errors import UnknownMember
from ottla.groups.records import (
    CommittedOffset,
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
    TopicPartition,
)
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.groups.cluster_view import Topic
    from ottla.groups.result import Answer

LEFT_FOR_NOW = -2
"""The epoch of a static member that has left and may come back under its instance id."""


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """One member; `value` and `current` are replaced as a whole, by replay only."""

    member_id: str
    value: ConsumerMemberValue
    current: CurrentMemberValue = field(default_factory=lambda: CurrentMemberValue(0))
    deadline_ms: int = 0
    """Until this monotonic time in ms (`ShardRuntime.tick_ms`), the session does not end. A
    heartbeat without changes moves only this deadline, not the session timer. If the timer fires
    before the deadline, it is set again."""
    rejoin_asked: bool = False
    """Whether a classic member was asked to join again and has not done so yet."""

    @property
    def epoch(self) -> int:
        """The member epoch, or the generation of a member that uses the classic protocol."""
        return self.current.epoch

    def is_reconciled(self, epoch: int) -> bool:
        """Whether the member owns exactly its target of that epoch."""
        return self.current.state == MemberState.STABLE and self.current.epoch == epoch


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """The state of one group."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    """The member that owns each partition or has yet to give it up."""
    static_members: dict[str, str] = field(default_factory=dict)
    patterns: dict[str, RegularExpressionValue] = field(default_factory=dict)
    early: dict[str, CurrentMemberValue] = field(default_factory=dict)
    """The assignments of members whose descriptions come later in the log. If a description was
    recorded again after the assignment, compaction keeps only the later description."""
    seen_version: int = -1
    """The version of the cluster's metadata that the group's topics were last read from."""
    resolved: dict[str, int] = field(default_factory=dict)
    """The metadata version with which each pattern was last resolved. With ACLs, a pattern
    matches only topics that the subscribing member may see. So the pattern is resolved only during
    the heartbeat of a member that subscribes to it."""
    type_name = "consumer"
    protocol_type = "consumer"
    tells_topics = True

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether the coordinator may delete the group once the group has no offsets."""
        return not self.members

    @property
    def state_name(self) -> str:
        """The state in ListGroups and ConsumerGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def summary(self) -> str:
        """State, epoch and size, for the log."""
        return f"{self.state_name}, epoch {self.epoch}, {counted(len(self.members), 'member')}"

    def expiry_base_ms(self, value: CommittedOffset) -> int | None:
        """The Unix time at which an offset's retention begins."""
        return value.commit_ms

    def take_answers(self) -> list[Answer]:
        """Always empty: no request waits for other members."""
        return []

    def member(self, member_id: str) -> ConsumerMember:
        """The member. Raises UnknownMember."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.group_id} has no member {member_id!r}")
        return member

    def topics_of(self, value: ConsumerMemberValue) -> frozenset[str]:
        """The topics that a member subscribes to, by name or by pattern."""
        if value.pattern and (resolved := self.patterns.get(value.pattern)) is not None:
            return value.topics | resolved.topics
        return value.topics

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return any(topic in self.topics_of(member.value) for member in self.members.values())

    def assigned(self, member: ConsumerMember) -> frozenset[TopicPartition]:
        """A member's target."""
        return self.targets.get(member.member_id, frozenset())

    def tombstones_of(self, member_id: str) -> list[Record]:
        """Records that remove a member."""
        return [
            Record(CurrentMemberKey(self.group_id, member_id), None),
            Record(TargetMemberKey(self.group_id, member_id), None),
            Record(ConsumerMemberKey(self.group_id, member_id), None),
        ]

    def tombstones(self) -> list[Record]:
        """Records that remove the group."""
        records = [
            record for member_id in self.members for record in self.tombstones_of(member_id)
        ]
        records += [
            Record(RegularExpressionKey(self.group_id, pattern), None) for pattern in self.patterns
        ]
        records.append(Record(TargetEpochKey(self.group_id), None))
        records.append(Record(ConsumerGroupKey(self.group_id), None))
        return records

    def has_seen(self, version: int, pattern: str | None) -> bool:
        """Whether the group, and a member's pattern, were evaluated with this version of the
        cluster's metadata."""
        return self.seen_version == version and (
            not pattern or self.resolved.get(pattern) == version
        )

    # Replay

    def replay_epoch(self, value: ConsumerGroupValue | None) -> None:
        """Apply the group epoch. A value of None has no effect here: `replay_consumer` reports
        that the group is removed."""
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def replay_target_epoch(self, value: TargetEpochValue | None) -> None:
        """Apply the epoch of the target assignment."""
        self.target_epoch = 0 if value is None else value.epoch
        self.target_ms = 0 if value is None else value.assigned_ms

    def replay_target(self, member_id: str, value: TargetMemberValue | None) -> None:
        """Apply a member's target; None removes it."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value.partitions

    def replay_member(self, member_id: str, value: ConsumerMemberValue | None) -> None:
        """Apply a member's description; None removes the member."""
        member = self.members.get(member_id)
        early = self.early.pop(member_id, None)
        if value is None:
            if member is not None:
                self._release(member)
                del self.members[member_id]
                instance_id = member.value.instance_id
                if instance_id is not None and self.static_members.get(instance_id) == member_id:
                    del self.static_members[instance_id]
            return
        if member is None:
            self.members[member_id] = ConsumerMember(member_id, value)
            self.replay_current(member_id, early)
        else:
            member.value = value
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def replay_current(self, member_id: str, value: CurrentMemberValue | None) -> None:
        """Apply the partitions that a member owns."""
        member = self.members.get(member_id)
        if member is None:
            if value is not None:
                self.early[member_id] = value
            else:
                self.early.pop(member_id, None)
            return
        self._release(member)
        member.current = value or CurrentMemberValue(0)
        for partition in (*member.current.assigned, *member.current.revoking):
            self.owners[partition] = member_id

    def replay_pattern(self, pattern: str, value: RegularExpressionValue | None) -> None:
        """Apply the topics that match a regular expression; None removes the expression."""
        if value is None:
            self.patterns.pop(pattern, None)
            self.resolved.pop(pattern, None)
        else:
            self.patterns[pattern] = value

    def _release(self, member: ConsumerMember) -> None:
        for partition in (*member.current.assigned, *member.current.revoking):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


def hash_of(topics: Mapping[str, Topic]) -> int:
    """64 bits that change whenever a topic is created, deleted, recreated or gets partitions."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(topics):
        topic = topics[name]
        digest.update(topic.topic_id + topic.partitions.to_bytes(4, "big") + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True) if topics else 0
