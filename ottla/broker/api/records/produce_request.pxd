# One Produce request of a connection, from its frame to its reply.

from libc.stdint cimport int32_t

from ottla.broker.api.records.produce cimport ProduceHandler
from ottla.broker.api.records.produce_state cimport ProduceState
from ottla.broker.network.promises cimport Held
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor


cdef class ProduceRequest(ProduceState):
    cdef ProduceHandler handler
    cdef ReplyQueue queue
    cdef int32_t correlation_id
    cdef object work                    # the future that the request waits for
    cdef bint asks                      # whether the request waits for a coordinator

    cdef Held begin(self)
    cdef Held prepare(self, Py_ssize_t start)
    cdef int wait_for(self, work) except -1
    cdef int finish(self, Py_ssize_t start) except -1


cdef Held serve_produce(
    ProduceHandler handler, Cursor request, int version, int32_t correlation_id, Client client,
    ReplyQueue queue, object receiver)
