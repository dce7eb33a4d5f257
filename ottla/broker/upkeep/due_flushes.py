"""Flushes for which no client waits: flushes of records that were recovered at the start, of
records whose flush.ms has passed, and of sealed segments."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import Slices
from ottla.log.partition.config import FOREVER_MS

if TYPE_CHECKING:
    from ottla.broker.threads.flusher import Flusher
    from ottla.broker.threads.slices import InThread
    from ottla.log.files.clock import Clock
    from ottla.replication.replicas import Replicas


class DueFlushes:
    """Finds the logs to flush. `in_thread` runs blocking calls beside the loop."""

    def __init__(
        self, replicas: Replicas, flusher: Flusher, clock: Clock, in_thread: InThread
    ) -> None:
        self.replicas, self.flusher, self.clock = replicas, flusher, clock
        self.in_thread = in_thread

    async def flush_recovered(self) -> None:
        """Flush the records that were recovered after a crash; they have been served since the
        start.
        """
        for partition in self.replicas:
            if partition.log.recovery_point < partition.log.log_end_offset:
                self.flusher.want(partition)
                await asyncio.sleep(0)

    async def flush_overdue(self) -> None:
        """Flush as flush.ms requires. A topic without this setting costs only a check of one
        partition.
        """
        now_ms = self.clock.monotonic_ms()
        slices = Slices()
        for partitions in list(self.replicas.by_name.values()):
            if slices.over:
                await slices.pause()
            first = next((each for each in partitions if each is not None), None)
            if first is None or first.log.config.flush_ms == FOREVER_MS:
                continue
            for partition in partitions:
                if partition is not None and partition.log.flush_due(now_ms):
                    self.flusher.want(partition)
                if slices.over:
                    await slices.pause()

    async def flush_sealed(self) -> None:
        """Flush logs that have sealed a segment, as Kafka does when it rolls a log.

        No client waits for this flush, so it runs in `in_thread`. Without this flush, a log that is
        written only with acks=1 would never become durable. The log could then not be compacted,
        and a start after a crash would read all of it.
        """
        while self.replicas.with_sealed:
            partition, _ = self.replicas.with_sealed.popitem()
            await self.flusher.flush_apart(partition, self.in_thread)
