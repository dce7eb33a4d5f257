# The connection on which partitions are fetched from one broker; see fetch_link.pyx.

from libc.stdint cimport uint8_t

from ottla.broker.peers.peer_link cimport PeerLink
from ottla.replication.fetcher cimport Fetcher


cdef class FetchLink(PeerLink):
    cdef readonly Fetcher fetcher
    cdef object on_end, on_cut
    # buffer[:filled] is received and not consumed yet.
    cdef uint8_t *buffer
    cdef Py_ssize_t filled, room
    cdef bytes unsent
    cdef Py_ssize_t sent
    cdef object timer                   # fires when a partition may be fetched again

    cdef int make_room(self, Py_ssize_t wanted) except -1
    cdef int hand_on(self) except -1
