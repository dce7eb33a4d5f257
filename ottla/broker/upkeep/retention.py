"""Runs retention: expired segments leave their logs, and their files are deleted later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import Slices
from ottla.log.partition import retention
from ottla.wire.errors import ProtocolError

if TYPE_CHECKING:
    from ottla.broker.threads.workers import Workers
    from ottla.log.storage.storage import Storage
    from ottla.replication.partition import Partition

log = logging.getLogger("ottla.retention")


def _apply(partition: Partition, patient: bool) -> list[str]:
    return retention.apply_retention(partition.log, partition.high_watermark, patient)


class Retention:
    """Applies retention to a broker's partitions. `doubt` is called with a log that cannot be read,
    and checks its bytes."""

    def __init__(
        self, partitions: Iterable[Partition], storage: Storage, workers: Workers,
        doubt: Callable[[Partition, Exception], None],
    ) -> None:
        self.partitions, self.storage = partitions, storage
        self.workers, self.doubt = workers, doubt
        self.running = asyncio.Lock()

    async def apply(self) -> None:
        """Remove segments by time, size or log start, a slice of partitions in each turn of the
        loop.

        Nothing above the high watermark is removed: a client may still be waiting for the
        acknowledgement. If a log fails, this is reported, and retention continues with the other
        logs.
        """
        async with self.running:
            slices = Slices()
            for partition in self.partitions:
                await self._apply_to(partition)
                if slices.over:
                    await slices.pause()

    async def _apply_to(self, partition: Partition) -> None:
        before = partition.log.log_start_offset
        try:
            paths = await self.workers.after_rebuilds(partial(_apply, partition))
        except (OSError, ProtocolError) as error:
            log.error("retention of %r failed: %s", partition, error)
            self.doubt(partition, error)
            return
        if paths:
            self.storage.deletions.add_files(paths, partition.log.config.file_delete_delay_ms)
        if partition.log.log_start_offset != before:
            log.info("%r now begins at offset %d", partition, partition.log.log_start_offset)
            partition.start_moved()
