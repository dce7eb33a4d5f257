"""The time index of a segment: from which offset to search for a timestamp."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.index_file cimport IndexFile
from ottla.wire.byteorder cimport load_int32, load_int64, store_int32, store_int64


cdef class TimeIndex(IndexFile):
    """Kafka's `.timeindex` file."""

    def __init__(self, disk, path, base_offset, fresh=False):
        super().__init__(disk, path, base_offset, 12, fresh)

    cdef int64_t key_of(self, Py_ssize_t index) except? -1:
        """The timestamp of an entry."""
        return load_int64(self.entry(index))

    cdef int64_t offset_of(self, Py_ssize_t index) except? -1:
        return self.base_offset + load_int32(self.entry(index) + 8)

    cdef int add(self, int64_t timestamp, int64_t offset) except -1:
        """Adds an entry if its timestamp is above the last entry's. The caller has called
        `make_room`."""
        cdef uint8_t *at
        if self.count and self.key_of(self.count - 1) >= timestamp:
            return 0
        assert offset >= self.base_offset
        if offset - self.base_offset > 0x7fffffff:
            return 0                    # a batch after a gap that no index can span (`must_roll`)
        at = self.add_entry()
        store_int64(at, timestamp)
        store_int32(at + 8, <int32_t>(offset - self.base_offset))
        return 0

    def append(self, timestamp, offset):
        """Adds an entry if its timestamp is above the last entry's."""
        self.make_room()
        self.add(timestamp, offset)

    def lookup(self, timestamp):
        """The offset from which to search: batches that end before it are older than `timestamp`.

        The segment's base offset if every entry is newer.
        """
        cdef Py_ssize_t entry = self.find(timestamp)
        return self.offset_of(entry) if entry >= 0 else self.base_offset

    def last(self):
        """The highest timestamp and the last offset of its batch, or None when empty."""
        if not self.count:
            return None
        return self.key_of(self.count - 1), self.offset_of(self.count - 1)

    cdef Py_ssize_t first_from(self, int64_t offset) except -1:
        """The number of the first entry of a batch that ends at `offset` or later."""
        cdef Py_ssize_t low = -1, high = self.count, middle
        while high - low > 1:
            middle = (low + high) >> 1
            if self.offset_of(middle) < offset:
                low = middle
            else:
                high = middle
        return high

    def before(self, offset):
        """The last entry for a batch that ends before `offset`, as (timestamp, last offset of the
        batch); None if there is none."""
        cdef Py_ssize_t entry = self.first_from(offset) - 1
        return (self.key_of(entry), self.offset_of(entry)) if entry >= 0 else None

    def truncate_to(self, offset):
        """Forget entries of batches that end at `offset` or later."""
        self.cut(self.first_from(offset))

    def entries(self):
        """Every entry as (timestamp, last offset of its batch)."""
        return [(self.key_of(at), self.offset_of(at)) for at in range(self.count)]
