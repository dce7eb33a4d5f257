# The requests and replies of one connection, without its socket; see conversation.pyx.

from libc.stdint cimport int32_t

from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.reply cimport Reply
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport RequestHeader

cdef enum:
    TOKEN = -1                          # in place of an API key: a SASL token, which has no header


cdef class Conversation:
    cdef Inbox inbox                    # bytes received but not handled yet
    cdef Reply out                      # replies that may be sent
    cdef bint in_tokens                 # the next frame is a bare SASL token, not a request
    cdef Py_ssize_t frame_size          # of the newest request
    cdef Py_ssize_t response_at         # where in `out` the newest response begins

    cdef RequestHeader next(self, Cursor body, str known_client_id)
    cdef bytes next_token(self)
    cdef Py_ssize_t begin_response(
        self, int key, int version, int32_t correlation_id, response) except -1
    cdef int end_response(self) noexcept
