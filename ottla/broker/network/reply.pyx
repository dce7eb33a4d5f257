# cython: boundscheck=False, wraparound=False
"""What a connection sends: bytes, and between them ranges of files.

Short ranges are copied together with the bytes around them and take one send; long ones never pass
through user space.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from ottla.broker.network.cold_reads cimport WARM_SIZE, is_resident, read_now
from ottla.broker.network.transport cimport Transport
from ottla.log.disk cimport File
from ottla.wire.codec cimport Writer

cdef enum:
    IN_REPLY_SIZE_MAX = 8192            # shorter ones become bytes of the reply when it is made
    COPY_SIZE_MAX = 1 << 17             # from here on sendfile costs less than the copies
    GATHERED_SIZE_MAX = COPY_SIZE_MAX + (1 << 16)

cdef uint8_t gathered[GATHERED_SIZE_MAX]    # filled and sent in one go, so one does for everybody


cdef class FileRange:
    cdef bint read_into(self, uint8_t *into) except -1:
        """Copy what is left, or say that a disk would have to be waited for."""
        cdef Py_ssize_t got
        if self.warm_upto < self.position + self.left:
            return read_now(self.file, into, self.left, self.position) == self.left
        got = self.file.read_at(into, self.left, self.position)
        if got != self.left:
            raise RangeLost(self.file.path, self.position, self.left, got)
        return True


class RangeLost(Exception):
    """A file does not have what a reply has promised of it."""

    def __init__(self, path, position, size, got):
        super().__init__(f"{path} has {got} of {size} bytes at {position}")


cdef class Reply(Writer):
    """Replies of one connection in order, sent from the front while more are added behind."""

    def __init__(self):
        self.ranges = []

    cdef int add_file(self, File file, int64_t position, Py_ssize_t size) except -1:
        """Add `size` bytes of a file; the caller has written their length already."""
        cdef FileRange piece
        cdef Py_ssize_t got
        if size < IN_REPLY_SIZE_MAX:
            got = file.read_at(self.more(size), size, position)
            if got != size:
                raise RangeLost(file.path, position, size, got)
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

        -1 where the socket takes no more, COLD where a disk would have to be waited for. Raises
        OSError for the socket or the disk, RangeLost where a file is shorter than it was.
        """
        cdef FileRange piece
        cdef Py_ssize_t before, size, sent
        cdef bint all_of_it
        if not self.ranges:
            return self.move_on(
                transport.send(self.data + self.sent, self.size - self.sent, False))
        piece = <FileRange>self.ranges[0]
        before = piece.after - self.sent
        if piece.left <= COPY_SIZE_MAX and before <= GATHERED_SIZE_MAX - COPY_SIZE_MAX:
            size = self.gather(&all_of_it)
            if size == 0:
                return COLD
            return self.move_on(transport.send(gathered, size, not all_of_it))
        if before:
            return self.move_on(transport.send(self.data + self.sent, before, True))
        if piece.position >= piece.warm_upto:
            size = min(piece.left, WARM_SIZE)
            if not is_resident(piece.file, piece.position, size):
                return COLD
            piece.warm_upto = piece.position + size
        size = min(piece.left, budget, piece.warm_upto - piece.position)
        if piece.file.fd >= 0:
            sent = transport.send_file(piece.file.fd, piece.position, size)
        else:
            # A file without a descriptor, as tests have: copied like a short range.
            size = piece.file.read_at(gathered, min(size, GATHERED_SIZE_MAX), piece.position)
            sent = transport.send(gathered, size, True) if size else 0
        if sent == 0:
            raise RangeLost(piece.file.path, piece.position, piece.left, 0)
        return self.move_on(sent)

    cdef Py_ssize_t gather(self, bint *all_of_it) except -1:
        """Copy what comes next and is resident to `gathered`: how many bytes that are."""
        cdef FileRange piece
        cdef Py_ssize_t before, size = 0, taken = self.sent
        all_of_it[0] = False
        for piece in self.ranges:
            before = piece.after - taken
            if (piece.left > COPY_SIZE_MAX or size + before + piece.left > GATHERED_SIZE_MAX
                    or not piece.read_into(gathered + size + before)):
                return size
            memcpy(gathered + size, self.data + taken, before)
            size += before + piece.left
            taken = piece.after
        before = min(self.size - taken, GATHERED_SIZE_MAX - size)
        memcpy(gathered + size, self.data + taken, before)
        all_of_it[0] = taken + before == self.size
        return size + before

    cdef Py_ssize_t move_on(self, Py_ssize_t sent) except? -3:
        """Forget what was sent; -1, for nothing, is handed on."""
        cdef FileRange piece
        cdef Py_ssize_t step, done = 0, left = sent
        for piece in self.ranges:
            if left <= 0:
                break
            step = min(left, piece.after - self.sent)
            self.sent += step
            left -= step
            step = min(left, piece.left)
            piece.position += step
            piece.left -= step
            left -= step
            done += piece.left == 0
        del self.ranges[:done]
        if left > 0:
            self.sent += left
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
