"""The bytes of `__consumer_offsets`: Kafka's own formats, so that its tools can read them.

    key     | type i16    | fields of a key of this type |
    value   | version i16 | fields of the value          |

The files `ottla/wire/schema/records/*.txt` list the fields. A null value removes the key.

The key begins with its type, which Kafka once called its version. 0 and 1 are for offsets, 2 is for
classic groups, 3 to 8 and 16 are for KIP-848 groups. This broker skips types that it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ottla.groups.records import (
    ClassicMemberValue,
    ClassicProtocols,
    CommittedOffset,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    Record,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    TopicPartition,
)
from ottla.groups.routing import CACHED_CHARS_MAX
from ottla.groups.topic_indexes import indexes_by_topic
from ottla.wire import messages as wire
from ottla.wire.errors import MalformedMessage

Encoded = tuple[bytes, bytes | None]
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_NO_ID = bytes(16)
# An offset's value in version 4: | version i16 | offset i64 | leader epoch i32 | length of the
# metadata + 1 | metadata | commit time i64 | one tagged field: number 0, 16 bytes, the topic's id |
_V4 = struct.Struct(">hqiB")
_V4_END = struct.Struct(">qBBB")


def encode_record(record: Record) -> Encoded:
    """A record's key and value as bytes."""
    key, value = record
    if isinstance(key, OffsetKey):
        return _encode_offset_key(key), None if value is None else _encode_offset(value)
    kind = _KINDS[type(key)]
    return (
        _I16.pack(kind.number) + kind.encode_key(key),
        None if value is None else kind.encode_value(value),
    )


def _encode_offset_key(key: OffsetKey) -> bytes:
    """The most common key, encoded by hand: type, length of the group id, group id, length of the
    topic's name, topic's name, partition."""
    group_id, topic, partition = key
    if len(group_id) > CACHED_CHARS_MAX:
        return _offset_key_start.__wrapped__(group_id, topic) + _I32.pack(partition)
    return _offset_key_start(group_id, topic) + _I32.pack(partition)


@lru_cache(maxsize=1 << 12)
def _offset_key_start(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return struct.pack(f">hh{len(group)}sh{len(name)}s", 1, len(group), group, len(name), name)


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """The record of these bytes; None for an unknown type.

    Raises MalformedMessage for bytes that are cut off.
    """
    if len(key) < 2:
        raise MalformedMessage("a key of __consumer_offsets is shorter than its two-byte type")
    kind = _NUMBERS.get(_I16.unpack_from(key)[0])
    if kind is None:
        return None
    if value is None:
        return Record(kind.decode_key(key[2:]), None)
    if len(value) < 2:
        raise MalformedMessage("a value of __consumer_offsets is shorter than its two-byte version")
    version = _I16.unpack_from(value)[0]
    return Record(kind.decode_key(key[2:]), kind.decode_value(value[2:], version))


class _Kind:
    """One type of record: its number, the classes of its keys, and the conversions."""

    def __init__(
        self,
        number: int,
        key: type[Any],
        wire_key: type[Any],
        encode_value: Callable[[Any], bytes],
        decode_value: Callable[[bytes, int], Any],
        fields: tuple[str, ...] = ("group_id", "member_id"),
    ) -> None:
        self.number, self.key, self.wire_key = number, key, wire_key
        self.encode_value, self.decode_value = encode_value, decode_value
        self.fields = fields

    def encode_key(self, key: Key) -> bytes:
        encoded: bytes = self.wire_key(**dict(zip(self.fields, key, strict=True))).encode(0)
        return encoded

    def decode_key(self, data: bytes) -> Key:
        decoded = self.wire_key.decode(data, 0)
        made: Key = self.key(*(getattr(decoded, field) for field in self.fields))
        return made


def _encode_offset(value: CommittedOffset) -> bytes:
    # The most common record by far, hence packed by hand; tests compare it with the schema.
    metadata = value.metadata.encode()
    if value.expire_ms < 0 and value.topic_id != _NO_ID and len(metadata) < 127:
        return (
            _V4.pack(4, value.offset, value.leader_epoch, len(metadata) + 1)
            + metadata
            + _V4_END.pack(value.commit_ms, 1, 0, 16)
            + value.topic_id
        )
    # Kafka writes version 1 if a client requested its own retention (which later versions cannot
    # express), 4 if the topic's id is known, 3 otherwise.
    version = 1 if value.expire_ms >= 0 else 4 if value.topic_id != _NO_ID else 3
    message = wire.OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_ms,
        expire_timestamp=value.expire_ms,
        topic_id=value.topic_id,
    )
    return _I16.pack(version) + message.encode(version)


def _decode_offset(data: bytes, version: int) -> CommittedOffset:
    value = wire.OffsetCommitValue.decode(data, version)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _encode_group(value: GroupValue) -> bytes:
    message = wire.GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=value.state_ms,
        members=[
            wire.GroupMetadataValue.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ],
    )
    return b"\0\3" + message.encode(3)


