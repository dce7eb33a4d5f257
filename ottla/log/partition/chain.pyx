"""The segments of one log: which is active, when the next one begins, and where an offset lies.

Everything that changes the list of segments is a method of `SegmentChain`; the consequences for the
log's offsets, producers and flushes are handled by `PartitionLog`.
"""

from zlib import crc32

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files import swaps
from ottla.log.files.clock cimport Clock
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.transaction_index import ENTRY, AbortedTransaction, TransactionIndex
from ottla.log.partition.segment cimport Segment
cimport ottla.wire.batch as fields

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


cdef class LogSlice:
    """Contiguous bytes of one segment: batches, the last of which may be cut off."""

    def read(self):
        """The bytes, read from the file."""
        return self.file.pread(self.size, self.position) if self.size else b""


cdef bint gap_is_sound(Segment segment, int64_t position) except -1:
    """Whether compaction left the gap of offsets before the batch at `position`.

    The other possible cause is a damaged base offset, which no checksum covers. Compaction left the
    gap if the next batch, or the segment's end, follows the last offset of the batch at `position`;
    otherwise the base offset is damaged.
    """
    cdef uint8_t[fields.HEADER_SIZE] header
    cdef int64_t last
    if segment.opened().read_at(header, fields.HEADER_SIZE, position) < fields.HEADER_SIZE:
        return False
    last = fields.last_offset(header)
    position += <int64_t>fields.total_size(header)
    if position == segment.size:
        return last + 1 == segment.end_offset
    if segment.opened().read_at(header, fields.HEADER_SIZE, position) < fields.HEADER_SIZE:
        return False
    return fields.magic(header) == 2 and fields.base_offset(header) > last


cdef bint ends_where_next_begins(Segment segment, bint patient) except -1:
    """Whether the last batch of a sealed segment ends at the end of the file and at `end_offset`.

    Compaction always keeps the last batch of a segment. So False means that the file is damaged, or
    belongs to another partition.
    """
    cdef uint8_t[fields.HEADER_SIZE] header
    cdef Py_ssize_t size = 0
    cdef int64_t position = segment.position_for(segment.end_offset - 1, &size, 0, patient)
    if segment.opened().read_at(header, fields.HEADER_SIZE, position) < fields.HEADER_SIZE:
        return False
    return (position + size == segment.size
            and fields.last_offset(header) + 1 == segment.end_offset)


