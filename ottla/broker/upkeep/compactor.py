"""Runs compaction: the log that needs it most, then the next, a little at a time.

A step of a pass holds the loop for SLICE_SECONDS at most, and the next one comes after at least as
long a pause: produces and fetches go on between them.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.settings.broker import CLEANER_MEMORY_MIN
from ottla.broker.threads.slices import InThread, Slices
from ottla.log.compaction.choice import Cleanable, cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner
from ottla.log.storage import Storage
from ottla.wire.errors import CorruptMessage, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

log = logging.getLogger("ottla.cleaner")

SLICE_SECONDS = 0.0001
"""Half a small request: the wait for a slice hardly affects the latency of others."""


class LogCleaner:
    """Compacts this broker's logs. `in_thread` runs blocking calls beside the loop."""

    def __init__(self, broker: BrokerContext, storage: Storage, in_thread: InThread) -> None:
        self.broker, self.storage, self.in_thread = broker, storage, in_thread
        self.damaged: set[str] = set()

    async def clean_due(self) -> None:
        """Clean every log that is due now, the dirtiest first."""
        tried: set[str] = set(self.damaged)
        cleaned = 0
        while (target := await self._choose(tried)) is not None:
            await self._clean(target)
            cleaned += 1
            if target.log.first_dirty_offset <= target.first_dirty_offset:
                tried.add(target.log.directory)
        if cleaned:
            await self.broker.checkpoints.write()

    async def _choose(self, tried: set[str]) -> Cleanable | None:
        best = None
        now_ms = self.broker.clock.now_ms()
        slices = Slices()
        for partition in self.broker.replicas:
            if slices.over:
                await slices.pause()
            if not partition.log.config.compacts or partition.log.directory in tried:
                continue
            try:
                found = await self.broker.workers.patiently(
                    partition.log,
                    partial(cleanable, partition.log, partition.high_watermark, now_ms),
                )
            except (OSError, CorruptMessage) as error:
                log.error("%r could not be checked for compaction: %s", partition, error)
                continue
            if found is not None and found.due and (best is None or found.ratio > best.ratio):
                best = found
        return best

    async def _clean(self, target: Cleanable) -> None:
        delay_ms = target.log.config.file_delete_delay_ms
        cleaner = Cleaner(
            target,
            max(CLEANER_MEMORY_MIN, self.broker.config.log_cleaner_dedupe_buffer_size),
            SLICE_SECONDS,
            lambda paths: self.storage.deletions.add_files(paths, delay_ms),
        )
        steps = cleaner.steps()
        try:
            for task in steps:
                if task is None:
                    await asyncio.sleep(self.pause(cleaner))
                else:
                    await self.in_thread(task.run)
        except Abandoned as reason:
            log.info("%s", reason)
        except ProtocolError as error:
            self.damaged.add(target.log.directory)
            log.error("%s is damaged and no longer compacted: %s", target.log.directory, error)
        except OSError as error:
            log.error("%s could not be compacted: %s", target.log.directory, error)
        else:
            log.info(
                "%s: compacted up to offset %d, read %d bytes, wrote %d",
                target.log.directory, target.log.first_dirty_offset,
                cleaner.bytes_read, cleaner.bytes_written,
            )
        finally:
            steps.close()

    def pause(self, cleaner: Cleaner) -> float:
        """Seconds until the next step: as long as the last one, or as the throttle requires."""
        moved = cleaner.take_moved()
        return max(SLICE_SECONDS, moved / self.broker.config.log_cleaner_io_max_bytes_per_second)
