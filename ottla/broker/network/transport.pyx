"""A connection's access to its socket: receive, send, send a range of a file.

Each of these three operations returns how many bytes it moved. It returns 0 at the end of the
stream or of the file, and -1 if the socket is not ready. It raises OSError for everything else.
After -1, the next call has to offer the same bytes again: TLS may already have accepted some of
them, and the next call reports these as sent.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t

import os


cdef extern from "<sys/types.h>" nogil:
    ctypedef Py_ssize_t ssize_t
    ctypedef int64_t off_t

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_NOSIGNAL
        MSG_MORE
        SOL_SOCKET
        SO_RCVLOWAT
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)
    ssize_t recv(int fd, void *into, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int to, int source, off_t *position, size_t size)


cdef class Transport:
    """A plain TCP socket, non-blocking."""

    def __init__(self, sock):
        self.sock = sock
        self.fd = sock.fileno()
        self.awaited = 1

    cdef Py_ssize_t receive(self, uint8_t *into, Py_ssize_t size) except? -1:
        return self.moved(recv(self.fd, into, size, 0))

    cdef Py_ssize_t pending(self) noexcept:
        """The number of received bytes buffered here, for which the socket reports no further
        event."""
        return 0

    cdef int wait_for(self, int size) except -1:
        """Have the socket reported as readable only once `size` bytes or the end of the stream have
        arrived.

        Otherwise each piece of a frame that arrives slowly would cause a wake-up of its own.
        """
        if self.awaited != size:
            self.awaited = size
            self.moved(setsockopt(self.fd, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof(size)))
        return 0

    cdef Py_ssize_t send(self, const uint8_t *data, Py_ssize_t size, bint more) except? -1:
        return self.moved(c_send(self.fd, data, size, MSG_NOSIGNAL | (MSG_MORE if more else 0)))

    cdef Py_ssize_t send_file(self, int fd, int64_t position, Py_ssize_t size) except? -1:
        cdef off_t at = position
        return self.moved(sendfile(self.fd, fd, &at, size))

    cdef Py_ssize_t moved(self, Py_ssize_t result) except? -1:
        if result >= 0:
            return result
        if errno == EAGAIN or errno == EINTR:
            return -1
        raise OSError(errno, os.strerror(errno))

    def close(self):
        """Close the socket. On a connection to another broker, bytes that are not sent yet are lost
        (`peers.network.NOTHING_AFTER_CLOSE`)."""
        self.sock.close()