cdef class SegmentChain:
    """The segments of one log, ascending."""

    def __init__(self, disk, Clock clock, OpenFiles open_files, str directory, config,
                 list segments):
        self.disk, self.clock, self.open_files = disk, clock, open_files
        self.directory, self.segments, self.unwritten = directory, segments, []
        self.active = segments[-1] if segments else None
        for number in range(1, len(segments)):
            assert segments[number - 1].end_offset <= segments[number].base_offset, (
                "segments overlap")
        self.configure(config)

    cdef int configure(self, config) except -1:
        """Apply a topic's settings."""
        cdef Segment segment
        self.config = config
        self.segment_bytes, self.segment_ms = config.segment_bytes, config.segment_ms
        if config.compacts:
            # The active segment is never cleaned: roll it in time, so that its records can be
            # cleaned.
            self.segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        self.index_entries_max = max(1, config.segment_index_bytes // 12)
        # Offsets in indexes are relative, and 32 bits wide.
        self.offset_span_max = 0x7fffffff
        for segment in self.segments:
            segment.configure(config.index_interval_bytes)
        return 0

    cdef int share(self, OpenFiles open_files) except -1:
        """Uses a limit on open files that other logs share."""
        cdef Segment segment
        self.open_files = open_files
        for segment in self.segments:
            segment.share(open_files)
        return 0

    cdef int set_directory(self, str directory) except -1:
        """Notes that the files have moved to another directory."""
        cdef Segment segment
        self.directory = directory
        for segment in self.segments:
            segment.renamed(directory)
        return 0

    def close(self):
        """Closes all files."""
        for segment in self.segments:
            segment.close()

    cdef int forget(self) except -1:
        """Closes all files, which are about to be removed, without writing anything."""
        cdef Segment segment
        for segment in self.segments:
            segment.forget()
        return 0

    cdef int64_t size_bytes(self) except -1:
        """Size of all segments' batches in bytes."""
        cdef Segment segment
        cdef int64_t size = 0
        for segment in self.segments:
            size += segment.size
        return size

    cdef Py_ssize_t number_of(self, int64_t offset) except -2:
        """The index of the last segment with a base offset up to `offset`, -1 if there is none."""
        cdef Py_ssize_t low = -1, high = len(self.segments), middle
        if self.active is not None and offset >= self.active.base_offset:
            return high - 1
        while high - low > 1:
            middle = (low + high) >> 1
            if (<Segment>self.segments[middle]).base_offset <= offset:
                low = middle
            else:
                high = middle
        return low

    cdef int64_t aborted_bytes(self) except -1:
        """Size of all segments' transaction indexes in bytes. Raises OSError."""
        cdef int64_t size = 0
        for segment in self.segments:
            path = segment.path(".txnindex")
            if self.disk.exists(path):
                size += self.disk.size(path)
        return size

    cdef int64_t aborted_found(self) except -1:
        """`aborted_bytes`, but from memory. Correct only right after the segments were loaded."""
        cdef Segment segment
        cdef int64_t size = 0
        for segment in self.segments:
            size += segment.aborted.size
        return size

    cdef dict aborted_sizes(self, int64_t below):
        """Sizes of the transaction indexes by base offset, for the segments before the one that
        contains `below`; -1 for an index that has to be rebuilt."""
        cdef Segment segment
        return {
            segment.base_offset: -1 if segment.aborted.distrusted else segment.aborted.size
            for segment in self.segments[:max(self.number_of(below), 0)]
            if segment.aborted.size or segment.aborted.distrusted}

    cdef int distrust_aborted(self) except -1:
        """Has each transaction index rebuilt from the batches before it is used."""
        cdef Segment segment
        for segment in self.segments:
            segment.aborted.distrust()
        return 0

    cdef bint distrusts_aborted(self) except -1:
        """Whether any transaction index has to be rebuilt. A file's size alone does not show this:
        new entries may have given a file that was too short the expected size again."""
        cdef Segment segment
        for segment in self.segments:
            if segment.aborted.distrusted:
                return True
        return False

    # Roll

    cdef bint must_roll(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1:
        """Whether a batch needs a new segment."""
        cdef Segment segment = self.active
        cdef int64_t waited
        if segment.size == 0:
            # Also if a follower's first batch is too far from the log's end for the indexes: it is
            # alone in its segment then, and gets no index entry.
            return False
        if last_offset - segment.base_offset > self.offset_span_max:
            return True
        if segment.size + size > self.segment_bytes:
            return True
        if not segment.appendable:
            segment.prepare_append()
        if segment.index.count >= self.index_entries_max:
            return True
        # Age is measured by the batches' own timestamps, so that a copy of a log rolls at the same
        # offsets.
        if segment.first_timestamp >= 0:
            waited = fields.max_timestamp(batch) - segment.first_timestamp
        else:
            waited = self.clock.now_ms() - segment.created_ms
        return waited > self.segment_ms and waited > self.segment_ms - self.early_ms()

    cdef int64_t early_ms(self) except -1:
        """How much earlier the active segment rolls, so that partitions roll at different times."""
        if not self.config.segment_jitter_ms:
            return 0
        span = min(self.config.segment_jitter_ms, self.segment_ms)
        return crc32(f"{self.directory} {self.active.base_offset}".encode()) % (span + 1)

    cdef Segment begin(self, int64_t base_offset):
        """Begins a segment; the active one has batches, and must be sealed already. Raises OSError:
        the active segment then stays, and may get further batches."""
        assert self.active is None or self.active.size, "an empty segment takes the next batch"
        cdef Segment segment = Segment(
            self.disk, self.open_files, self.directory, base_offset,
            created_ms=self.clock.now_ms(), index_interval=self.config.index_interval_bytes)
        try:
            segment.prepare_append()
            if self.config.preallocate:
                segment.reserve(self.segment_bytes)
        except OSError:
            # A start would take an empty file left here for the log's last segment. It would hide
            # the batches that the active segment gets until the next attempt.
            self.remove_files(segment)
            raise
        assert not self.segments or self.segments[-1].end_offset <= base_offset, "segments overlap"
        self.segments.append(segment)
        self.active = segment
        return segment

    cdef int seal_active(self) except -1:
        """Writes the pending entries to the active segment's indexes. Raises OSError."""
        self.write_aborted()
        self.active.seal()
        assert not self.unwritten
        if self.config.preallocate or self.active.reserved:
            # Release the space reserved after the last batch.
            self.active.trim()
        return 0

    # Read

    cdef int read(self, LogSlice slice, Py_ssize_t size_max, bint at_least_one,
                  int64_t upto_offset, bint patient) except -1:
        """Fills in `slice`: batches of one segment, from `slice.first_offset` up to `upto_offset`.

        The first batch is always complete; if it has more than `size_max` bytes, it is returned
        only with `at_least_one`. Returns 1 if the offset lies in a gap that compaction cannot have
        left; otherwise 0.
        """
        cdef int skipped = 0
        cdef Segment segment
        cdef Py_ssize_t number = max(self.number_of(slice.first_offset), 0), batch_size = 0
        cdef int64_t start = 0, end, room
        while True:
            segment = self.segments[number]
            start = segment.position_for(slice.first_offset, &batch_size, size_max, patient)
            if batch_size or number + 1 == len(self.segments):
                break
            number += 1
            skipped = 1
        if not batch_size:
            return skipped
        if segment.lookup.after_gap and not skipped:
            skipped = not gap_is_sound(segment, start)
            if start == 0 and not skipped:
                # A gap before a segment can also mean a missing segment or a file of another
                # partition.
                skipped = (segment is self.active or slice.first_offset < segment.base_offset
                           or not ends_where_next_begins(segment, patient))
        # The position of upto_offset is looked up only if it lies in this segment.
        if upto_offset >= segment.end_offset:
            end = segment.size
        else:
            end = segment.bound_for(upto_offset, patient)
        room = end - start
        if room <= 0:
            return skipped
        if size_max < batch_size:
            # A partial first batch is useless: it is sent whole or not at all (KIP-74).
            if not at_least_one:
                return skipped
            size_max = batch_size
        slice.size = min(room, <int64_t>size_max)
        slice.ends_segment = (
            slice.size == room and end == segment.size and number + 1 < len(self.segments))
        slice.position, slice.segment = start, segment
        assert 0 <= start < start + slice.size <= segment.size, "the slice exceeds its segment"
        slice.file = segment.opened()
        return skipped

    # Aborted transactions

    cdef int note_aborted(self, tuple aborted) except -1:
        """Writes an aborted transaction to the index of the active segment, where its marker is.

        The marker is already in the log; without the entry, aborted records would look committed.
        If the entry does not fit on a full disk, it is kept in memory, and no flush completes
        before it is written. Raises OSError.
        """
        entry = AbortedTransaction(*aborted)
        if self.active.aborted.entries is not None:
            self.active.aborted.entries.add(entry)
        self.unwritten.append((self.active, entry))
        return self.write_aborted()

    cdef list waiting(self, Segment segment):
        """The aborted transactions of a segment that are not yet in its index (full disk)."""
        return [entry for where, entry in self.unwritten if where is segment]

    cdef int forget_waiting(self, Segment segment) except -1:
        """Notes that a segment's transaction index was rebuilt."""
        self.unwritten = [each for each in self.unwritten if each[0] is not segment]
        return 0

    cdef int write_aborted(self) except -1:
        """Writes the pending entries of the transaction indexes. Raises OSError."""
        while self.unwritten:
            segment, aborted = self.unwritten[0]
            TransactionIndex(self.disk, segment.path(".txnindex")).append(aborted)
            segment.aborted.appended(ENTRY.size)
            self.unwritten.pop(0)
        return 0

    # Truncation. `cut_to` and `clear` copy the list of segments before they change it: a cleaner
    # abandons its work when it sees another list.

    cdef list cut_to(self, int64_t offset):
        """Removes the segments from `offset` on, and the end of the segment that contains `offset`.

        Returns the removed segments. The caller must call `sync_cut` afterwards. Raises OSError.
        """
        cdef list removed = []
        self.segments = list(self.segments)
        # The last segment goes first, so that a valid log remains if this is interrupted.
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            removed.append(self.segments.pop())
            self.active = self.segments[-1]
            self.remove_files(removed[-1])
        self.active.truncate_to(offset)
        end = self.active.end_offset
        self.unwritten = [each for each in self.unwritten if each[1].last_offset < end]
        assert self.active is self.segments[-1]
        assert end <= max(offset, self.active.base_offset), "the log was not truncated"
        return removed

    cdef int sync_cut(self) except -1:
        """Makes a truncation durable. Without this, removed batches could survive a crash and
        follow newer batches. Recovery would take them for valid. Raises OSError."""
        self.disk.sync_directory(self.directory)
        self.active.data_file().sync()
        index = TransactionIndex(self.disk, self.active.path(".txnindex"))
        self.active.aborted.cut(index.truncate_to(self.active.end_offset))
        return 0

    cdef int clear(self) except -1:
        """Removes all segments and their files. Raises OSError."""
        self.segments = list(self.segments)
        self.unwritten.clear()
        while self.segments:
            self.remove_files(self.segments.pop())
        self.active = None
        return 0

    cdef int remove_files(self, Segment segment) except -1:
        """Deletes a segment's files immediately. Readers that hold its File can still read."""
        segment.forget()
        for suffix in SUFFIXES:
            self.disk.unlink(segment.path(suffix))
        return 0

    cdef list take_away(self, Segment segment):
        """Removes a segment; its files are renamed to `.deleted`. Returns their new paths.

        Readers that hold a File can still read. Raises OSError.
        """
        assert segment is not self.active, "the active segment would be removed"
        segment.forget()
        paths = self.put_aside(segment)
        self.segments.remove(segment)
        return paths

    cdef list put_aside(self, Segment segment):
        paths = []
        for suffix in SUFFIXES:
            path = segment.path(suffix)
            if self.disk.exists(path):
                self.disk.rename(path, path + ".deleted")
                paths.append(path + ".deleted")
        return paths

    cdef list replace(self, list sources, Segment cleaned):
        """Replaces `sources` by `cleaned`. Returns the new paths of the replaced files.

        Once `.log.swap` exists, recovery from a crash keeps the cleaned segment; before that, it
        keeps the sources (`swaps`). The transaction index is renamed to `.swap` before the log
        file, so recovery never keeps the cleaned segment without its index. Raises OSError.
        """
        cdef Segment segment, new
        cdef int64_t end_offset = sources[len(sources) - 1].end_offset
        paths = []
        cleaned.forget()
        new = Segment(
            self.disk, self.open_files, self.directory, cleaned.base_offset, cleaned.size,
            end_offset, self.clock.now_ms(), self.config.index_interval_bytes)
        present = [
            suffix for suffix in swaps.SUFFIXES if self.disk.exists(cleaned.path(suffix))]
        for suffix in present:
            self.disk.rename(cleaned.path(suffix), new.path(suffix) + swaps.SWAP)
        if ".txnindex" in present:
            new.aborted.note_size(self.disk.size(new.path(".txnindex") + swaps.SWAP))
        for segment in sources:
            segment.forget()
            paths += self.put_aside(segment)
        for suffix in sorted(present, key=".log".__ne__):
            self.disk.rename(new.path(suffix) + swaps.SWAP, new.path(suffix))
        at = self.segments.index(sources[0])
        self.segments[at:at + len(sources)] = [new]
        assert self.active is self.segments[-1], "the active segment was replaced"
        assert end_offset <= self.segments[at + 1].base_offset, "segments overlap"
        return paths
