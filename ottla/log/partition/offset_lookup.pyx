"""Finds the batch of an offset in a segment's file: reads batch by batch, from an index entry on.

Each call gets the segment's file, the size of the segment's whole batches, and the segment's index.
They are not kept, since the segment may close and reopen its files between two calls
(`open_files`). Without an index a search begins at the first batch.
"""

cimport cython
from libc.stdint cimport INT64_MIN, int64_t, uint8_t

from ottla.log.files.batch_scan import SegmentDamaged
from ottla.log.files.disk cimport File
from ottla.log.files.index_file import IndexDamaged
from ottla.log.files.offset_index cimport OffsetIndex
cimport ottla.wire.batch as fields

cdef enum:
    # file reads of one search, which take half a millisecond; if a search needs more, the index
    # counts as incomplete
    READS_MAX = 500

# passed instead of an index entry's offset to a search that does not begin at an index entry
cdef int64_t UNLED = INT64_MIN


@cython.final
cdef class OffsetLookup:
    """Searches in one segment. Remembers two positions that are requested again and again: the last
    batch's position, and the position at which the latest read had to end."""

    def __cinit__(self):
        self.forget()

    cdef void forget(self) noexcept:
        """Forgets the positions that were found, after a truncation."""
        self.last_offset = self.last_position = self.bound_offset = self.bound_position = -1

    cdef void note_last(self, int64_t base_offset, int64_t position) noexcept:
        """Notes where the last batch of the segment begins."""
        self.last_offset, self.last_position = base_offset, position

    cdef int64_t take_last(self, int64_t size, Py_ssize_t *batch_size) noexcept:
        """The position and size of the segment's last batch, which `note_last` has noted."""
        self.after_gap = False
        batch_size[0] = size - self.last_position
        return self.last_position

    cdef void note_bound(self, int64_t offset, int64_t position) noexcept:
        """Notes the position that was found for `offset`, the end of a read."""
        self.bound_offset, self.bound_position = offset, position

    cdef int64_t entry_from(self, File file, OffsetIndex index, int64_t size,
                            int64_t index_interval, int64_t position) except -2:
        """The offset of the first index entry at `position` or later, -1 if there is none. Raises
        IndexDamaged, SegmentDamaged."""
        cdef Py_ssize_t entry = index.first_at(position), batch_size
        if entry == index.count:
            return -1
        self.scan(file, index, size, index_interval, 0, index.position_of(entry),
                  index.key_of(entry), &batch_size)
        return index.key_of(entry)

    cdef int64_t find(self, File file, OffsetIndex index, int64_t size, int64_t index_interval,
                      int64_t offset, Py_ssize_t *batch_size, int64_t enough) except -1:
        """The position of the first batch that ends at `offset` or later. `batch_size` and `enough`
        are those of IndexedSegment.position_for. Raises IndexDamaged, SegmentDamaged."""
        cdef Py_ssize_t entry, next_entry
        cdef int64_t position, end
        self.after_gap = False
        if index is None:
            return self.scan(file, index, size, index_interval, offset, 0, UNLED, batch_size)
        entry = index.find(offset)
        if entry < 0:
            return self.scan(file, index, size, index_interval, offset, 0, UNLED, batch_size)
        position = index.position_of(entry)
        if enough > 0 and index.key_of(entry) == offset - 1:
            # A sequential reader continues at `offset`. The entry's batch ends just before
            # `offset`, so the wanted batch begins where the entry's batch ends.
            position = batch_size[0] + self.scan(
                file, index, size, index_interval, offset - 1, position, offset - 1, batch_size)
            next_entry = entry + 1
            while next_entry < index.count and index.position_of(next_entry) <= position:
                next_entry += 1
            end = size
            if next_entry < index.count:
                end = index.position_of(next_entry)
                if index.key_of(next_entry) < offset or end > size - fields.HEADER_SIZE:
                    raise IndexDamaged(
                        f"{index.path}: the entry for offset {offset - 1} is followed by an entry"
                        " with a wrong offset or position")
            if 0 < end - position <= enough:
                batch_size[0] = end - position
                return position
            return self.scan(file, index, size, index_interval, offset, position, UNLED, batch_size)
        return self.scan(
            file, index, size, index_interval, offset, position, index.key_of(entry), batch_size)

    cdef int64_t scan(self, File file, OffsetIndex index, int64_t size, int64_t index_interval,
                      int64_t offset, int64_t position, int64_t expected,
                      Py_ssize_t *batch_size) except -1:
        """Reads batches from `position` on, up to the first that ends at `offset` or later.

        `expected` is the last offset of the index entry from which `position` comes, or UNLED if it
        comes from no entry. Raises SegmentDamaged; IndexDamaged if the entry is wrong, or if the
        search is long because entries are missing.
        """
        cdef uint8_t[CHUNK] chunk
        cdef Py_ssize_t held = 0, at = 0, reads = 0
        cdef int64_t batch, previous = -1, began = position
        if expected != UNLED and not 0 <= position <= size - fields.HEADER_SIZE:
            raise IndexDamaged(
                f"{index.path} points to position {position}, but the log file has only {size} "
                "bytes, too few for a batch at this position")
        while position + fields.HEADER_SIZE <= size:
            if at + fields.HEADER_SIZE > held:
                held = file.read_at(chunk, min(<int64_t>CHUNK, size - position), position)
                at = 0
                reads += 1
                if held < fields.HEADER_SIZE:
                    break
                if reads > READS_MAX and position - began > index_interval:
                    raise IndexDamaged(
                        f"the index of {file.path} lacks entries after position {began}")
            if expected != UNLED:
                if fields.magic(chunk) != 2 or fields.last_offset(chunk) != expected:
                    raise IndexDamaged(
                        f"{index.path} has a wrong entry: the log file has no batch at position "
                        f"{position} that ends with offset {expected}")
                expected = UNLED
            batch = fields.total_size(chunk + at)
            if (batch < fields.HEADER_SIZE or batch > size - position
                    or fields.magic(chunk + at) != 2
                    or fields.base_offset(chunk + at) <= previous):
                raise SegmentDamaged(
                    f"{file.path} has no valid batch at position {position}: the header has "
                    f"size {batch} ({size - position} bytes are left), "
                    f"magic {fields.magic(chunk + at)} (must be 2) and base offset "
                    f"{fields.base_offset(chunk + at)} (must be above {previous})",
                    position)
            previous = fields.last_offset(chunk + at)
            if previous >= offset:
                self.after_gap = fields.base_offset(chunk + at) > offset
                batch_size[0] = batch
                return position
            position += batch
            at += batch
        batch_size[0] = 0
        return size
