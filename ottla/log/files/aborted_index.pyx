"""The state of one segment's transaction index. The file is read only when it is needed."""

from libc.stdint cimport int64_t

from ottla.wire.marks cimport reached


cdef class AbortedIndex:
    """The size of a transaction index, whether it can be relied on, and its entries once read."""

    def note_size(self, int64_t size, int64_t expected=0):
        """Note the file's size. `expected` is its size when the broker last ran, or -1 if the index
        was distrusted then. If `expected` is -1 or above `size`, the index is distrusted now."""
        self.size = size
        if expected < 0 or expected > size:
            self.distrusted = True

    def distrust(self):
        """Have the index rebuilt from the batches before it is used."""
        self.distrusted = True

    def appended(self, int64_t size):
        """Note that this many bytes were appended to the file."""
        assert size > 0
        self.size += size
        self.unsynced = True

    def rebuilt(self, int64_t size):
        """Note that the file was rebuilt from the batches, and has this size."""
        self.size, self.distrusted = size, False

    def placed(self, int64_t size, entries, bint grown):
        """Note that a new file, made from the batches, has replaced the index's file, and has these
        entries. The index counts as distrusted until the new file's name is durable. `grown` means
        that the file got more entries after its sync, so it has to be synced again."""
        self.size, self.entries, self.distrusted = size, entries, True
        self.unsynced = self.unsynced or grown and size

    def named(self):
        """Note that the name of the file that was `placed` is durable."""
        self.distrusted = False

    def cut(self, int64_t size):
        """Note that the file was truncated to this size."""
        if size < self.size:
            reached("a truncation removed an aborted transaction")
        assert size >= 0
        self.size, self.entries = size, None

    def synced(self):
        """Note that the file is durable, or that a running flush will make it durable."""
        self.unsynced = False

    def keep(self, entries):
        """Keep the entries for the next reader until the segment's files are closed."""
        self.entries = entries

    def release(self):
        """Drop the entries; an empty list costs nothing and may stay."""
        if self.entries:
            self.entries = None
