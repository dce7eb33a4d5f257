"""Everything that makes a log shorter: truncation at its end, removal of segments at its start."""

from libc.stdint cimport int64_t

from ottla.log import retention
from ottla.log.recovery import rebuild
from ottla.log.compaction import swaps
from ottla.log.partition_log cimport PartitionLog
from ottla.log.segment cimport Segment
from ottla.log.segment import file_name
from ottla.log.index.transaction_index import TransactionIndex
from ottla.wire.errors import OffsetOutOfRange, StorageFailed

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def truncate(PartitionLog log, int64_t offset):
    """Remove the batch that contains `offset` and all behind it."""
    if log.offline is not None:
        raise StorageFailed(log.offline)
    if offset >= log.log_end_offset:
        return
    if offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"{log.directory} begins at {log.log_start_offset}, it cannot be cut to {offset}")
    try:
        cut_segments(log, offset)
        reload_producers(log)
    except OSError as error:
        log.fail(f"it could not be cut to offset {offset}: {error}")
        raise StorageFailed(log.offline) from error


def end_before(PartitionLog log, damage):
    """A sealed segment is not as it was written: take no more writes, read up to the fault.

    The next start, which the note beside the segment sends there, does the same. Raises OSError
    where the note cannot be written.
    """
    log.damage, log.readable_end = damage, damage.end_offset
    log.offline = log.offline or str(damage)
    log.disk.write_atomically(
        damage.path.removesuffix(".log") + ".damaged",
        f"{damage.position} {damage.reason}\n".encode())


cdef cut_segments(PartitionLog log, int64_t offset):
    """Remove segments from `offset` on, and the end of the one that contains it."""
    cdef Segment segment
    # A new list: by it a cleaner knows that the segments which it reads are not as they were.
    log._segments = list(log._segments)
    # From the end: whenever this stops, what is left is a whole log.
    while len(log._segments) > 1 and log._segments[-1].base_offset >= offset:
        segment = log._segments.pop()
        if segment in log.unsynced:
            log.unsynced.remove(segment)
        remove_files(log, segment)
    log.active = log._segments[-1]
    log.active.truncate_to(offset)
    log.log_end_offset = log.active.end_offset
    log.unwritten = [each for each in log.unwritten if each[1].last_offset < log.log_end_offset]
    # Durable at once: if old batches came back behind new ones, nobody could tell them apart.
    log.disk.sync_directory(log.directory)
    log.active.data_file().sync()
    TransactionIndex(log.disk, log.active.path(".txnindex")).truncate_to(log.log_end_offset)
    log._epochs.truncate_from_end(log.log_end_offset)
    log.latest_epoch = log._epochs.latest
    lower_recovery_point(log, log.log_end_offset)
    log.changed = True


cdef lower_recovery_point(PartitionLog log, int64_t offset):
    """What is written from here on is new, even if a flush that began earlier ends later."""
    log.recovery_point = min(log.recovery_point, offset)
    log.checkpoint_offset = min(log.checkpoint_offset, offset)
    log.first_dirty_offset = min(log.first_dirty_offset, offset)
    for task in log.flushes:
        task.offset = min(task.offset, offset)


cdef reload_producers(PartitionLog log):
    """The producers' state at the log's end, from the newest snapshot that holds."""
    for offset in [at for at in log.snapshots if at > log.log_end_offset]:
        del log.snapshots[offset]
        log.disk.unlink(f"{log.directory}/{file_name(offset, '.snapshot')}")
    log._producers = rebuild.load_producers(
        log.disk, log.directory, list(log.snapshots), log._segments)


def start_anew(PartitionLog log, int64_t offset):
    """Throw everything away and begin anew, empty, at `offset`."""
    if log.offline is not None:
        raise StorageFailed(log.offline)
    try:
        log._segments = list(log._segments)
        while log._segments:
            remove_files(log, log._segments.pop())
        log.active = None
        log.unsynced.clear()
        log.unwritten.clear()
        log.log_start_offset = log.log_end_offset = offset
        log._epochs.clear()
        log.latest_epoch = log._epochs.latest
        lower_recovery_point(log, offset)
        log.recovery_point = log.checkpoint_offset = offset
        for known in list(log.snapshots):
            del log.snapshots[known]
            log.disk.unlink(f"{log.directory}/{file_name(known, '.snapshot')}")
        reload_producers(log)
        # The file's name is what tells a restart where the log begins.
        log.start_segment()
        log.disk.sync_directory(log.directory)
    except OSError as error:
        log.fail(f"it could not begin anew at {offset}: {error}")
        raise StorageFailed(log.offline) from error


