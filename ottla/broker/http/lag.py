"""The lag of a group: in records, in bytes, and in seconds.

Bytes are the size of the batches on disk from the committed offset on. Seconds are the age of the
batch that the group would read next. Its header is read once and cached until the group commits
again; a group has just read the pages around it, so the read seldom needs a disk seek.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ProtocolError

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.groups.shard import Shard
    from ottla.log.segment import Segment
    from ottla.replication.partition import Partition

# | base offset 8 | length 4 | epoch 4 | magic 1 | crc 4 | attributes 2 | delta 4 | first time 8 |
TIME_AT, MAGIC_AT, HEAD_SIZE = 27, 16, 35
Key = tuple[str, str, int]


class Lag(NamedTuple):
    """A group's lag in one partition; `seconds` is None if no timestamp is known."""

    topic: str
    partition: int
    committed: int
    records: int
    size: int
    seconds: float | None


class Place(NamedTuple):
    """The place of an offset's record: segment, position in it, its batch's time in ms or -1."""

    offset: int
    segment: Segment
    position: int
    timestamp: int


class Lags:
    """The lags of all groups. Places are cached from one round to the next."""

    def __init__(self, broker: BrokerContext) -> None:
        self.broker = broker
        self._places: dict[Key, Place] = {}
        self._before: dict[Key, Place] = {}

    def begin(self) -> None:
        """Start a new round: places that the previous round did not use are dropped."""
        self._before, self._places = self._places, {}

    def of_group(self, shard: Shard, group_id: str) -> Iterator[Lag]:
        """The lag of each partition with an offset committed by the group, sorted."""
        for (topic, index), committed in sorted(shard.offsets.of_group(group_id).items()):
            partition = self.broker.replicas.partition(topic, index)
            if partition is not None:
                yield self._lag(partition, (group_id, topic, index), committed.offset)

    def _lag(self, partition: Partition, key: Key, committed: int) -> Lag:
        records = max(0, partition.high_watermark - committed)
        if not records:
            return Lag(key[1], key[2], committed, 0, 0, 0.0)
        place = self._place(partition, key, committed)
        if place is None:
            return Lag(key[1], key[2], committed, records, 0, None)
        after = sum(
            segment.size for segment in partition.log.segments
            if segment.base_offset > place.segment.base_offset
        )
        size = max(0, place.segment.size - place.position + after)
        age = (self.broker.clock.now_ms() - place.timestamp) / 1000
        return Lag(
            key[1], key[2], committed, records, size,
            None if place.timestamp < 0 else max(0.0, age),
        )

    def _place(self, partition: Partition, key: Key, committed: int) -> Place | None:
        segments = partition.log.segments
        offset = max(committed, partition.log.log_start_offset)
        place = self._places.get(key) or self._before.get(key)
        if place is None or place.offset != offset or place.segment not in segments:
            place = _look_up(partition, segments, offset)
        if place is not None:
            self._places[key] = place
        return place


def _look_up(partition: Partition, segments: list[Segment], offset: int) -> Place | None:
    """The place of the next batch; None for a partition that cannot be read now."""
    try:
        found = partition.log.slice(offset, HEAD_SIZE)
        head = found.file.pread(HEAD_SIZE, found.position)
    except (OSError, ProtocolError):
        return None
    if len(head) < HEAD_SIZE:
        return None
    time = -1
    if head[MAGIC_AT] >= 2:
        time = int.from_bytes(head[TIME_AT:HEAD_SIZE], "big", signed=True)
    at = bisect_right(segments, found.first_offset, key=lambda each: each.base_offset) - 1
    return Place(offset, segments[max(at, 0)], found.position, time)
