"""Connects state machines to the log, the event loop and the clock: runs a `ShardRuntime` over an
internal topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.broker.coordination.commits import when_committed
from ottla.broker.threads.slices import Slices
from ottla.groups.records import Producer
from ottla.groups.shard_runtime import AnyShard, Committed, ShardRuntime
from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire import records as wire_records
from ottla.wire.batch import BatchView, batches
from ottla.wire.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    MalformedMessage,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
)
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.broker.coordination.coordinator_parts import CoordinatorParts
    from ottla.broker.threads.flusher import Flusher

log = logging.getLogger("ottla.groups")

LOAD_BYTES = 1 << 17
"""How many bytes are read at once while shards load; they are replayed in slices."""

RELOAD_SECONDS = 5.0
"""The time between two attempts to load a shard whose log cannot be read."""

LATE_SECONDS = 1.0
"""If a timer fires this late, the process was paused: clients may be alive, although their
sessions seem to have ended."""

S = TypeVar("S", bound=AnyShard)
Encode = Callable[[Any], tuple[bytes, bytes | None]]


class LogCoordinator(Generic[S]):
    """Loads the shards of the partitions that this broker leads, and runs their timers: the
    runtime's `ShardHost`.

    A subclass sets `runtime` and defines how a shard is created and how it replays batches.
    """

    runtime: ShardRuntime[S]

    def __init__(
        self, parts: CoordinatorParts, loop: asyncio.AbstractEventLoop, topic: str, encode: Encode
    ) -> None:
        self.node_id, self.clock, self.replicas = parts.node_id, parts.clock, parts.replicas
        self.flusher, self.workers, self.doubted = parts.flusher, parts.workers, parts.doubted
        self.loop, self.topic, self.encode = loop, topic, encode
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._waited = False
        self.loads: dict[int, asyncio.Task[None]] = {}
        self._epochs: dict[int, int] = {}
        """The leader epoch in which each partition is coordinated: each epoch has its own shard."""
        self._topic_id = b""
        """The id of the topic that the shards belong to. Leader epochs do not show that the topic
        was created again, since they begin at the same number. Its deletion and its creation may
        both lie between two images."""
        self._reading = asyncio.Lock()
        self._closed = False

    def begin_shard(self, index: int, leader_epoch: int) -> S:
        """Create the empty shard of a partition, registered with the runtime."""
        raise AssertionError("a subclass has to define begin_shard")

    def replay_steps(self, batch: BatchView, shard: S) -> Iterator[None]:
        """Replay a batch of the internal topic in a shard, a step for each record."""
        raise AssertionError("a subclass has to define replay_steps")

    def follow_topic(self, new: MetadataImage) -> None:
        """Load the shards whose partitions this broker leads now, and unload all others."""
        topic = new.topics.get(self.topic)
        same = topic is not None and topic.topic_id == self._topic_id
        if topic is not None:
            self.runtime.partitions = len(topic.partitions)
            self._topic_id = topic.topic_id
        led = {
            index: new.leader_epoch(topic, state)
            for index, state in enumerate(topic.partitions if topic else ())
            if topic is not None
            and state.leader == self.node_id
            and (self.topic, index) not in self.replicas.offline
        }
        for index in [
            index for index in self.loads if not same or led.get(index) != self._epochs[index]
        ]:
            self.loads.pop(index).cancel()
            self.runtime.unload(index)
        for index in sorted(led.keys() - self.loads.keys()):
            self._begin_load(index, led[index])

    def _begin_load(self, index: int, leader_epoch: int) -> None:
        self._epochs[index] = leader_epoch
        self.loads[index] = self.loop.create_task(self._load(index, leader_epoch))

    def let_go_of(self, offline: Collection[tuple[str, int]]) -> None:
        """The log directories of these partitions have failed: refuse requests for their shards."""
        for index in [index for index in self.loads if (self.topic, index) in offline]:
            self.loads.pop(index).cancel()
            self.runtime.unload(index)

    def close(self) -> None:
        """Stop every timer and every load; no shard is loaded after this."""
        self._closed = True
        for task in self.loads.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _partition(self, index: int) -> Partition:
        partition = self.replicas.partition(self.topic, index)
        if partition is None:
            raise NotLeaderOrFollower(f"{self.topic}-{index} has no replica on this broker")
        return partition

    def _led_in(self, index: int, leader_epoch: int | None) -> Partition:
        """The partition, if it is led here in this epoch. Raises NotLeaderOrFollower."""
        partition = self._partition(index)
        partition.require_leader()
        if partition.topic_id != self._topic_id:
            reached("a coordinator met a topic that was made again")
            raise NotLeaderOrFollower(
                f"{self.topic} was deleted and created again since this coordinator began")
        if partition.leader_epoch != leader_epoch:
            raise NotLeaderOrFollower(
                f"{self.topic}-{index} is now led in leader epoch {partition.leader_epoch}, no"
                f" longer in epoch {leader_epoch}"
            )
        return partition

    def append(
        self, index: int, encoded: list[Any], producer: Producer, committed: Committed
    ) -> None:
        """Append records as one batch (`ShardHost.append`)."""
        # The partition may have a new leader epoch already: replicas follow a new image before
        # coordinators do.
        partition = self._led_in(index, self._epochs.get(index))
        now_ms = self.clock.now_ms()
        batch = wire_records.build_batch(
            (
                wire_records.Record(timestamp=now_ms, key=key, value=value)
                for key, value in encoded
            ),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=producer.producer_id >= 0,
        )
        append_batch(self.flusher, partition, batch, committed)

    def reload(self, index: int) -> None:
        """An append was lost, with the state that depends on it: reload the shard from its log."""
        partition = self.replicas.partition(self.topic, index)
        if partition is not None and index in self.loads and not self._closed:
            reached("a coordinator is loaded again after a lost append")
            self.loads.pop(index).cancel()
            self._begin_load(index, partition.leader_epoch)

    async def _load(self, index: int, leader_epoch: int) -> None:
        """Read a shard once this broker leads its partition, and the log can be read and written.

        A shard with unreadable records is not loaded.
        """
        told = ""
        while True:
            shard = self.begin_shard(index, leader_epoch)
            try:
                partition = self._led_in(index, leader_epoch)
                # Load one shard after the other: clients are served in between.
                async with self._reading:
                    # A power failure may still lose records that a crash left unflushed. Flush them
                    # before anything is answered or written elsewhere because of them. A marker for
                    # a lost commit would leave a transaction committed in only one partition.
                    await self.flusher.make_durable(partition)
                    await self.read_log(partition, shard)
                    shard.is_read = True
                # Without this wait, a client could get an answer from records that the next leader
                # may lack, and then a different answer from that leader.
                await self.until_committed(partition)
                self._led_in(index, leader_epoch)
                self.runtime.adopt(shard)
                return
            except MalformedMessage as error:
                log.error("%s-%d cannot be read, so this broker does not serve the groups or"
                          " transactions in it: %s", self.topic, index, error)
                self.runtime.unload(index)
                return
            except Exception as error:
                reached("a coordinator could not be loaded and is tried again")
                if str(error) != told:
                    told = str(error)
                    log.error(
                        "%s-%d could not be read; this broker tries again every %g s: %s",
                        self.topic, index, RELOAD_SECONDS, error,
                        exc_info=not isinstance(error, (ProtocolError, OSError)),
                    )
            self.runtime.unload(index)
            await asyncio.sleep(RELOAD_SECONDS)

    async def read_log(self, partition: Partition, shard: S) -> None:
        """Replay a partition in a shard, in slices between which other requests are served. Raises
        CorruptMessage if the bytes are not what was written; the segment is then checked."""
        plog, slices, workers = partition.log, Slices(), self.workers
        await workers.after_rebuilds(plog.prepare_append)
        offset = plog.log_start_offset
        try:
            while offset < plog.log_end_offset:
                data = await workers.after_rebuilds(partial(plog.read_bytes, offset, LOAD_BYTES))
                if not data:
                    if not plog.segments[-1].size:
                        break   # the rest was removed by Kafka's compaction
                    raise CorruptMessage(
                        f"{partition!r} has no bytes at offset {offset}, but should end at offset"
                        f" {plog.log_end_offset}: its file was truncated"
                    )
                for batch in batches_of(data):
                    for _ in self.replay_steps(batch, shard):
                        if slices.over:
                            await slices.pause()
                    offset = batch.next_offset
                await slices.pause()
        except (CorruptMessage, OSError) as error:
            self.doubted.doubt(partition, error, offset)
            raise

    async def until_committed(self, partition: Partition) -> None:
        """Return once everything in the log is committed. Raises ProtocolError."""
        future: asyncio.Future[None] = self.loop.create_future()

        def committed(error: ProtocolError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        when_committed(partition, committed)
        await future

    def wake(self, at_ms: int) -> None:
        """Fire the runtime's timers at this time of the monotonic clock."""
        if self._timer is not None:
            self._timer.cancel()
        now = self.clock.monotonic()
        # Rounded up: a timer that fires too early would only be set again.
        self._fire_at(max(at_ms / 1000, now) + 0.001, now)

    def _fire_at(self, due: float, now: float) -> None:
        self._due = due
        self._timer = self.loop.call_later(due - now, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self.clock.monotonic()
        if now - self._due > LATE_SECONDS and not self._waited:
            # This process was stopped (a suspended machine, SIGSTOP). Heartbeats that arrived
            # meanwhile are in the sockets: read them before any session expires.
            self._waited = True
            reached("a coordinator's timer was late")
            self._fire_at(now + LATE_SECONDS, now)
        else:
            self._waited = False
            self.runtime.fire()


def append_batch(
    flusher: Flusher, partition: Partition, batch: bytes, committed: Committed
) -> None:
    """Append a coordinator's own batch with acks=all; `committed` is called with the outcome.

    Raises ProtocolError if this broker may not append.
    """
    partition.require_leader()
    try:
        partition.append_bytes(batch, True)
    except NotEnoughReplicas as error:
        raise CoordinatorNotAvailable(str(error)) from error
    if partition.wants_flush():
        flusher.want(partition)
    when_committed(partition, committed)


def batches_of(data: bytes) -> Iterator[BatchView]:
    """The complete batches; a truncated last batch is left out. Raises CorruptMessage if the first
    batch is incomplete, or if a header is invalid. Checksums are checked only when the records are
    read."""
    loaded = False
    for batch in batches(data):
        yield batch
        loaded = True
    if not loaded:
        raise CorruptMessage(f"no complete batch is in the {len(data)} bytes read from the log")
