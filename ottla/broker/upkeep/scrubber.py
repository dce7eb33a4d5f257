"""Runs the background scrub, and checks segments after a failed read. A thread reads the bytes, and
the loop checks them.

A slice is a megabyte, which takes the loop a fraction of a millisecond; between two slices the
scrub waits as `ottla.log.scrub.bytes.per.second` requires.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import InThread
from ottla.log.files.checkpoints import Partition as PartitionKey
from ottla.log.files.checkpoints import partition_of
from ottla.log.files.disk import is_passing
from ottla.log.files.names import offset_in
from ottla.log.partition.damage import Damage
from ottla.log.storage.storage import Storage
from ottla.replication.partition import Partition
from ottla.wire.errors import CorruptMessage, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig
    from ottla.log.files.clock import Clock
    from ottla.log.scrub.round import Scrub, Steps
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.scrub")

EVERYWHERE = -1
"""Instead of an offset: all segments of the log."""
START_SECONDS = 30.0
"""The scrub starts this long after the broker."""
CHECK_BYTES_PER_SECOND = 100 << 20
CHECK_AGAIN_SECONDS = 600.0


class Scrubber:
    """Reads this broker's segments and checks them. `in_thread` runs blocking calls beside the
    loop."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, replicas: Replicas, storage: Storage,
        in_thread: InThread,
    ) -> None:
        self.config, self.clock, self.replicas = config, clock, replicas
        self.storage, self.in_thread = storage, in_thread

    async def scrub_for_ever(self, start_seconds: float | None = None) -> None:
        """Wait `start_seconds` (None: START_SECONDS), then scrub repeatedly until cancelled."""
        await asyncio.sleep(START_SECONDS if start_seconds is None else start_seconds)
        await self._run(self._scrub(self.config.ottla_log_scrub_bytes_per_second).steps())

    async def check(self, partition: Partition, offset: int) -> bool:
        """Check the segment with this offset now, or all segments for EVERYWHERE. Does nothing if
        the partition has moved or its log has failed. Returns whether the log has failed during
        this check."""
        key = partition.topic, partition.index
        partition_log = self.storage.get(*key)
        if partition_log is not partition.log or partition_log.offline is not None:
            return False
        segments = list(partition_log.segments)
        if offset != EVERYWHERE:
            segments = [each for each in segments if each.base_offset <= offset][-1:]
        log.warning(
            "%r: this broker or a follower could not read %s; this broker now checks its own copy",
            partition, "a part of the log" if offset == EVERYWHERE else f"offset {offset}",
        )
        scrub = self._scrub(CHECK_BYTES_PER_SECOND)
        for segment in segments:
            if partition_log.offline is None and segment in partition_log.segments:
                await self._run(scrub.check_segment(key, partition_log, segment))
        return partition_log.offline is not None

    def _scrub(self, bytes_per_second: int) -> Scrub:
        from ottla.log.scrub.round import Scrub

        def damaged(key: PartitionKey, damage: Damage) -> None:
            log.error("%s", damage)
            partition = self.replicas.partition(*key)
            if partition is not None:
                self.replicas.note_damage(partition)

        return Scrub(
            self.storage, self.clock, bytes_per_second, self.config.ottla_log_scrub_interval_ms,
            damaged,
        )

    async def _run(self, steps: Steps) -> None:
        """Run the steps to their end."""
        step = next(steps, None)
        while step is not None:
            failure = None
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                try:
                    await self.in_thread(step.run)
                except OSError as error:
                    log.error("the background check could not read a segment, or could not save"
                              " its progress: %s", error)
                    failure = error
            try:
                step = next(steps) if failure is None else steps.throw(failure)
            except StopIteration:
                return


class DoubtedSegments:
    """Checks segments after a failed read. Such a read belongs to a client's request, to retention,
    to compaction, to a coordinator that loads, or to a follower. A follower's read has failed if
    the follower asks the leader for the same records again and again. Then the bytes may have
    changed on the leader's disk or on the way, or the follower's disk refuses them."""

    def __init__(self, scrubber: Scrubber, loop: asyncio.AbstractEventLoop) -> None:
        self.scrubber, self.loop = scrubber, loop
        self.wanted: dict[Partition, int] = {}
        self.checked: dict[Partition, tuple[int, float]] = {}
        self.task: asyncio.Task[None] | None = None

    def doubt(self, partition: Partition, error: Exception, offset: int = EVERYWHERE) -> None:
        """Reading a partition's log has failed. Check the segment with this offset, or all segments
        for EVERYWHERE, if the bytes look wrong. Do the same if the disk refuses to read the bytes
        and another replica in sync has them: damage is repaired from that replica."""
        refused = isinstance(error, OSError) and not is_passing(error)
        wrong = isinstance(error, CorruptMessage) or (
            refused and partition.log.health.replaceable
        )
        if wrong:
            self.want(partition, offset)

    def doubt_file(self, path: str, error: Exception) -> None:
        """As `doubt`, after a part of a segment's file could not be sent."""
        directory, _, name = path.rpartition("/")
        key = partition_of(directory.rpartition("/")[2])
        partition = None if key is None else self.scrubber.replicas.partition(*key)
        if partition is not None and partition.log.directory == directory:
            self.doubt(partition, error, offset_in(name))   # else the log was moved or deleted

    def want(self, partition: Partition, offset: int) -> None:
        """Check the segment with this offset, or all segments for EVERYWHERE, unless that was done
        a short time ago."""
        if (last := self.checked.get(partition)) is not None:
            checked, at = last
            if checked == offset and self.loop.time() - at < CHECK_AGAIN_SECONDS:
                return
        self.wanted[partition] = offset
        if self.task is None:
            self.task = self.loop.create_task(self._check())

    def close(self) -> None:
        """Stop checking."""
        if self.task is not None:
            self.task.cancel()

    async def _check(self) -> None:
        try:
            while self.wanted:
                partition, offset = self.wanted.popitem()
                now = self.loop.time()
                self.checked = {
                    each: (place, at) for each, (place, at) in self.checked.items()
                    if now - at < CHECK_AGAIN_SECONDS
                }
                self.checked[partition] = offset, now
                if await self.scrubber.check(partition, offset):
                    del self.checked[partition]     # a repaired log may be damaged again
        except (OSError, ProtocolError) as error:
            log.error("a segment could not be checked: %s", error)
        finally:
            self.task = None
