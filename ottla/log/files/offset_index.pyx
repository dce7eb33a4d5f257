"""The offset index of a segment: where in the log file to look for an offset."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.index_file cimport IndexFile
from ottla.wire.byteorder cimport load_int32, store_int32


cdef class OffsetIndex(IndexFile):
    """Kafka's `.index` file."""

    def __init__(self, disk, path, base_offset, fresh=False):
        super().__init__(disk, path, base_offset, 8, fresh)

    cdef int64_t key_of(self, Py_ssize_t index) except? -1:
        """The last offset of an entry's batch."""
        return self.base_offset + load_int32(self.entry(index))

    cdef int64_t position_of(self, Py_ssize_t index) except? -1:
        return load_int32(self.entry(index) + 4)

    cdef Py_ssize_t first_at(self, int64_t position) except -1:
        """The number of the first entry of a batch that begins at `position` or later."""
        cdef Py_ssize_t low = -1, high = self.count, middle
        while high - low > 1:
            middle = (low + high) >> 1
            if self.position_of(middle) < position:
                low = middle
            else:
                high = middle
        return high

    cdef int add(self, int64_t last_offset, int64_t position) except -1:
        cdef uint8_t *at
        assert last_offset >= self.base_offset and position >= 0
        at = self.add_entry()
        store_int32(at, <int32_t>(last_offset - self.base_offset))
        store_int32(at + 4, <int32_t>position)
        return 0

    def append(self, last_offset, position):
        """Add an entry for the batch at `position` which ends with `last_offset`."""
        self.make_room()
        self.add(last_offset, position)

    def lookup(self, offset):
        """A position at or before the batch that contains `offset`; 0 if all entries are after
        `offset`."""
        cdef Py_ssize_t entry = self.find(offset)
        return self.position_of(entry) if entry >= 0 else 0

    def truncate_to(self, offset):
        """Forget entries of batches that end at `offset` or later."""
        self.cut(self.find(offset - 1) + 1)

    def entries(self):
        """Every entry as (last offset of the batch, its position)."""
        return [(self.key_of(at), self.position_of(at)) for at in range(self.count)]
