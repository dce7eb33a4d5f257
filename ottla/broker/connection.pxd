# One client; see connection.pyx.

from libc.stdint cimport int32_t, int64_t

from ottla.broker.api.records.fetch cimport FetchHandler
from ottla.broker.api.records.produce cimport ProduceHandler
from ottla.broker.network.channel cimport Channel
from ottla.broker.network.promises cimport LateReply
from ottla.broker.request_context cimport RequestContext
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport RequestHeader


cdef class ClientConnection(Channel):
    cdef readonly object listener
    cdef object broker
    cdef readonly object session        # security.session.Session; None without authentication
    cdef readonly Client client         # with the client id of the newest request
    cdef readonly int newest_key        # the API of the newest request
    cdef readonly int64_t received, requests        # handled frames: total size, number
    cdef ProduceHandler produce_handler
    cdef FetchHandler fetch_handler

    cdef int take_token(self, bytes token) except -1
    cdef int handle_other(self, Cursor request, RequestHeader head) except -1
    cdef int called(self, Client client) except -1
    cdef int wait_for(
        self, LateReply late, RequestContext context, int32_t correlation_id) except -1
    cdef int answer(self, LateReply late) except -1
    cdef int write_response(
        self, RequestContext context, int32_t correlation_id, response) except -1
    cdef int throttle(self, RequestContext context, Py_ssize_t body_at) except -1