def remove_files(PartitionLog log, Segment segment):
    """Delete a segment's files at once. Whoever holds its File may read on."""
    segment.forget()
    for suffix in SUFFIXES:
        log.disk.unlink(segment.path(suffix))
    log.unsynced_directories.add(log.directory)


def remove_segment(PartitionLog log, Segment segment):
    """Take away a segment that lies wholly below the log start offset.

    Its files are renamed to `.deleted`; returns their paths, which any thread may unlink after
    file.delete.delay.ms. Whoever holds a File reads on. Raises OSError.
    """
    assert segment is not log.active and segment.end_offset <= log.log_start_offset
    segment.forget()
    paths = put_aside(log, segment)
    log._segments.remove(segment)
    if segment in log.unsynced:
        log.unsynced.remove(segment)
    for offset in [at for at in log.snapshots if at <= segment.base_offset]:
        del log.snapshots[offset]
        paths.append(f"{log.directory}/{file_name(offset, '.snapshot')}")
    log.unsynced_directories.add(log.directory)
    return paths


def remove_below_start(PartitionLog log):
    """Take away every segment that lies wholly below the log start; paths to unlink."""
    paths = []
    try:
        while len(log._segments) > 1 and log._segments[0].end_offset <= log.log_start_offset:
            paths += remove_segment(log, log._segments[0])
    except OSError as error:
        raise StorageFailed(f"{log.directory}: {error}") from error
    return paths


def replace_segments(PartitionLog log, list sources, Segment cleaned):
    """Put a cleaned segment in the place of its sources; paths to unlink.

    From `.log.swap` on, a crash ends with the cleaned segment, before with the sources
    (`swaps`). A transaction index goes before its log file: aborted records never lie without it.
    """
    cdef Segment segment, new
    cdef int64_t end_offset = sources[len(sources) - 1].end_offset
    paths = []
    try:
        cleaned.forget()
        new = Segment(
            log.disk, log.open_files, log.directory, cleaned.base_offset, cleaned.size,
            end_offset, log.clock.now_ms(), log.config.index_interval_bytes)
        present = [
            suffix for suffix in swaps.SUFFIXES if log.disk.exists(cleaned.path(suffix))]
        for suffix in present:
            log.disk.rename(cleaned.path(suffix), new.path(suffix) + swaps.SWAP)
        for segment in sources:
            segment.forget()
            paths += put_aside(log, segment)
        for suffix in sorted(present, key=".log".__ne__):
            log.disk.rename(new.path(suffix) + swaps.SWAP, new.path(suffix))
    except OSError as error:
        log.fail(f"a cleaned segment could not take its place: {error}")
        raise StorageFailed(log.offline) from error
    at = log._segments.index(sources[0])
    log._segments[at:at + len(sources)] = [new]
    for segment in sources:
        if segment in log.unsynced:
            log.unsynced.remove(segment)
        if segment.base_offset != new.base_offset and segment.base_offset in log.snapshots:
            del log.snapshots[segment.base_offset]
            paths.append(f"{log.directory}/{file_name(segment.base_offset, '.snapshot')}")
    log.unsynced_directories.add(log.directory)
    return paths


cdef list put_aside(PartitionLog log, Segment segment):
    """Rename a segment's files to `.deleted`; their paths now."""
    paths = []
    for suffix in SUFFIXES:
        path = segment.path(suffix)
        if log.disk.exists(path):
            log.disk.rename(path, path + ".deleted")
            paths.append(path + ".deleted")
    return paths


def apply_retention(PartitionLog log, int64_t high_watermark):
    """Take away what time, size and the log start say; paths to unlink."""
    cdef Py_ssize_t count = retention.segments_due(
        log._segments, log.config, log.clock.now_ms(), log.log_start_offset, high_watermark)
    if not count or log.offline is not None:
        return []
    if count == len(log._segments):
        log.roll()
    log.delete_before(max(log.log_start_offset, log._segments[count - 1].end_offset))
    return remove_below_start(log)
