# A connection's access to its socket. TlsTransport is the subclass for TLS.

from libc.stdint cimport int64_t, uint8_t


cdef class Transport:
    cdef readonly object sock
    cdef readonly int fd
    cdef int awaited                    # the socket is ready once this many bytes have arrived
    cdef public double expires_at       # loop time at which the login has to be renewed; 0: never

    cdef Py_ssize_t moved(self, Py_ssize_t result) except? -1
    cdef Py_ssize_t receive(self, uint8_t *into, Py_ssize_t size) except? -1
    cdef Py_ssize_t pending(self) noexcept
    cdef int wait_for(self, int size) except -1
    cdef Py_ssize_t send(self, const uint8_t *data, Py_ssize_t size, bint more) except? -1
    cdef Py_ssize_t send_file(self, int fd, int64_t position, Py_ssize_t size) except? -1
