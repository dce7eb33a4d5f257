# One connection to another broker; see peer_connection.pyx.

from libc.stdint cimport int32_t

from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.poller cimport Pollable, Poller
from ottla.broker.network.transport cimport Transport
from ottla.wire.codec cimport Cursor, Writer


cdef class PeerConnection(Pollable):
    cdef object loop
    cdef Poller poller
    cdef Transport transport            # None once it is closed or handed over
    cdef Inbox inbox
    cdef Writer out
    cdef Py_ssize_t sent                # bytes of `out` that were sent
    cdef bint writing                   # the socket accepts no more at present
    cdef int32_t correlation_id
    cdef str client_id
    cdef object waiting                 # deque of (correlation id, api, version, future), in order
    cdef readonly str name              # of the other broker, for messages
    cdef readonly object error          # why it has ended; None while it is open
    cdef readonly double heard_at       # loop time of the newest bytes
    cdef object on_close                # called once, unless closed from this side

    cdef int flush(self) except -1
    cdef int receive(self) except -1
    cdef int take_reply(self) except -1
    cdef int fail(self, error) except -1