def _decode_group(data: bytes, version: int) -> GroupValue:
    value = wire.GroupMetadataValue.decode(data, version)
    return GroupValue(
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        tuple(
            ClassicMemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )


def _encode_epoch(value: ConsumerGroupValue) -> bytes:
    message = wire.ConsumerGroupMetadataValue(
        epoch=value.epoch, metadata_hash=value.metadata_hash
    )
    return b"\0\0" + message.encode(0)


def _decode_epoch(data: bytes, version: int) -> ConsumerGroupValue:
    value = wire.ConsumerGroupMetadataValue.decode(data, version)
    return ConsumerGroupValue(value.epoch, value.metadata_hash)


def _encode_member(value: ConsumerMemberValue) -> bytes:
    made = wire.ConsumerGroupMemberMetadataValue
    classic = value.classic
    message = made(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=sorted(value.topics),
        subscribed_topic_regex=value.pattern,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.assignor,
        classic_member_metadata=None
        if classic is None
        else made.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                made.ClassicMemberMetadata.SupportedProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    return b"\0\0" + message.encode(0)


def _decode_member(data: bytes, version: int) -> ConsumerMemberValue:
    value = wire.ConsumerGroupMemberMetadataValue.decode(data, version)
    classic = value.classic_member_metadata
    return ConsumerMemberValue(
        value.client_id,
        value.client_host,
        value.instance_id,
        value.rack_id,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex,
        value.rebalance_timeout_ms,
        value.server_assignor,
        None
        if classic is None
        else ClassicProtocols(
            classic.session_timeout_ms,
            tuple((each.name, each.metadata) for each in classic.supported_protocols),
        ),
    )


def _encode_target_epoch(value: TargetEpochValue) -> bytes:
    message = wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=value.epoch, assignment_timestamp=value.assigned_ms
    )
    return b"\0\0" + message.encode(0)


def _decode_target_epoch(data: bytes, version: int) -> TargetEpochValue:
    value = wire.ConsumerGroupTargetAssignmentMetadataValue.decode(data, version)
    return TargetEpochValue(value.assignment_epoch, value.assignment_timestamp)


def _encode_target(value: TargetMemberValue) -> bytes:
    made = wire.ConsumerGroupTargetAssignmentMemberValue
    message = made(
        topic_partitions=[
            made.TopicPartition(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in indexes_by_topic(value.partitions).items()
        ]
    )
    return b"\0\0" + message.encode(0)


def _decode_target(data: bytes, version: int) -> TargetMemberValue:
    value = wire.ConsumerGroupTargetAssignmentMemberValue.decode(data, version)
    return TargetMemberValue(
        frozenset((topic.topic_id, p) for topic in value.topic_partitions for p in topic.partitions)
    )


def _owned(partitions: Mapping[TopicPartition, int]) -> list[Any]:
    made = wire.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        made(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[partitions[topic_id, index] for index in indexes],
        )
        for topic_id, indexes in indexes_by_topic(partitions).items()
    ]


def _encode_current(value: CurrentMemberValue) -> bytes:
    message = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=value.epoch,
        previous_member_epoch=value.previous_epoch,
        state=value.state,
        assigned_partitions=_owned(value.assigned),
        partitions_pending_revocation=_owned(value.revoking),
    )
    return b"\0\0" + message.encode(0)


def _decode_current(data: bytes, version: int) -> CurrentMemberValue:
    value = wire.ConsumerGroupCurrentMemberAssignmentValue.decode(data, version)

    def owned(topics: Any) -> dict[TopicPartition, int]:
        # Kafka before 4.3 wrote no assignment epochs: use the member's newest epoch.
        return {
            (topic.topic_id, partition): epoch
            for topic in topics
            for partition, epoch in zip(
                topic.partitions,
                topic.assignment_epochs or [value.member_epoch] * len(topic.partitions),
                strict=True,
            )
        }

    return CurrentMemberValue(
        value.member_epoch,
        value.previous_member_epoch,
        value.state,
        owned(value.assigned_partitions),
        owned(value.partitions_pending_revocation),
    )


def _encode_pattern(value: RegularExpressionValue) -> bytes:
    message = wire.ConsumerGroupRegularExpressionValue(
        topics=sorted(value.topics), version=value.version, timestamp=value.resolved_ms
    )
    return b"\0\0" + message.encode(0)


def _decode_pattern(data: bytes, version: int) -> RegularExpressionValue:
    value = wire.ConsumerGroupRegularExpressionValue.decode(data, version)
    return RegularExpressionValue(frozenset(value.topics), value.version, value.timestamp)


_OFFSET = ("group", "topic", "partition")
_GROUP = ("group_id",)
_WRITTEN = (
    _Kind(1, OffsetKey, wire.OffsetCommitKey, _encode_offset, _decode_offset, _OFFSET),
    _Kind(2, GroupKey, wire.GroupMetadataKey, _encode_group, _decode_group, ("group",)),
    _Kind(3, ConsumerGroupKey, wire.ConsumerGroupMetadataKey, _encode_epoch, _decode_epoch, _GROUP),
    _Kind(
        5, ConsumerMemberKey, wire.ConsumerGroupMemberMetadataKey,
        _encode_member, _decode_member,
    ),
    _Kind(
        6, TargetEpochKey, wire.ConsumerGroupTargetAssignmentMetadataKey,
        _encode_target_epoch, _decode_target_epoch, _GROUP,
    ),
    _Kind(
        7, TargetMemberKey, wire.ConsumerGroupTargetAssignmentMemberKey,
        _encode_target, _decode_target,
    ),
    _Kind(
        8, CurrentMemberKey, wire.ConsumerGroupCurrentMemberAssignmentKey,
        _encode_current, _decode_current,
    ),
    _Kind(
        16, RegularExpressionKey, wire.ConsumerGroupRegularExpressionKey,
        _encode_pattern, _decode_pattern, ("group_id", "regular_expression"),
    ),
)
_LEGACY = _Kind(0, OffsetKey, wire.OffsetCommitKey, _encode_offset, _decode_offset, _OFFSET)
_KINDS = {kind.key: kind for kind in _WRITTEN}
_NUMBERS = {kind.number: kind for kind in (_LEGACY, *_WRITTEN)}
