"""The consumers' embedded protocol: the contents of JoinGroup's metadata and SyncGroup's
assignment.

Brokers read these contents only if the protocol type is `consumer`. They need them to know which
topics a group reads (KIP-211, OffsetDelete), and to let classic and KIP-848 members share a group.

    subscription   | version i16 | topics [string] | user data bytes?              v0+
                   | owned [topic string, partitions [i32]]                        v1+
                   | generation i32                                                v2+
                   | rack string?                                                  v3+
    assignment     | version i16 | partitions [topic string, [i32]] | user data bytes?
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer's subscription, and the partitions that it owned in `generation`."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    generation: int = -1
    rack_id: str | None = None


class _Reader:
    """Reads big-endian fields. Raises struct.error or ValueError for missing or wrong bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def take(self, length: int) -> bytes:
        if length < 0 or length > len(self.data) - self.at:
            raise ValueError(
                f"{length} bytes are declared, but only {len(self.data) - self.at} bytes remain"
            )
        self.at += length
        return self.data[self.at - length : self.at]

    def string(self) -> str:
        return self.take(self.number(">h")).decode()

    def count(self, smallest: int) -> int:
        count = self.number(">i")
        if count * smallest > len(self.data) - self.at:
            raise ValueError(
                f"{count} elements are declared, but do not fit into the remaining"
                f" {len(self.data) - self.at} bytes")
        return max(count, 0)

    def nullable_bytes(self) -> bytes | None:
        length = self.number(">i")
        return None if length < 0 else self.take(length)

    def partitions(self) -> dict[str, tuple[int, ...]]:
        return {
            self.string(): tuple(self.number(">i") for _ in range(self.count(4)))
            for _ in range(self.count(6))
        }


def read_subscription(data: bytes) -> Subscription | None:
    """A consumer's metadata, or None if the bytes are something else."""
    reader = _Reader(data)
    try:
        version = reader.number(">h")
        if version < 0:
            return None
        topics = tuple(reader.string() for _ in range(reader.count(2)))
        user_data = reader.nullable_bytes()
        owned = reader.partitions() if version >= 1 else {}
        generation = reader.number(">i") if version >= 2 else -1
        rack_id = None
        if version >= 3:
            length = reader.number(">h")
            rack_id = None if length < 0 else reader.take(length).decode()
        return Subscription(topics, user_data, owned, generation, rack_id)
    except (struct.error, ValueError):
        return None


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All subscribed topics, or None if one subscription cannot be parsed."""
    topics: set[str] = set()
    for data in subscriptions:
        subscription = read_subscription(data)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; empty without an assignment or if the bytes are something else."""
    reader = _Reader(data)
    try:
        return reader.partitions() if reader.number(">h") >= 0 else {}
    except (struct.error, ValueError):
        return {}


def has_user_data(data: bytes) -> bool:
    """Whether an assignor added user data after the partitions of an assignment."""
    reader = _Reader(data)
    try:
        if reader.number(">h") < 0:
            return False
        reader.partitions()
        return bool(reader.nullable_bytes())
    except (struct.error, ValueError):
        return False


def write_assignment(partitions: Mapping[str, Iterable[int]], version: int = 0) -> bytes:
    """An assignment as the client's assignor would have written it, without user data."""
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic in sorted(partitions):
        name, indexes = topic.encode(), sorted(partitions[topic])
        parts.append(struct.pack(f">h{len(name)}si", len(name), name, len(indexes)))
        parts.append(struct.pack(f">{len(indexes)}i", *indexes))
    parts.append(struct.pack(">i", -1))
    return b"".join(parts)


def write_subscription(subscription: Subscription, version: int) -> bytes:
    """A consumer's metadata, as a client of that version would send it."""
    parts = [struct.pack(">hi", version, len(subscription.topics))]
    for topic in subscription.topics:
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}s", len(name), name))
    data = subscription.user_data
    parts.append(struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data)
    if version >= 1:
        owned = write_assignment(subscription.owned)
        parts.append(owned[2:-4])
    if version >= 2:
        parts.append(struct.pack(">i", subscription.generation))
    if version >= 3:
        rack = subscription.rack_id
        parts.append(
            struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode()
        )
    return b"".join(parts)
