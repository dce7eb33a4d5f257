# cython: boundscheck=False, wraparound=False
"""TLS over a socket, with the standard library's `ssl` between two memory buffers.

    socket -> recv -> incoming -> tls.read  -> the connection's inbox
    socket <- send <- outgoing <- tls.write <- replies, ranges of files

A call encrypts at most RECORDS_SIZE_MAX bytes, so that a large reply is sent in pieces and other
connections have their turn. Records that the socket does not accept stay in `unsent`: the call
returns -1, and a later call reports their bytes once they are sent.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t

from ottla.broker.network.transport cimport Transport

import ssl

cdef extern from "<sys/types.h>" nogil:
    ctypedef Py_ssize_t ssize_t
    ctypedef int64_t off_t

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_NOSIGNAL
        MSG_MORE
    ssize_t recv(int fd, void *into, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void *into, size_t size, off_t position)

cdef enum:
    RECEIVE_SIZE = 1 << 16
    FILE_PIECE_SIZE = 1 << 17           # bytes of a file that are read in one go
    RECORDS_SIZE_MAX = 1 << 18

cdef uint8_t received[RECEIVE_SIZE]     # filled and consumed in one go, so all connections share it
cdef uint8_t piece[FILE_PIECE_SIZE]

WantRead, WantWrite = ssl.SSLWantReadError, ssl.SSLWantWriteError
End = ssl.SSLZeroReturnError, ssl.SSLEOFError


cdef class TlsTransport(Transport):
    """A TCP socket, non-blocking, after its TLS handshake."""

    def __init__(self, sock, tls, incoming, outgoing):
        Transport.__init__(self, sock)
        self.tls, self.incoming, self.outgoing = tls, incoming, outgoing

    cdef Py_ssize_t receive(self, uint8_t *into, Py_ssize_t size) except? -1:
        cdef Py_ssize_t got, total = 0
        if self.pending() == 0:
            got = self.fill()
            if got <= 0:
                return got
        view = PyMemoryView_FromMemory(<char *>into, size, PyBUF_WRITE)
        while total < size:
            try:
                got = self.tls.read(size - total, view[total:])
            except WantRead:
                self.starved = True
                break
            except End:
                got = 0
            if got == 0:
                return total            # at the end, the call after the last bytes returns 0
            total += got
            if self.incoming.pending == 0 and self.tls.pending() == 0:
                break
        return total if total > 0 else -1

    cdef Py_ssize_t fill(self) except? -1:
        """Receive records; returns the number of bytes, 0 at the end, -1 if none have arrived."""
        cdef Py_ssize_t got = self.moved(recv(self.fd, received, RECEIVE_SIZE, 0))
        if got > 0:
            self.incoming.write(PyMemoryView_FromMemory(<char *>received, got, PyBUF_READ))
            self.starved = False
        return got

    cdef Py_ssize_t pending(self) noexcept:
        # An incomplete record needs more bytes from the socket.
        if self.starved:
            return 0
        return self.incoming.pending + self.tls.pending()

    cdef int wait_for(self, int size) except -1:
        """Do nothing: `size` counts plaintext, but the kernel could only count encrypted bytes. So
        each piece that arrives causes a wake-up."""
        return 0

    cdef Py_ssize_t send(self, const uint8_t *data, Py_ssize_t size, bint more) except? -1:
        cdef Py_ssize_t taken
        if self.unsent is not None and not self.push(more):
            return -1
        if self.accepted > 0:
            taken, self.accepted = self.accepted, 0
            return taken
        view = PyMemoryView_FromMemory(<char *>data, min(size, RECORDS_SIZE_MAX), PyBUF_READ)
        taken = 0
        while taken < len(view):
            taken += self.tls.write(view[taken:])
        if taken == 0:
            return 0
        self.unsent, self.unsent_at = self.outgoing.read(), 0
        if self.push(more):
            return taken
        self.accepted = taken
        return -1

    cdef bint push(self, bint more) except -1:
        """Send records; returns whether all of them were sent."""
        cdef Py_ssize_t size = len(self.unsent), sent
        while self.unsent_at < size:
            sent = self.moved(c_send(
                self.fd, PyBytes_AS_STRING(self.unsent) + self.unsent_at, size - self.unsent_at,
                MSG_NOSIGNAL | (MSG_MORE if more else 0)))
            if sent < 0:
                return False
            self.unsent_at += sent
        self.unsent = None
        return True

    cdef Py_ssize_t send_file(self, int fd, int64_t position, Py_ssize_t size) except? -1:
        cdef Py_ssize_t got
        if self.unsent is not None or self.accepted > 0:
            return self.send(piece, 0, False)
        got = self.moved(pread(fd, piece, min(size, <Py_ssize_t>FILE_PIECE_SIZE), position))
        return got if got <= 0 else self.send(piece, got, False)

    def close(self):
        """Send a close_notify alert if the socket accepts it, and close the socket."""
        try:
            if self.unsent is None:
                try:
                    self.tls.unwrap()
                except (WantRead, WantWrite):
                    pass
                self.unsent, self.unsent_at = self.outgoing.read(), 0
                self.push(False)
        except OSError:
            pass
        self.sock.close()
