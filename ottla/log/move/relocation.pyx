"""A log's files lie in another directory from now on: what the log remembers of the old one goes.
"""

from ottla.log.partition_log cimport PartitionLog
from ottla.log.segment cimport Segment


def relocate(PartitionLog log, directory, on_failure):
    """Go on in `directory`, where all of the log is on the medium, but for the active segment's
    indexes. The segments have to be closed; readers keep the descriptors that they have.

    A flush that is under way is of no use any more: `end_flush` takes it for done.
    """
    cdef Segment segment
    for segment in log._segments:
        segment.directory = directory
        segment.transactions_changed = False
    log.directory, log.on_failure = directory, on_failure
    log.recovery_point = log.checkpoint_offset = log.log_end_offset
    log.unsynced = [log.active] if log.active is not None and log.active.size else []
    log.unsynced_files, log.unsynced_directories = [], set()
    log.flushes = []
    log._epochs.changed, log.has_epochs_file = False, True
    log.flushed_ms = log.clock.now_ms()
