# The connection on which one broker is fetched from; see fetch_link.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.network.poller cimport Pollable, Poller
from ottla.broker.network.transport cimport Transport
from ottla.replication.fetcher cimport Fetcher


cdef class FetchLink(Pollable):
    cdef object loop
    cdef Poller poller
    cdef Transport transport            # None once it is closed
    cdef readonly Fetcher fetcher
    cdef object on_end, on_cut
    # Received and not used up yet is buffer[:filled].
    cdef uint8_t *buffer
    cdef Py_ssize_t filled, room
    cdef bytes unsent
    cdef Py_ssize_t sent
    cdef bint writing                   # the socket took no more
    cdef object timer                   # when a partition may be asked for again
    cdef readonly double heard_at       # loop time of the newest bytes, or of the last request
    cdef readonly object error          # why it has ended; None while it is open

    cdef int receive(self) except -1
    cdef int make_room(self, Py_ssize_t wanted) except -1
    cdef int hand_on(self) except -1
    cdef int flush(self) except -1
    cdef int fail(self, error) except -1
