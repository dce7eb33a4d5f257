"""Closes all logs of a broker, and marks each log directory as clean if its logs could be closed.

If a log cannot be closed, its log directory gets no mark. There is one exception: a log whose files
another program removed. This loss does not affect the other logs, and the next start sees from the
checkpoints that the log is missing.

After a crash, a log directory gets no mark either if one of its logs could not be opened: this log
has not been recovered, so the next start has to recover it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.log.files import closed_logs
from ottla.log.files.flush import LOGS_ONE_BY_ONE_MAX, run_all
from ottla.log.partition.damage import cut_notes
from ottla.log.storage.log_directory import CLEAN_MARKER
from ottla.wire.errors import CorruptMessage, StorageFailed

if TYPE_CHECKING:
    from ottla.log.files.checkpoints import Partition
    from ottla.log.partition.partition_log import PartitionLog
    from ottla.log.storage.log_directory import LogDirectory
    from ottla.log.storage.storage import Storage

logger = logging.getLogger("ottla.storage")


def close(storage: Storage, high_watermarks: Iterable[tuple[Partition, int]]) -> None:
    """Flush and close every log, write the last checkpoint and the marks. Blocks."""
    assert storage.open_files.rebuilds is not None
    storage.open_files.rebuilds.close()
    working = {key: log for key, log in storage.logs.items() if log.offline is None}
    for log in working.values():
        log.health.watch(None)          # failures are handled below, if the log's files exist
    flush_everything(storage)
    unmarked = {each.path for each in storage.directories if each.unopened and not each.clean}
    for key, log in storage.logs.items():
        home = storage.homes[key]
        reason = None
        try:
            log.close()
            if _must_be_looked_at(home, key, log):
                unmarked.add(home.path)
        except (CorruptMessage, StorageFailed, OSError) as error:
            reason = str(error)
        if key in working and log.damage is None:
            reason = log.offline or reason
        if reason is not None and home.offline is None and not _has_vanished(log):
            storage.fail(home, reason)
    storage.deletions.remove_files()
    checkpoint = storage.begin_checkpoint(high_watermarks)
    checkpoint.run()
    for directory, failure in checkpoint.failures:
        storage.fail(directory, f"its last checkpoint could not be written: {failure}")
    for directory in storage.directories:
        if directory.offline is None and directory.path not in unmarked:
            _mark_clean(storage, directory)
        directory.close()
    for log in storage.logs.values():
        # From now on the log refuses appends. A pending callback could otherwise append to it, and
        # the next start would take the new batches for damage.
        log.health.watch(None)
        log.fail("the broker has stopped")
    storage.logs.clear()


def _must_be_looked_at(home: LogDirectory, key: Partition, log: PartitionLog) -> bool:
    """Whether the next start must check the log and report a loss. The log directory then gets no
    mark of a clean stop.

    True in two cases: the log's end was cut off, and the cluster may not know this yet; or the log
    is damaged, and the checkpoints do not show its loss. If they show the loss, the next start
    notices it even with the mark.
    """
    if log.damage is not None:
        return log.log_end_offset >= home.written_upto(key)
    return bool(cut_notes(log))


def _has_vanished(log: PartitionLog) -> bool:
    """Whether a log could not be closed because its directory is gone; if so, logs an error."""
    if not log.segment_count or log.disk.exists(log.directory):
        return False
    logger.error(
        "%s disappeared while the broker ran; it had offsets %d to %d", log.directory,
        log.log_start_offset, log.log_end_offset - 1,
    )
    return True


def _mark_clean(storage: Storage, directory: LogDirectory) -> None:
    """Marks the stop as clean; without the mark the next start is slow."""
    try:
        _write_closed(storage, directory)
        storage.disk.write_atomically(
            directory.file(CLEAN_MARKER), b'{"version":0,"brokerEpoch":-1}'
        )
    except OSError as error:
        storage.fail(directory, f"its marker of a clean stop could not be written: {error}")


def _write_closed(storage: Storage, directory: LogDirectory) -> None:
    """Saves the state with which the logs can stay at rest at the next start. For logs that were
    never requested, this is the state that was read when the broker started."""
    known = dict(directory.closed)
    for key, log in storage.logs.items():
        if storage.homes[key] is directory and (closed := log.closed()) is not None:
            known[key] = closed
    storage.disk.write_atomically(
        directory.file(closed_logs.CLOSED_LOGS), closed_logs.encode(known)
    )


def flush_everything(storage: Storage) -> None:
    """Makes every log durable with few calls, however many files there are."""
    for directory in storage.directories:
        logs = [log for key, log in storage.logs.items() if storage.homes[key] is directory]
        tasks = []
        changed = sum(log.recovery_point < log.log_end_offset for log in logs)
        for log in logs:
            try:
                log.seal()
                task = log.begin_flush(changed > LOGS_ONE_BY_ONE_MAX or log.flushing)
            except StorageFailed:
                continue
            if task is not None:
                tasks.append((log, task))
        run_all(storage.disk, directory.path, [task for _, task in tasks])
        for log, task in tasks:
            try:
                log.end_flush(task)
            except StorageFailed:
                continue
