"""One data file of a partition with its offset index and its time index: lookups and rebuilds.

Files are opened when needed, and may be closed between two calls (`open_files`). The log file is
authoritative; an index that contradicts it is rebuilt (`index_rebuilds`). A segment of at most
index.interval.bytes has no indexes: scanning its few batches costs less than opening a file.

A lookup that finds a wrong index raises RebuildNeeded if the caller is `patient`: the caller waits
for a thread and repeats its call. For any other caller the index is rebuilt at once.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.aborted_index cimport AbortedIndex
from ottla.log.files.batch_scan cimport BatchScan, CheckedBatches
from ottla.log.files.batch_scan import SegmentDamaged, newest_in
from ottla.log.files.disk cimport File
from ottla.log.files.index_file import IndexDamaged
from ottla.log.files.offset_index cimport OffsetIndex
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.producers cimport Producers
from ottla.log.files.time_index cimport TimeIndex
from ottla.log.partition.offset_lookup cimport CHUNK, OffsetLookup
cimport ottla.wire.batch as fields


cdef class IndexedSegment(Openable):
    """A data file and the indexes that say where its batches are. `Segment` appends and truncates.
    """

    def __init__(self, disk, OpenFiles open_files, str directory, int64_t base_offset,
                 int64_t size=0, int64_t end_offset=-1, int64_t created_ms=0,
                 int64_t index_interval=4096):
        self.disk, self.open_files, self.directory = disk, open_files, directory
        self.base_offset, self.size, self.created_ms = base_offset, size, created_ms
        self.end_offset = max(end_offset, base_offset)
        self.index_interval, self.aborted = index_interval, AbortedIndex()
        self.lookup = OffsetLookup()
        self.first_timestamp = self.max_timestamp = self.max_timestamp_offset = -1
        self.times_known = size == 0
        self.sealed_size = -1

    def __repr__(self):
        return f"Segment({self.base_offset}..{self.end_offset}, {self.size} bytes)"

    def path(self, suffix):
        """The path of the file with this suffix, such as `.log`."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    # Files

    cdef File opened(self):
        self.used = True
        if self.file is None:
            self.open_files.add(self)
            self.file = self.disk.open(self.path(".log"), create=self.size == 0)
        return self.file

    def data_file(self):
        """The File of the batches, opened."""
        return self.opened()

    cdef int open_indexes(self, bint patient) except -1:
        if self.index is not None:
            return 0
        self.opened()
        if self.unindexed:
            return self.open_index_files(True)
        # A complete segment has both index files, a new segment has neither.
        missing = self.size and self.has_index_files() < 2
        self.open_index_files()
        if missing or self.index.torn or self.times.torn:
            self.index = self.times = None      # not to be used while the rebuild is pending
            self.rebuild_indexes(patient)
        return 0

    cdef int open_index_files(self, bint fresh=False) except -1:
        index = OffsetIndex(self.disk, self.path(".index"), self.base_offset, fresh)
        self.times = TimeIndex(self.disk, self.path(".timeindex"), self.base_offset, fresh)
        self.index = index
        return 0

    cdef int close_files(self) except -1:
        if self.index is not None:              # its entries may not be in the file yet
            self.index.write()
            self.times.write()
            # A small segment without indexes is scanned when it is opened again.
            self.unindexed = self.size <= self.index_interval and self.is_unindexed()
        self.file = self.index = self.times = None
        self.appendable = False
        self.aborted.release()
        return 0

    def close(self):
        """Closes the descriptors; a later use opens them again."""
        if self.file is not None:
            self.open_files.remove(self)
            self.close_files()

    def seal(self):
        """Writes the last index entries, before the segment is closed or the next one begins."""
        if self.size == self.sealed_size or (
                self.size <= self.index_interval and self.is_unindexed()):
            return
        self.open_indexes(False)
        self.load_times()
        if self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
        # Always writes both files: if only one existed, the other would count as lost.
        self.index.write(create=True)
        self.times.write(create=True)
        self.sealed_size = self.size

    cdef bint is_unindexed(self) except -1:
        """Whether the segment has neither index entries nor index files."""
        if self.index is not None:
            return self.index.count == 0 and self.index.file is None and self.times.file is None
        return self.has_index_files() == 0

    cdef int has_index_files(self) except -1:
        return self.disk.exists(self.path(".index")) + self.disk.exists(self.path(".timeindex"))

    # Find

    cdef int64_t position_for(
        self, int64_t offset, Py_ssize_t *batch_size, int64_t enough, bint patient
    ) except -1:
        """The position of the first batch that ends at `offset` or later; `size` if none does.

        `batch_size` is set to the batch's size. But if the index shows that the batch's position is
        at most `enough` bytes before the position of the next index entry, `batch_size` is set to
        this distance. The batch, which may not be in the page cache, is then not read.
        `lookup.after_gap` is set if the batch begins after `offset`.
        """
        if offset >= self.end_offset:
            batch_size[0] = 0
            return self.size
        if self.lookup.last_position >= 0 and offset >= self.lookup.last_offset:
            # A reader at the end of the log asks for the batch that was appended last.
            return self.lookup.take_last(self.size, batch_size)
        try:
            return self.find(offset, batch_size, enough, patient)
        except IndexDamaged:
            self.rebuild_indexes(patient)
            return self.find(offset, batch_size, enough, patient)

    cdef int64_t find(
        self, int64_t offset, Py_ssize_t *batch_size, int64_t enough, bint patient
    ) except -1:
        cdef OffsetIndex index = None
        if offset > self.base_offset and self.size > self.index_interval:
            self.open_indexes(patient)
            index = self.index
        return self.lookup.find(
            self.opened(), index, self.size, self.index_interval, offset, batch_size, enough)

    cdef int64_t bound_for(self, int64_t offset, bint patient) except -1:
        """Like `position_for`, for the offset at which a read ends. The result is kept, because
        consecutive reads often end at the same offset, such as the high watermark."""
        cdef Py_ssize_t size
        if offset != self.lookup.bound_offset:
            self.lookup.note_bound(offset, self.position_for(offset, &size, 0, patient))
        return self.lookup.bound_position

    cdef int64_t offset_after(self, int64_t position, bint patient) except -1:
        """An offset that is higher than all offsets of the batches before `position`. As in Kafka,
        only the index is used to find it."""
        if position >= self.size or self.size <= self.index_interval:
            return self.end_offset
        try:
            return self.entry_from(position, patient)
        except IndexDamaged:
            self.rebuild_indexes(patient)
            return self.entry_from(position, patient)

    cdef int64_t entry_from(self, int64_t position, bint patient) except -1:
        cdef int64_t offset
        self.open_indexes(patient)
        offset = self.lookup.entry_from(
            self.opened(), self.index, self.size, self.index_interval, position)
        return self.end_offset if offset < 0 else offset

    cdef void forget_lookups(self) noexcept:
        """Forgets the results of lookups after a truncation."""
        self.sealed_size = -1
        self.lookup.forget()

    def position_of(self, offset, bint patient=False):
        """The position of the first batch that ends at `offset` or later; `size` if none does."""
        cdef Py_ssize_t size
        return self.position_for(offset, &size, 0, patient)

    # Times

    def load_times(self, bint patient=False):
        """Reads the timestamp of the first batch and the highest timestamp from the files."""
        if self.times_known:
            return
        self.open_indexes(patient)
        if self.times_known:
            return
        if not self.ends_with_newest(patient):
            self.rebuild_indexes(patient)
        self.times_known = True

    cdef bint ends_with_newest(self, bint patient) except -1:
        """Whether the last entry of the time index has the segment's highest timestamp.

        A crash may have lost the last entries, or the file may belong to another segment. The
        headers of the batches from the last entry on are read. These batches usually have about
        index.interval.bytes.
        """
        cdef int64_t position = 0
        try:
            self.read_times()
            self.times_known = False            # the check below may raise RebuildNeeded
            if self.max_timestamp >= 0:
                position = self.position_of_entry(
                    self.max_timestamp, self.max_timestamp_offset, patient)
        except IndexDamaged:
            return False
        newest, _, problem = newest_in(BatchScan(self.opened(), position, self.size, CHUNK, True))
        return newest <= self.max_timestamp and problem is None

    def read_times(self):
        """Reads `first_timestamp` from the log file, and the highest one from the time index."""
        cdef uint8_t[fields.HEADER_SIZE] header
        self.first_timestamp = -1
        if self.size and (
                self.opened().read_at(header, fields.HEADER_SIZE, 0) == fields.HEADER_SIZE):
            self.first_timestamp = fields.max_timestamp(header)
        self.max_timestamp, self.max_timestamp_offset = self.times.last() or (-1, -1)
        self.times_known = True

    def largest_timestamp(self, bint patient=False):
        """The highest timestamp, in ms; the file's modification time if no batch has a timestamp or
        the segment is damaged."""
        self.load_times(patient)
        if self.max_timestamp >= 0 and self.fault is None:
            return self.max_timestamp
        return self.disk.modified_ms(self.path(".log"))

    cdef int64_t position_of_entry(
        self, int64_t timestamp, int64_t offset, bint patient
    ) except -1:
        """The position of the batch of a time index entry.

        Raises IndexDamaged if there is no such batch: then the entry is wrong.
        """
        cdef uint8_t[fields.HEADER_SIZE] header
        cdef Py_ssize_t size
        cdef int64_t position = self.position_for(offset, &size, 0, patient)
        if (not size
                or self.opened().read_at(header, fields.HEADER_SIZE, position) < fields.HEADER_SIZE
                or fields.max_timestamp(header) != timestamp
                or fields.last_offset(header) != offset):
            raise IndexDamaged(
                f"{self.times.path} has a wrong entry: no batch ends with offset {offset} and has "
                f"the largest timestamp {timestamp}")
        return position

    # Rebuild

    cdef int note(self, const uint8_t *batch, int64_t position, Py_ssize_t size) except -1:
        """Adds a batch at `position` to the indexes and timestamps."""
        cdef int64_t timestamp = fields.max_timestamp(batch)
        cdef int64_t last_offset = fields.last_offset(batch)
        assert last_offset >= self.end_offset, "the batch is out of order"
        if position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if self.since_index > self.index_interval:
            self.index.add(last_offset, position)
            if self.max_timestamp >= 0:
                self.times.add(self.max_timestamp, self.max_timestamp_offset)
            self.since_index = 0
        self.since_index += size
        self.end_offset = last_offset + 1
        return 0

    def reset_indexes(self):
        """Begin with empty indexes."""
        self.opened()
        if self.index is None:
            self.open_index_files()
        self.index.cut(0)
        self.times.cut(0)

    def rebuild_indexes(self, bint patient=False):
        """Rebuilds both indexes from the log file. A broker builds them in new files beside the old
        ones (`index_rebuilds`). Raises RebuildNeeded if the caller is `patient`; OSError,
        SegmentDamaged."""
        size, end_offset = self.size, self.end_offset
        if self.fault is None and self.open_files.rebuilds is not None:
            indexed = size > self.index_interval        # a smaller segment is rebuilt at once
            self.open_files.rebuilds.renew(self, indexed and patient)
        elif self.fault is None and (problem := self.rebuild(None, None, size, None, False)):
            # `rebuild` has ended the segment at the fault. Only the indexes shall end there, so the
            # segment's end is restored: readers of the batches, or the scrub, report the damage.
            self.size, self.end_offset = size, end_offset
            self.fault = SegmentDamaged(f"{self.path('.log')}: {problem[1]}", problem[0])
        elif self.fault is None:
            self.seal()
        if self.fault is not None:
            raise SegmentDamaged(str(self.fault), self.fault.position)

    cdef int adopt(self, IndexedSegment built, fault) except -1:
        """Uses the index files that `built` has put in the place of this segment's old ones.

        If `fault` is a SegmentDamaged, the indexes end there, and another rebuild would not help.
        """
        assert built.base_offset == self.base_offset
        self.index = self.times = None
        self.appendable = self.unindexed = False
        self.forget_lookups()
        self.first_timestamp, self.max_timestamp = built.first_timestamp, built.max_timestamp
        self.max_timestamp_offset = built.max_timestamp_offset
        self.fault, self.times_known = fault, True
        if self.file is not None:       # the caller continues with the new files
            self.open_index_files()
        return 0

    cdef int forget_rebuild(self) except -1:
        """Abandons a running rebuild of the indexes: the files change in another way than by an
        append."""
        self.fault = None
        if self.open_files.rebuilds is not None and self.open_files.rebuilds.running:
            self.open_files.rebuilds.forget(self.path(".log"))
        return 0

    def rebuild(self, Producers producers, epochs, int64_t file_size, aborted=None, checked=True):
        """Reads all batches, and rebuilds size, timestamps and both indexes from them.

        `producers` and `epochs` are updated too, unless None; `aborted` is called with the result
        of `Producers.update` for each aborted transaction. Returns None, or the position and text
        of a fault: the segment then ends at that position.
        """
        self.forget_rebuild()
        self.reset_indexes()
        self.end_offset, self.since_index = self.base_offset, 0
        self.first_timestamp = self.max_timestamp = self.max_timestamp_offset = -1
        self.times_known, self.appendable = True, False
        self.forget_lookups()
        return self.take_in(0, file_size, producers, epochs, aborted, checked)

    cdef object take_in(
        self, int64_t position, int64_t file_size, Producers producers, epochs, aborted,
        bint checked
    ):
        """Like `rebuild`, for the batches from a position on; verifies checksums if `checked`."""
        cdef const uint8_t *batch
        cdef int32_t epoch = -1
        cdef BatchScan scan = BatchScan(self.opened(), position, file_size)
        cdef CheckedBatches batches = CheckedBatches(scan, self.end_offset, checked)
        while True:
            batch = batches.next()
            if batch is NULL:
                break
            if self.since_index > self.index_interval:
                self.index.make_room()
                self.times.make_room()
            self.note(batch, scan.position, scan.size)
            if epochs is not None and fields.leader_epoch(batch) != epoch:
                epoch = fields.leader_epoch(batch)
                epochs.assign(epoch, fields.base_offset(batch))
            if producers is not None and fields.producer_id(batch) >= 0:
                ended = producers.update(batch, scan.size)
                if ended is not None and aborted is not None:
                    aborted(ended)
        self.size = scan.position
        return None if batches.problem is None else (scan.position, batches.problem)
