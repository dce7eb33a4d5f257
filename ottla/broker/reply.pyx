# cython: boundscheck=False, wraparound=False
"""What a connection sends: bytes, and between them ranges of files that never pass through user
space."""

from libc.stdint cimport int64_t

from ottla.broker.cold_reads cimport WARM_SIZE, is_resident
from ottla.broker.transport cimport Transport
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
        piece.warm_upto = position
        self.ranges.append(piece)
        self.file_bytes += size
        return 0

    cdef Py_ssize_t unsent(self) noexcept:
        return self.size - self.sent

    cdef Py_ssize_t send_some(self, Transport transport, Py_ssize_t budget) except? -3:
        """Send what comes next, up to `budget` bytes of a file: how many bytes that were.

        -1 where the socket takes no more, COLD where a disk would have to be waited for.
        """
        cdef FileRange piece = <FileRange>self.ranges[0] if self.ranges else None
        cdef Py_ssize_t sent, upto
        if piece is None or piece.after > self.sent:
            upto = self.size if piece is None else piece.after
            sent = transport.send(self.data + self.sent, upto - self.sent, piece is not None)
            if sent > 0:
                self.sent += sent
            return sent
        if piece.position >= piece.warm_upto:
            upto = min(piece.left, WARM_SIZE)
            if not is_resident(piece.file.fd, piece.position, upto):
                return COLD
            piece.warm_upto = piece.position + upto
        transport.cork(piece.after < self.size)
        sent = transport.send_file(
            piece.file.fd, piece.position,
            min(piece.left, budget, piece.warm_upto - piece.position))
        if sent > 0:
            piece.position += sent
            piece.left -= sent
            if piece.left == 0:
                del self.ranges[0]
        return sent

    cdef int warmed(self) except -1:
        """What was COLD has been read."""
        cdef FileRange piece = <FileRange>self.ranges[0]
        piece.warm_upto = piece.position + min(piece.left, WARM_SIZE)
        return 0

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
