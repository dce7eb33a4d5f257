"""The changes to one data file of a partition: append, truncate, close, rename.

`indexed_segment` has the file, its indexes and the lookups.
"""

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.batch_scan cimport BatchScan
from ottla.log.files.batch_scan import last_in, newest_in
from ottla.log.files.disk import is_passing
from ottla.log.files.index_file import IndexDamaged
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.producers cimport Producers
from ottla.log.partition.indexed_segment cimport IndexedSegment
from ottla.log.partition.offset_lookup cimport CHUNK
cimport ottla.wire.batch as fields


cdef class Segment(IndexedSegment):
    """The batches from `base_offset` on, up to the next segment's base."""

    cdef int configure(self, int64_t index_interval) except -1:
        """Puts at least this many bytes between two index entries from now on."""
        self.index_interval = index_interval
        return 0

    cdef int renamed(self, str directory) except -1:
        """Notes that the files are in another directory now."""
        self.forget_rebuild()
        self.directory = directory
        return 0

    cdef int share(self, OpenFiles open_files) except -1:
        """Counts the segment's open files against the limit of `open_files` from now on."""
        self.open_files = open_files
        if self.file is not None:
            open_files.add(self)
        return 0

    def forget(self):
        """Closes the descriptors of files that are about to be removed, without writing."""
        self.forget_rebuild()
        self.open_files.remove(self)
        self.file = self.index = self.times = None
        self.appendable = False

    def files_to_sync(self, sealed=False):
        """The Files that have to be synced before the recovery point may pass this segment."""
        files = [self.opened()]
        if sealed:
            self.open_indexes(False)
            files += self.index.files_to_sync() + self.times.files_to_sync()
        if self.aborted.unsynced:
            # If this index were lost, aborted records would look committed, and a cleaner would
            # make that permanent.
            files.append(self.disk.open(self.path(".txnindex")))
        return files

    def reserve(self, size):
        """Reserves disk space for a whole segment, if the disk has enough. Raises OSError."""
        try:
            self.opened().reserve(size)
            self.reserved = True
        except OSError as error:
            if not is_passing(error):
                raise
            self.trim()                 # the file system may have reserved a part of it

    def trim(self):
        """Releases the reserved space. Raises OSError."""
        self.opened().truncate(self.size)
        self.reserved = False

    # Append

    cdef int prepare_append(self, bint patient=False) except -1:
        """Opens all files and reads the timestamps that appends need."""
        if self.size == 0 and self.index is None:
            self.reset_indexes()
        self.opened().separate()
        self.open_indexes(patient)
        self.load_times(patient)
        self.since_index = self.size
        if self.index.count:
            self.since_index -= self.index.position_of(self.index.count - 1)
        self.appendable = True
        return 0

    cdef int append(self, const uint8_t *batch, Py_ssize_t size) except -1:
        """Writes a whole batch at the end. After an OSError the caller must call `undo`."""
        self.used = True
        if not self.appendable:
            self.prepare_append()
        if self.since_index > self.index_interval:
            self.index.make_room()      # steps that may fail come before the write
            self.times.make_room()
        self.file.write_at(batch, size, self.size)
        self.note(batch, self.size, size)
        self.lookup.note_last(fields.base_offset(batch), self.size)
        self.size += size
        return 0

    cdef int append_run(
        self, const uint8_t *batches, Py_ssize_t size, Py_ssize_t entries
    ) except -1:
        """Like `append`, for several whole batches that need at most `entries` index entries."""
        cdef const uint8_t *batch = batches
        self.used = True
        if not self.appendable:
            self.prepare_append()
        self.index.make_room(entries)
        self.times.make_room(entries)
        self.file.write_at(batches, size, self.size)
        while batch < batches + size:
            self.note(batch, self.size, fields.total_size(batch))
            self.lookup.note_last(fields.base_offset(batch), self.size)
            self.size += fields.total_size(batch)
            batch += fields.total_size(batch)
        return 0

    def undo(self):
        """Removes what a failed write left at the end. Raises OSError."""
        if self.file is not None:
            self.file.truncate(self.size)

    # Cut

    def truncate_to(self, offset):
        """Removes the batch that contains `offset` and everything after it. Raises OSError."""
        cdef Py_ssize_t size
        cdef int64_t position = self.position_for(offset, &size, 0, False)
        if position == self.size:
            return
        self.open_indexes(False)
        self.forget_rebuild()
        self.index.truncate_to(offset)
        self.times.truncate_to(offset)
        self.opened().truncate(position)
        assert 0 <= position < self.size
        self.size = position
        self.forget_lookups()
        self.learn_end()
        self.relearn_times()
        assert self.base_offset <= self.end_offset <= max(<int64_t>offset, self.base_offset)

    def learn_end(self, Producers producers=None, epochs=None, bint patient=False):
        """Finds the offset after the last batch by reading the batches from the last index entry
        on. Without an index entry, this reads all batches and updates `producers` and `epochs`, if
        given, from them. Raises SegmentDamaged."""
        try:
            self.find_end(producers, epochs, patient)
        except IndexDamaged:
            self.rebuild_indexes(patient)
            self.find_end(producers, epochs, patient)

    cdef int find_end(self, Producers producers, epochs, bint patient) except -1:
        cdef int64_t position = 0
        cdef Py_ssize_t ignored
        self.end_offset = self.base_offset
        if self.size > self.index_interval:
            self.open_indexes(patient)
        if self.size and self.index is not None and self.index.count:
            position = self.index.position_of(self.index.count - 1)
            self.lookup.scan(
                self.opened(), self.index, self.size, self.index_interval, 0, position,
                self.index.key_of(self.index.count - 1), &ignored)
        if self.size:
            last, position, self.end_offset = last_in(
                BatchScan(self.opened(), position, self.size, 4096, producers is None),
                producers, epochs)
            self.lookup.note_last(last, position)

    def relearn_times(self):
        """Reads the timestamps after a truncation, from the time index and from the batches after
        its last entry."""
        self.appendable = False
        self.read_times()
        newest, offset, _ = newest_in(BatchScan(
            self.opened(), self.position_of(self.max_timestamp_offset), self.size, CHUNK, True))
        if newest > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = newest, offset
