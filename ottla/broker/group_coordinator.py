"""Groups meet the log, the loop and the clock: `groups.runtime` over `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import logging
import struct
import uuid
from collections.abc import Iterable, Iterator

from ottla.broker.commits import when_committed
from ottla.broker.context import BrokerContext
from ottla.groups.cluster import Topic
from ottla.groups.record_codec import decode_record, encode_record
from ottla.groups.records import Record
from ottla.groups.routing import OFFSETS_TOPIC
from ottla.groups.runtime import Committed, Runtime
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import Shard
from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire import records as wire_records
from ottla.wire.errors import MalformedMessage, NotLeaderOrFollower, ProtocolError
from ottla.wire.records import ControlType

log = logging.getLogger("ottla.groups")

LOAD_BYTES = 1 << 20
"""Read between two breaths of the loop while groups load, which bounds how long clients wait."""


class ImageView:
    """What groups may know of the metadata (`groups.cluster.Cluster`)."""

    def __init__(self, image: MetadataImage, version: int) -> None:
        self.image, self.version = image, version

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        topic = self.image.topics.get(name)
        return None if topic is None else Topic(name, topic.topic_id, len(topic.partitions))

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id."""
        name = self.image.names.get(topic_id)
        return None if name is None else self.topic(name)

    def topic_names(self) -> Iterable[str]:
        """All topics, for regular expressions."""
        return self.image.topics

    def group_setting(self, group_id: str, name: str) -> int | None:
        """A setting of the `group` resource, where one is set."""
        value = self.image.config_of("group", group_id).get(name)
        return None if value is None else int(value)


class GroupCoordinator:
    """Loads the groups of the partitions that this broker leads, and keeps their timers."""

    def __init__(self, broker: BrokerContext, loop: asyncio.AbstractEventLoop) -> None:
        self.broker, self.loop = broker, loop
        self.view = ImageView(MetadataImage.empty(), 0)
        self.runtime = Runtime(
            settings_from(broker.config), broker.clock, self._append, lambda: str(uuid.uuid4()),
            self._wake, self.view,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._loads: dict[int, asyncio.Task[None]] = {}

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Load what this broker leads now, let go of what it does not, forget deleted topics."""
        if new.topics is old.topics:
            self.view.image = new
            return
        self.view = ImageView(new, self.view.version + 1)
        self.runtime.cluster = self.view
        topic = new.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self.runtime.partitions = len(topic.partitions)
        led = {
            index
            for index, state in enumerate(topic.partitions if topic else ())
            if state.leader == self.broker.node_id
        }
        for index in [index for index in self._loads if index not in led]:
            self._loads.pop(index).cancel()
            self.runtime.unload(index)
        for index in sorted(led - self._loads.keys()):
            shard = self.runtime.begin_load(index)
            self._loads[index] = self.loop.create_task(self._load(shard))
        deleted = frozenset(old.topics.keys() - new.topics.keys())
        if deleted:
            self.runtime.change_all(lambda shard, result: shard.forget_topics(deleted, result))

    def close(self) -> None:
        """Stop every timer and every load."""
        for task in self._loads.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _partition(self, index: int) -> Partition:
        partition = self.broker.replicas.partition(OFFSETS_TOPIC, index)
        if partition is None:
            raise NotLeaderOrFollower(f"{OFFSETS_TOPIC}-{index} is not here")
        return partition

    def _append(
        self, index: int, records: list[Record], producer_id: int, committed: Committed
    ) -> None:
        partition = self._partition(index)
        partition.require_leader()
        now_ms = self.broker.clock.now_ms()
        batch = wire_records.build_batch(
            wire_records.Record(timestamp=now_ms, key=key, value=value)
            for key, value in map(encode_record, records)
        )
        partition.append_bytes(batch, True)
        if partition.wants_flush():
            self.broker.flusher.want(partition)
        when_committed(partition, committed)

    async def _load(self, shard: Shard) -> None:
        index = shard.partition
        try:
            partition = self._partition(index)
            await self._read(partition, shard)
            self.runtime.adopt(shard)
        except (ProtocolError, MalformedMessage, OSError) as error:
            log.error("%s-%d could not be read, its groups stay away: %s",
                      OFFSETS_TOPIC, index, error)

    async def _read(self, partition: Partition, shard: Shard) -> None:
        plog = partition.log
        offset = plog.log_start_offset
        while offset < plog.log_end_offset:
            data = plog.read_bytes(offset, LOAD_BYTES)
            if not data:
                break
            for batch, next_offset in batches_of(data):
                replay_batch(batch, shard)
                offset = next_offset
            await asyncio.sleep(0)

    def _wake(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(at_ms / 1000 - self.broker.clock.monotonic(), 0.0)
        # Rounded up: a timer that fires too early would only set itself again.
        self._timer = self.loop.call_later(delay + 0.001, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.runtime.fire()


def settings_from(config: object) -> GroupSettings:
    """The settings of the same names that the broker has; Kafka's defaults for the others."""
    names = GroupSettings.__dataclass_fields__
    return GroupSettings(**{n: getattr(config, n) for n in names if hasattr(config, n)})


# A batch in the log: base_offset i64 | length i32 of what follows | ... attributes i16 at 21 |
# last_offset_delta i32 at 23 | ... producer_id i64 at 43
_HEADER = struct.Struct(">qi")
_ATTRIBUTES = struct.Struct(">hi")
_PRODUCER = struct.Struct(">qh")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def batches_of(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Whole batches with the offset that follows each; a batch that is cut off is left out."""
    at = 0
    while at + 61 <= len(data):
        base_offset, length = _HEADER.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data):
            return
        _, last_delta = _ATTRIBUTES.unpack_from(data, at + 21)
        yield data[at:end], base_offset + last_delta + 1
        at = end


def replay_batch(batch: bytes, shard: Shard) -> None:
    """Take a batch of `__consumer_offsets` into a shard."""
    attributes, _ = _ATTRIBUTES.unpack_from(batch, 21)
    producer_id, _ = _PRODUCER.unpack_from(batch, 43)
    for record in wire_records.read_records(batch):
        if attributes & _CONTROL:
            kind = wire_records.control_type(record)
            shard.offsets.end_transaction(producer_id, kind is ControlType.COMMIT)
            continue
        decoded = decode_record(record.key or b"", record.value)
        if decoded is not None:
            shard.replay(decoded, producer_id if attributes & _TRANSACTIONAL else -1)
