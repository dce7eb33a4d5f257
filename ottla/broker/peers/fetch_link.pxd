# The connection on which partitions are fetched from one broker; see fetch_link.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.network.poller cimport Pollable, Poller
from ottla.broker.network.transport cimport Transport
from ottla.replication.fetcher cimport Fetcher


cdef class FetchLink(Pollable):
    cdef object loop
    cdef Poller poller
    cdef Transport transport            # None once closed
    cdef readonly Fetcher fetcher
    cdef object on_end, on_cut
    # buffer[:filled] is received and not consumed yet.
    cdef uint8_t *buffer
    cdef Py_ssize_t filled, room
    cdef bytes unsent
    cdef Py_ssize_t sent
    cdef bint writing                   # the socket accepts no more at present
    cdef object timer                   # fires when a partition may be fetched again
    cdef readonly double heard_at       # loop time of the newest bytes, or of the last request
    cdef readonly object error          # why it has ended; None while it is open

    cdef int receive(self) except -1
    cdef int make_room(self, Py_ssize_t wanted) except -1
    cdef int hand_on(self) except -1
    cdef int flush(self) except -1
    cdef int fail(self, error) except -1
