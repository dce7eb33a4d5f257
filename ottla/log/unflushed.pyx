"""The first step of a flush, on the loop: what one log has that is not on the medium yet."""

from ottla.log import failure
from ottla.log.flush import FlushTask
from ottla.log.partition_log cimport PartitionLog
from ottla.log.recovery.rebuild import REREAD_MAX
from ottla.log.segment cimport Segment
from ottla.wire.errors import StorageFailed


def begin(PartitionLog log, bint by_file_system):
    """What to sync so that all that is appended by now is durable; None if nothing is.

    `by_file_system`: the whole file system will be synced, so that no file has to be open.
    Raises StorageFailed.
    """
    if log.offline is not None:
        raise StorageFailed(log.offline)
    if log.at_rest:
        return None
    epochs_due = log._epochs.changed and log._segments and must_keep_epochs(log)
    if (log.recovery_point >= log.log_end_offset and not log.unsynced
            and not log.unsynced_directories and not epochs_due):
        return None
    try:
        failure.write_aborted(log)
        for segment in log.unsynced:
            segment.seal()
        files = [] if by_file_system else files_to_sync(log)
    except OSError as error:
        failure.refuse(log, "its files could not be opened for a flush", error)
    task = FlushTask(
        log.disk, log.log_end_offset, files, sorted(log.unsynced_directories),
        f"{log.directory}/leader-epoch-checkpoint",
        log._epochs.encode() if epochs_due else None,
        by_file_system)
    if not by_file_system:
        for segment in touched(log) + log.unsynced:
            segment.transactions_changed = False
    log.unsynced.clear()
    log.unsynced_files.clear()
    log.unsynced_directories.clear()
    if epochs_due:
        log._epochs.changed, log.has_epochs_file = False, True
    log.flushes.append(task)
    return task


cdef bint must_keep_epochs(PartitionLog log) except -1:
    """Whether the epochs need their file: those of a few batches are learnt from these again."""
    return log.has_epochs_file or len(log._segments) > 1 or log.active.size > REREAD_MAX


cdef list touched(PartitionLog log):
    """The segments with batches behind the recovery point that are not sealed."""
    return [
        segment for segment in log._segments[max(log.segment_number(log.recovery_point), 0):]
        if segment.size and segment not in log.unsynced]


cdef list files_to_sync(PartitionLog log):
    cdef Segment segment
    files = [log.disk.open(path) for path in log.unsynced_files]
    for segment in touched(log):
        files += segment.files_to_sync()
    for segment in log.unsynced:
        files += segment.files_to_sync(sealed=True)
    return files
