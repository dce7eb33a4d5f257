"""The contents of `__consumer_offsets`: keys, and the latest value of each key.

A record without a value removes its key. Replaying all records of a partition in order, also after
compaction, gives the state of its groups. `record_codec` converts records to bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TopicPartition = tuple[bytes, int]
"""A topic's id and a partition's index."""


class OffsetKey(NamedTuple):
    """One partition's committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A classic group."""

    group_id: str


class ConsumerGroupKey(NamedTuple):
    """A KIP-848 group: its epoch."""

    group_id: str


class ConsumerMemberKey(NamedTuple):
    """A KIP-848 member's description of itself."""

    group_id: str
    member_id: str


class TargetEpochKey(NamedTuple):
    """The group epoch for which the target assignment was made."""

    group_id: str


class TargetMemberKey(NamedTuple):
    """A member's target assignment."""

    group_id: str
    member_id: str


class CurrentMemberKey(NamedTuple):
    """The partitions that a member owns now."""

    group_id: str
    member_id: str


class RegularExpressionKey(NamedTuple):
    """The topics that match a regular expression."""

    group_id: str
    pattern: str


Key = (
    OffsetKey
    | GroupKey
    | ConsumerGroupKey
    | ConsumerMemberKey
    | TargetEpochKey
    | TargetMemberKey
    | CurrentMemberKey
    | RegularExpressionKey
)


class CommittedOffset(NamedTuple):
    """Where a group continues to read a partition. There are many of these, so it is a tuple,
    which takes less memory than a dataclass."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1
    """Unix time at which the offset expires, if an OffsetCommit below version 5 has set it. If -1,
    offsets.retention.minutes applies."""
    topic_id: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class ClassicMemberValue:
    """A member as it is when its group becomes stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


CONVERTED = -2
"""The value of `state_ms` in the record that converts a KIP-848 group to a classic group. A
coordinator that loads this record makes the members join again. (The value -1 means that the record
has no time: Kafka before 2.1 did not write one.)"""


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A generation of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    """Unix time of the last change of state; the retention of an empty group's offsets counts from
    this time. CONVERTED in the record that converts a KIP-848 group."""
    members: tuple[ClassicMemberValue, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupValue:
    """The epoch grows with every change of members, subscriptions or topics."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """How a member that uses the classic protocol joined a KIP-848 group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberValue:
    """A member's description of itself, from its heartbeats."""

    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    """The epoch and time of the target assignment."""

    epoch: int
    assigned_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetMemberValue:
    """The partitions that the assignor gave to a member."""

    partitions: frozenset[TopicPartition] = frozenset()


class MemberState:
    """The progress of a member from what it owns to its target; Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class CurrentMemberValue:
    """What a member owns, what it still has to give up, and the epochs that fence it."""

    epoch: int
    previous_epoch: int = -1
    state: int = MemberState.STABLE
    assigned: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions with the member epoch at which each was assigned (KIP-1251)."""
    revoking: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegularExpressionValue:
    """The topics that a pattern matched, and the metadata version and Unix time of the match."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


class Producer(NamedTuple):
    """The producer of a transaction: a producer id and its epoch; -1 for none."""

    producer_id: int = -1
    epoch: int = -1


NO_PRODUCER = Producer()


class Marker(NamedTuple):
    """A marker in the log, which ends a producer's transaction."""

    producer_id: int
    committed: bool


class Record(NamedTuple):
    """A key with its new value, or with None to remove it."""

    key: Key
    value: Any
