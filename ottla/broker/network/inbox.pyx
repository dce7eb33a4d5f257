# cython: boundscheck=False, wraparound=False
"""The received bytes that are not handled yet: frames, the last of which may be incomplete.

    | size int32 | frame ... | size int32 | frame ... | size int32 | half of a fr
    begin                                                                        filled

Memory grows with the bytes that have arrived, never with the length that a frame announces.
"""

from libc.stdint cimport int16_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from ottla.broker.network.transport cimport Transport
from ottla.wire.byteorder cimport load_int16, load_int32

from ottla.wire.errors import MalformedMessage

cdef enum:
    SIZE = 4096                 # of a new inbox; the size doubles when the inbox is full
    SIZE_KEPT = 4 << 20         # a larger buffer is freed once its frame is handled
    LENGTH_SIZE = 4             # the length in front of each frame
    HEADER_SIZE_MIN = 8         # API key, version and correlation id; SASL tokens have no header
    PIECE_SIZE = 4096           # a receive of fewer bytes means that the frame arrives slowly
    FOREIGN_SIZE = 16           # a frame's first bytes, enough to recognise another protocol
    AWAITED_SIZE_MAX = 1 << 15  # never wait for more bytes: the receive window must hold them all


FOREIGN = (
    (b"\x16\x03", "TLS"), (b"SSH-", "SSH"), (b"PRI * HTTP/2", "HTTP/2"), (b"AMQP", "AMQP"),
    *((method, "HTTP") for method in (
        b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")),
)


def foreign_protocol(bytes start):
    """The other protocol whose traffic begins like this; None if no known protocol does."""
    for beginning, name in FOREIGN:
        if start.startswith(beginning):
            return name
    return None


cdef class Inbox:
    """The bytes of one connection, from begin to filled, in contiguous memory."""

    def __init__(self, Py_ssize_t frame_size_max):
        self.frame_size_min, self.frame_size_max = HEADER_SIZE_MIN, frame_size_max

    def __dealloc__(self):
        free(self.data)

    cdef Py_ssize_t held(self) noexcept:
        """The number of bytes held."""
        return self.filled - self.begin

    cdef Py_ssize_t receive(self, Transport transport) except? -1:
        """Receive as much as fits; returns the result of `Transport.receive`."""
        cdef Py_ssize_t size, got
        cdef uint8_t *into = self.space(&size)
        got = transport.receive(into, size)
        if got > 0:
            self.add(got)
        return got

    cdef uint8_t *space(self, Py_ssize_t *size) except NULL:
        """Return where to receive; `size` gets the number of bytes that fit there."""
        cdef Py_ssize_t wanted
        cdef uint8_t *grown
        if self.filled == self.room:
            wanted = max(2 * self.room, SIZE)
            grown = <uint8_t *>realloc(self.data, wanted)
            if grown is NULL:
                raise MemoryError(
                    f"out of memory: cannot allocate a receive buffer of {wanted} bytes")
            self.data, self.room = grown, wanted
        size[0] = self.room - self.filled
        return self.data + self.filled

    cdef int add(self, Py_ssize_t size) noexcept:
        """Note that `size` bytes have been received into `space`."""
        self.filled += size
        return 0

    cdef bint has_frame(self) except -1:
        """Whether the first frame is complete. Raises MalformedMessage if its length is invalid."""
        cdef Py_ssize_t size
        if self.filled - self.begin < LENGTH_SIZE:
            return False
        size = load_int32(self.data + self.begin)
        if size < self.frame_size_min or size > self.frame_size_max:
            spoken = foreign_protocol(
                self.data[self.begin : min(self.filled, self.begin + FOREIGN_SIZE)])
            if spoken is not None:
                raise MalformedMessage(f"the client speaks {spoken} on a port for Kafka's protocol")
            raise MalformedMessage(
                f"a frame has {size} bytes, but {self.frame_size_min} to {self.frame_size_max} are"
                " allowed")
        return self.filled - self.begin - LENGTH_SIZE >= size

    cdef int16_t api_key(self) noexcept:
        """The API key of the frame that `has_frame` found."""
        return load_int16(self.data + self.begin + LENGTH_SIZE)

    cdef uint8_t *take(self, Py_ssize_t *size) noexcept:
        """Take the frame that `has_frame` found; its bytes stay valid until `compact`."""
        cdef uint8_t *frame = self.data + self.begin + LENGTH_SIZE
        size[0] = load_int32(self.data + self.begin)
        self.begin += LENGTH_SIZE + size[0]
        return frame

    cdef int awaited(self, Py_ssize_t got) noexcept:
        """How many further bytes have to arrive before the next wake-up, after a receive of `got`
        bytes. If the frame arrives slowly and lacks at least PIECE_SIZE bytes, this is the number
        of missing bytes, up to AWAITED_SIZE_MAX; otherwise 1."""
        cdef Py_ssize_t missing
        if got >= PIECE_SIZE or self.held() < LENGTH_SIZE:
            return 1
        missing = load_int32(self.data + self.begin)
        missing += LENGTH_SIZE - self.held()
        return 1 if missing < PIECE_SIZE else <int>min(missing, AWAITED_SIZE_MAX)

    cdef int compact(self) except -1:
        """Move the remaining bytes to the front, over the bytes of handled frames."""
        if self.begin > 0:
            self.filled -= self.begin
            if self.filled > 0:
                memmove(self.data, self.data + self.begin, self.filled)
            self.begin = 0
        if self.room > SIZE_KEPT:
            self.trim()
        return 0

    cdef int trim(self) except -1:
        """Free the memory of an idle connection, or of a large frame."""
        if self.filled == 0 and self.room > SIZE:
            free(self.data)
            self.data, self.room = NULL, 0
        return 0
