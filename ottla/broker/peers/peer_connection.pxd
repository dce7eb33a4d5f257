# One connection to another broker; see peer_connection.pyx.

from libc.stdint cimport int32_t

from ottla.broker.network.inbox cimport Inbox
from ottla.broker.peers.peer_link cimport PeerLink
from ottla.wire.codec cimport Cursor, Writer


cdef class PeerConnection(PeerLink):
    cdef Inbox inbox
    cdef Writer out
    cdef int32_t correlation_id
    cdef str client_id
    cdef object waiting                 # deque of (correlation id, api, version, future), in order
    cdef readonly str name              # of the other broker, for messages
    cdef bint retired                   # it ends once no request waits for a reply
    cdef object on_close                # called when the connection ends by itself

    cdef int take_reply(self) except -1
