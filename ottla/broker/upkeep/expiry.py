"""Retention, as the broker runs it: what is due leaves every log, its files go later."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.broker.threads.slices import Slices
from ottla.log.storage import Storage
from ottla.replication.partition import Partition
from ottla.wire.errors import StorageFailed

log = logging.getLogger("ottla.retention")


async def apply_retention(partitions: Iterable[Partition], storage: Storage) -> None:
    """Take away the segments that time, size or the log start say, a slice of partitions a turn.

    Nothing that a client may still be waiting for goes: the high watermark bounds it. A log that
    fails is reported and does not keep the others from their turn.
    """
    slices = Slices()
    for partition in partitions:
        before = partition.log.log_start_offset
        try:
            paths = partition.log.apply_retention(partition.high_watermark)
        except StorageFailed as error:
            log.error("retention of %r failed: %s", partition, error)
            continue
        if paths:
            storage.delete_files_later(paths, partition.log.config.file_delete_delay_ms)
        if partition.log.log_start_offset != before:
            log.info("%r begins at offset %d now", partition, partition.log.log_start_offset)
            partition.wake()
        if slices.over:
            await slices.pause()
