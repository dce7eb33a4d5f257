# cython: boundscheck=False, wraparound=False
"""What a connection sends: bytes, and between them ranges of files that never pass through user
space."""

from libc.stdint cimport int64_t

from ottla.log.disk cimport File
from ottla.wire.codec cimport Writer

cdef enum:
    # Below this a copy through the reply is cheaper than a system call of its own.
    SENDFILE_SIZE_MIN = 8192


cdef class FileRange:
    pass


cdef class Reply(Writer):
    """Replies of one connection in order, sent from the front while more are added behind."""

    def __init__(self):
        self.ranges = []

    cdef int add_file(self, File file, int64_t position, Py_ssize_t size) except -1:
        """Add `size` bytes of a file; the caller has written their length already."""
        cdef FileRange piece
        cdef Py_ssize_t got
        if size < SENDFILE_SIZE_MIN:
            got = file.read_at(self.more(size), size, position)
            if got != size:
                raise OSError(f"{size} bytes at {position} of a segment, {got} are there")
            return 0
        piece = FileRange.__new__(FileRange)
        piece.file, piece.position, piece.left, piece.after = file, position, size, self.size
        self.ranges.append(piece)
        self.file_bytes += size
        return 0

    cdef Py_ssize_t unsent(self) noexcept:
        return self.size - self.sent

    cdef int clear(self) except -1:
        """Everything was sent: start over in the same memory, or without it after a large reply."""
        self.size = self.sent = self.file_bytes = 0
        if self.room > 1 << 18:
            self.shrink()
        return 0

    cdef int cut(self, Py_ssize_t size, Py_ssize_t ranges) except -1:
        """Take back what was written since the reply had `size` bytes and `ranges` file ranges."""
        cdef Py_ssize_t i
        for i in range(ranges, len(self.ranges)):
            self.file_bytes -= (<FileRange>self.ranges[i]).left
        del self.ranges[ranges:]
        self.size = size
        return 0
