"""Compacts the log that needs it most, then the next one, a little at a time.

A step of a pass blocks the loop for SLICE_SECONDS at most. A pause of at least the same length
follows, in which produces and fetches are served.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.settings.broker import CLEANER_MEMORY_MIN
from ottla.broker.threads.slices import InThread, Slices
from ottla.broker.upkeep.scrubber import EVERYWHERE
from ottla.log.compaction.choice import Cleanable, cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner
from ottla.log.storage.storage import Storage
from ottla.wire.errors import ProtocolError
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.settings.config import BrokerConfig
    from ottla.broker.threads.workers import Workers
    from ottla.broker.upkeep.checkpoint_writer import Checkpoints
    from ottla.log.files.clock import Clock
    from ottla.log.partition.partition_log import PartitionLog
    from ottla.log.partition.segment import Segment
    from ottla.replication.partition import Partition
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.cleaner")

SLICE_SECONDS = 0.0001
"""Half the time of a small request, so a slice hardly affects the latency of requests that wait for
it."""
RATE_SECONDS = 1.0
"""How long a pause lasts before the rate is read again, so that a new rate applies soon."""


class LogCleaner:
    """Compacts this broker's logs. `in_thread` runs blocking calls beside the loop."""

    pause = staticmethod(asyncio.sleep)

    def __init__(
        self, config: BrokerConfig, clock: Clock, replicas: Replicas, storage: Storage,
        workers: Workers, checkpoints: Checkpoints, in_thread: InThread,
        doubt: Callable[[Partition, Exception, int], None],
    ) -> None:
        self.config, self.clock, self.replicas, self.storage = config, clock, replicas, storage
        self.workers, self.checkpoints, self.doubt = workers, checkpoints, doubt
        self.in_thread = in_thread
        self.unreadable: dict[str, list[Segment]] = {}
        """Directories of logs that a pass could not read completely, with the sealed segments at
        that time. While a log still has all of them, the next pass would fail, too."""

    async def clean_due(self) -> None:
        """Clean every log that is due now, the dirtiest first."""
        tried: set[str] = set()
        cleaned = 0
        while (chosen := await self._choose(tried)) is not None:
            partition, target = chosen
            await self._clean(partition, target)
            cleaned += 1
            if target.log.first_dirty_offset <= target.first_dirty_offset:
                tried.add(target.log.directory)
        if cleaned:
            await self.checkpoints.write()

    async def _choose(self, tried: set[str]) -> tuple[Partition, Cleanable] | None:
        best = None
        now_ms = self.clock.now_ms()
        slices = Slices()
        for partition in self.replicas:
            if slices.over:
                await slices.pause()
            plog = partition.log
            if not plog.config.compacts or plog.directory in tried or self._stays_unreadable(plog):
                continue
            try:
                due = await self.workers.after_rebuilds(
                    partial(cleanable, plog, partition.high_watermark, now_ms)
                )
            except (OSError, ProtocolError) as error:
                log.error("%r could not be checked for compaction: %s", partition, error)
                self.doubt(partition, error, EVERYWHERE)
                continue
            if due is not None and due.due and (best is None or due.ratio > best[1].ratio):
                best = partition, due
        return best

    def _stays_unreadable(self, plog: PartitionLog) -> bool:
        """Whether a pass over a log has failed and would fail again. After a repair it would not: a
        repair changes the log's segments."""
        had = self.unreadable.get(plog.directory)
        if had is None or plog.offline is not None:
            return False
        if all(segment in plog.segments for segment in had):
            return True
        del self.unreadable[plog.directory]
        return False

    async def _clean(self, partition: Partition, target: Cleanable) -> None:
        delay_ms = target.log.config.file_delete_delay_ms
        cleaner = Cleaner(
            target,
            max(CLEANER_MEMORY_MIN, self.config.log_cleaner_dedupe_buffer_size),
            SLICE_SECONDS,
            lambda paths: self.storage.deletions.add_files(paths, delay_ms),
        )
        steps = cleaner.steps()
        try:
            for task in steps:
                if task is None:
                    await self.rest(cleaner)
                else:
                    await self.in_thread(task.run)
        except Abandoned as reason:
            log.info("%s", reason)
        except ProtocolError as error:
            reached("compaction found damage")
            self.unreadable[target.log.directory] = list(target.log.segments[:-1])
            log.error("%s could not be read by compaction: %s", target.log.directory, error)
            self._doubt(partition, cleaner, error)
        except OSError as error:
            log.error("%s could not be compacted: %s", target.log.directory, error)
            self._doubt(partition, cleaner, error)
        else:
            log.info(
                "%s: compacted up to offset %d, read %d bytes, wrote %d bytes",
                target.log.directory, target.log.first_dirty_offset,
                cleaner.bytes_read, cleaner.bytes_written,
            )
        finally:
            steps.close()

    def _doubt(self, partition: Partition, cleaner: Cleaner, error: Exception) -> None:
        """Check the segment that a pass was reading, or all segments of the log if that segment is
        not known."""
        read = cleaner.reading
        self.doubt(partition, error, EVERYWHERE if read is None else read.base_offset)

    async def rest(self, cleaner: Cleaner) -> None:
        """Pause for SLICE_SECONDS, or longer if log.cleaner.io.max.bytes.per.second requires it. As
        in Kafka, compaction waits while the rate is 0, and has no limit while it is negative."""
        left: float = cleaner.take_moved()
        while True:
            rate = self.config.log_cleaner_io_max_bytes_per_second
            due = left / rate if rate else RATE_SECONDS * bool(left)
            seconds = min(max(SLICE_SECONDS, due), RATE_SECONDS)
            await self.pause(seconds)
            left -= seconds * rate
            if left <= 0 or rate < 0:
                return
