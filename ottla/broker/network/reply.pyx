# cython: boundscheck=False, wraparound=False
"""The output of a connection: bytes, with ranges of files in between.

Short ranges are copied together with the bytes around them and sent in one call; long ones never
pass through user space.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from ottla.broker.network.cold_reads cimport WARM_SIZE, is_resident, read_now
from ottla.broker.network.transport cimport Transport
from ottla.log.files.disk cimport File
from ottla.wire.codec cimport Writer

cdef enum:
    IN_REPLY_SIZE_MAX = 8192            # shorter ranges are copied when the reply is made
    COPY_SIZE_MAX = 1 << 17             # from this size on, sendfile costs less than copying
    GATHERED_SIZE_MAX = COPY_SIZE_MAX + (1 << 16)

cdef uint8_t gathered[GATHERED_SIZE_MAX]    # filled and sent in one go, so all connections share it


cdef class FileRange:
    cdef bint read_into(self, uint8_t *into) except -1:
        """Copy the rest of the range; returns False if that would wait for the disk."""
        cdef Py_ssize_t got
        if self.warm_upto < self.position + self.left:
            return read_now(self.file, into, self.left, self.position) == self.left
        got = self.file.read_at(into, self.left, self.position)
        if got != self.left:
            raise RangeLost(self.file.path, self.position, self.left, got)
        return True


class RangeLost(Exception):
    """A file no longer has the bytes that a reply has announced."""

    def __init__(self, path, position, size, got):
        super().__init__(f"{path} has only {got} of the {size} bytes expected at byte {position}")


cdef class Reply(Writer):
    """The replies of one connection in order; sent from the front while more are appended."""

    def __init__(self):
        self.ranges = []

    cdef int add_file(self, File file, int64_t position, Py_ssize_t size) except -1:
        """Add `size` bytes of a file; the caller has already written their length."""
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
        """Send the next bytes, up to `budget` bytes of a file; returns how many were sent.

        Returns -1 if the socket accepts no more, COLD if the next bytes have to be read from the
        disk first. Raises OSError for the socket or the disk, RangeLost if a file has become
        shorter.
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
            # A file without a descriptor, as in tests: copied like a short range.
            size = piece.file.read_at(gathered, min(size, GATHERED_SIZE_MAX), piece.position)
            sent = transport.send(gathered, size, True) if size else 0
        if sent == 0:
            raise RangeLost(piece.file.path, piece.position, piece.left, 0)
        return self.move_on(sent)

    cdef Py_ssize_t gather(self, bint *all_of_it) except -1:
        """Copy the next resident bytes to `gathered`; returns their number."""
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
        """Remove the sent bytes; returns `sent`, also if it is -1 (nothing was sent)."""
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
        """Note that the range that was COLD has been read into memory."""
        cdef FileRange piece = <FileRange>self.ranges[0]
        piece.warm_upto = piece.position + min(piece.left, WARM_SIZE)
        return 0

    cdef int clear(self) except -1:
        """Everything was sent: reuse the memory, or free it after a large reply."""
        self.size = self.sent = self.file_bytes = 0
        if self.room > 1 << 18:
            self.shrink()
        return 0

    cdef int cut(self, Py_ssize_t size, Py_ssize_t ranges) except -1:
        """Remove everything written after the first `size` bytes and `ranges` file ranges."""
        cdef Py_ssize_t i
        for i in range(ranges, len(self.ranges)):
            self.file_bytes -= (<FileRange>self.ranges[i]).left
        del self.ranges[ranges:]
        self.size = size
        return 0
