# What the connections to other brokers have in common; see peer_link.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.network.poller cimport Pollable, Poller
from ottla.broker.network.transport cimport Transport


cdef class PeerLink(Pollable):
    cdef object loop
    cdef Poller poller
    cdef Transport transport            # None once closed or handed over
    cdef bint writing                   # the socket accepts no more at present
    cdef readonly double heard_at       # when bytes were last received, in loop time
    cdef readonly object error          # why it has ended; None while it is open

    cdef int open(self, loop, Transport transport) except -1
    cdef int flush(self) except -1
    cdef int receive(self) except -1
    cdef int make_progress(self) except -1
    cdef int fail(self, error) except -1
    cdef Py_ssize_t push(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int detach(self, bint close) except -1
