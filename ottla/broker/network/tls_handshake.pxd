# One TLS handshake; see tls_handshake.pyx.

from ottla.broker.network.poller cimport Pollable, Poller


cdef class TlsHandshake(Pollable):
    cdef readonly object sock, tls
    cdef object loop, workers, incoming, outgoing, done, error
    cdef Poller poller
    cdef int fd
    cdef Py_ssize_t received
    cdef readonly double began_at       # loop time
    cdef bint finished, over
    cdef bint writing                   # the socket did not accept all bytes to send
    cdef bytes unsent

    cdef int receive(self) except -1
    cdef int step(self) except -1
    cdef int flush(self) except -1
