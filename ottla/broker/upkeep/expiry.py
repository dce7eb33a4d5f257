"""Runs retention: expired segments leave their logs, and their files are deleted later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.broker.threads.slices import Slices
from ottla.broker.threads.workers import Workers
from ottla.log.partition import retention
from ottla.log.storage.storage import Storage
from ottla.replication.partition import Partition
from ottla.wire.errors import ProtocolError

log = logging.getLogger("ottla.retention")


def _apply(partition: Partition, patient: bool) -> list[str]:
    return retention.apply_retention(partition.log, partition.high_watermark, patient)


async def apply_retention(
    partitions: Iterable[Partition], storage: Storage, workers: Workers,
    doubt: Callable[[Partition, Exception], None],
) -> None:
    """Remove segments by time, size or log start, a slice of partitions in each turn of the loop.

    Nothing above the high watermark is removed: a client may still be waiting for it. A log that
    fails is reported and does not prevent the work on others; `doubt` has its bytes checked.
    """
    slices = Slices()
    for partition in partitions:
        before = partition.log.log_start_offset
        try:
            paths = await workers.patiently(partial(_apply, partition))
        except (OSError, ProtocolError) as error:
            log.error("retention of %r failed: %s", partition, error)
            doubt(partition, error)
            continue
        if paths:
            storage.deletions.add_files(paths, partition.log.config.file_delete_delay_ms)
        if partition.log.log_start_offset != before:
            log.info("%r begins at offset %d now", partition, partition.log.log_start_offset)
            partition.start_moved()
        if slices.over:
            await slices.pause()
