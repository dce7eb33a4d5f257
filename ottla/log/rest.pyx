"""Logs at rest: how a log is closed so that a start need not look at it, and how it wakes up.

What a clean stop knows of a log is kept as a `ClosedLog`. With it, a start costs a few microseconds
a partition and no file at all; the first use that needs more reads the files and compares.
"""

from libc.stdint cimport int32_t, int64_t

from ottla.log import failure
from ottla.log.recovery import rebuild
from ottla.log.closed_logs import ClosedLog
from ottla.log.partition_log cimport PartitionLog
from ottla.log.segment cimport Segment
from ottla.wire.errors import StorageFailed

def begin(PartitionLog log, closed):
    """Let a new log be what it was when it was closed."""
    log.log_start_offset = closed.log_start_offset
    log.log_end_offset = closed.log_end_offset
    log.recovery_point = log.checkpoint_offset = closed.log_end_offset
    log.latest_epoch, log.resting_bytes = closed.latest_epoch, closed.size_bytes
    log.resting_segments, log.resting_first_ms = closed.segments, closed.first_ms


def retention_may_be_due(PartitionLog log):
    """Whether a log at rest has to be looked at because something in it may have to go."""
    cdef int64_t age_ms = log.clock.now_ms() - log.resting_first_ms
    if not log.segment_count or not log.config.deletes:
        return False
    return (log.resting_first_ms < 0
            or 0 <= log.config.retention_ms < age_ms
            or 0 <= log.config.retention_bytes < log.resting_bytes)


def wake(PartitionLog log):
    """Read the files of a log at rest. Raises StorageFailed; a later call tries again."""
    cdef int64_t end = log.log_end_offset
    cdef int32_t epoch = log.latest_epoch
    if log.offline is not None:
        raise StorageFailed(log.offline)
    try:
        load(log, end, log.log_start_offset, True)
    except OSError as error:
        raise StorageFailed(f"{log.directory} could not be opened: {error}") from error
    if log.log_end_offset != end and log.damage is None:
        # Its offsets were told already: it must not give them to other records.
        log.damage = rebuild.changed_at_rest(log.directory, log._segments, end)
        log.offline = str(log.damage)
    elif epoch > log.latest_epoch:
        log.assign_epoch_start(epoch)


def load(PartitionLog log, recovery_point, log_start_offset, clean):
    """Take over what the files say, recovered unless the last stop was `clean`."""
    loaded = rebuild.load(
        log.disk, log.clock, log.directory, log.config, log.open_files, recovery_point,
        log_start_offset, clean, log.first_dirty_offset)
    log._segments, log._epochs = loaded.segments, loaded.epochs
    log._producers, log.damage = loaded.producers, loaded.damage
    log.log_start_offset = loaded.log_start_offset
    log.log_end_offset = loaded.log_end_offset
    log.recovery_point = log.checkpoint_offset = loaded.recovery_point
    log.snapshots = dict.fromkeys(sorted(loaded.snapshots))
    log.latest_epoch = log._epochs.latest
    log.active = log._segments[-1] if log._segments else None
    log.unsynced, log.unsynced_files, log.unsynced_directories = loaded.rebuilt, [], set()
    if log.recovery_point < log.log_end_offset:
        # What was appended last may be in a file whose name is not on the medium either.
        log.unsynced_directories.update((log.directory, log.directory.rpartition("/")[0] or "."))
    log.flushes, log.has_epochs_file = [], loaded.has_epochs_file
    if log.damage is not None and log.damage.permanent:
        log.offline = str(log.damage)
    # What recovery made anew is not on the medium yet.
    log.changed = log.recovery_point < log.log_end_offset
    log.at_rest = False


def seal(PartitionLog log):
    """Write what makes the next start fast, if anything changed. Raises StorageFailed."""
    if log.offline is not None:
        raise StorageFailed(log.offline)
    if log.at_rest or not log._segments or not log.changed:
        return
    try:
        failure.write_aborted(log)
        log.active.seal()
        log.trim()
        if log.active.size and log.active not in log.unsynced:
            log.unsynced.append(log.active)
        if log.log_end_offset not in log.snapshots and (
                len(log._producers) or log.size_bytes > rebuild.REREAD_MAX):
            log.write_snapshot()
    except OSError as error:
        failure.refuse(log, "it could not be closed", error)
    log.changed = False


def closed(PartitionLog log):
    """What the next start needs to leave this log at rest.

    None where it has to look: without files, with an open transaction (whose first offset bounds
    what readers of committed records see), or after a failure.
    """
    cdef Segment first
    if log.offline is not None or log.damage is not None or not log.segment_count:
        return None
    if log.at_rest:
        return ClosedLog(
            log.topic_id, log.log_start_offset, log.log_end_offset, log.latest_epoch,
            log.resting_segments, log.resting_bytes, log.resting_first_ms)
    if log.recovery_point < log.log_end_offset or log._producers.first_open() >= 0:
        return None
    first = <Segment>log._segments[0]
    return ClosedLog(
        log.topic_id, log.log_start_offset, log.log_end_offset, log.latest_epoch,
        len(log._segments), log.size_bytes, first.max_timestamp if first.times_known else -1)
