# One Fetch request of a connection, from its frame to its reply.

from libc.stdint cimport int32_t

from ottla.broker.api.records.fetch cimport FetchHandler
from ottla.broker.api.records.reader cimport Fetch
from ottla.broker.network.promises cimport Held, Wait
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor


cdef class FetchRequest(Held):
    cdef FetchHandler handler
    cdef Fetch fetch
    cdef Wait wait
    cdef ReplyQueue queue
    cdef int32_t correlation_id
    cdef object rebuild                 # the IndexRebuild that the request waits or waited for

    cdef int convert(self) except -1


cdef bint try_fetch(
    FetchHandler handler, Fetch fetch, int32_t correlation_id, ReplyQueue queue, bint final
) except -1
cdef Held serve_fetch(
    FetchHandler handler, Cursor request, int version, int32_t correlation_id, Client client,
    ReplyQueue queue, object receiver)
