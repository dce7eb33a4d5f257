"""The common part of a segment's two indexes: a file of fixed-size entries in ascending order.

Indexes are caches of the log file. Entries stay in memory until they fill a page, so that an append
causes no index write; a crash loses them, and recovery rebuilds them.
"""

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk import is_passing
from ottla.wire.errors import CorruptMessage


class IndexDamaged(CorruptMessage):
    """An index contradicts itself or its segment, and has to be rebuilt from the segment."""


class RebuildNeeded(Exception):
    """An index is not usable yet. The caller has to wait until `rebuild` is over, then try again.

    `rebuild` is an IndexRebuild or a Reread.
    """

    def __init__(self, rebuild):
        super().__init__(f"{rebuild.path}: an index is being rebuilt")
        self.rebuild = rebuild


cdef class IndexFile:
    """Entries of `entry_size` bytes, accessed by number."""

    def __init__(self, disk, str path, int64_t base_offset, int entry_size, bint fresh=False):
        """`fresh`: the file is known not to exist yet."""
        self.disk, self.path, self.base_offset = disk, path, base_offset
        self.entry_size = entry_size
        self.page_number = -1
        if fresh:
            return
        try:
            self.file = disk.open(path)
        except FileNotFoundError:
            return
        size = self.file.size()
        self.written = self.count = size // entry_size
        self.torn = size % entry_size != 0

    cdef const uint8_t *entry(self, Py_ssize_t index) except NULL:
        cdef Py_ssize_t page_entries = PAGE // self.entry_size
        cdef Py_ssize_t wanted, filled, size, got
        if index < 0 or index >= self.count:
            raise IndexError(f"{self.path} has {self.count} entries: entry {index} does not exist")
        if index >= self.written:
            return self.tail + (index - self.written) * self.entry_size
        wanted = index // page_entries
        if wanted != self.page_number or index - wanted * page_entries >= self.page_filled:
            filled = min(page_entries, self.written - wanted * page_entries)
            size = filled * self.entry_size
            self.page_number = -1
            try:
                got = self.file.read_at(self.page, size, wanted * page_entries * self.entry_size)
            except OSError as error:
                if is_passing(error):
                    raise
                raise IndexDamaged(f"{self.path} cannot be read: {error}") from error
            if got < size:
                raise IndexDamaged(f"{self.path} no longer has all of its {self.written} entries")
            self.page_number, self.page_filled = wanted, filled
        return self.page + (index - wanted * page_entries) * self.entry_size

    cdef int64_t key_of(self, Py_ssize_t index) except? -1:
        """The value by which the entries ascend; each subclass knows where in an entry it is."""
        raise NotImplementedError

    cdef Py_ssize_t page_start(self) noexcept:
        """The number of the first entry of the page in memory, -1 if there is none."""
        return self.page_number * (PAGE // self.entry_size) if self.page_number >= 0 else -1

    cdef Py_ssize_t find(self, int64_t key) except -2:
        """The number of the last entry whose key is not above `key`, -1 if there is none."""
        cdef Py_ssize_t low = -1, high = self.count, middle
        # Entries in memory are searched first: most lookups are near the end of the index or near
        # the previous lookup.
        if self.written < self.count:
            if self.key_of(self.written) <= key:
                low = self.written
            else:
                high = self.written
        middle = self.page_start()
        if low < middle < high and self.key_of(middle) <= key:
            low = middle
            middle += self.page_filled - 1
            if low < middle < high:
                if self.key_of(middle) <= key:
                    low = middle
                else:
                    high = middle
        # Invariant: entries up to low have keys <= key, entries from high on have keys > key.
        while high - low > 1:
            middle = (low + high) >> 1
            if self.key_of(middle) <= key:
                low = middle
            else:
                high = middle
        return low

    cdef int make_room(self, Py_ssize_t entries=1) except -1:
        """Writes the pending entries if `entries` more would not fit. Called before an append: once
        the batch is in the log file, nothing may fail."""
        if (self.count - self.written + entries) * self.entry_size > PAGE:
            self.write()
        return 0

    cdef uint8_t *add_entry(self) except NULL:
        """Adds one more entry; `make_room` has been called before."""
        assert (self.count - self.written + 1) * self.entry_size <= PAGE
        self.count += 1
        return self.tail + (self.count - 1 - self.written) * self.entry_size

    def write(self, bint create=False):
        """Writes the pending entries; an index without entries has no file, unless `create`."""
        if self.file is None and (create or self.count > self.written):
            self.file = self.disk.open(self.path, create=True)
        if self.count > self.written:
            self.file.write_at(
                self.tail,
                (self.count - self.written) * self.entry_size,
                self.written * self.entry_size,
            )
            self.written = self.count

    def cut(self, Py_ssize_t count):
        """Keep the first `count` entries."""
        if count < self.written:
            self.file.truncate(count * self.entry_size)
            self.written = count
            self.page_number = -1
        self.count = min(count, self.count)
        assert 0 <= self.written <= self.count

    def files_to_sync(self):
        """Writes the pending entries; returns the files to sync: this one, or none if there is no
        file."""
        self.write()
        return [] if self.file is None else [self.file]
