# cython: boundscheck=False, wraparound=False
"""The exchange on one connection: received bytes become requests, responses become bytes to send.

A `Conversation` has neither a socket nor a clock; a `Channel` decides when to read and when to
send. Programs that receive and send the bytes themselves use a `Conversation` from Python:

    conversation.receive_data(data)
    while (request := conversation.next_request()) is not None:
        header, body = request
        conversation.send_response(header, response)
    data = conversation.data_to_send()
"""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.reply cimport Reply
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport RequestHeader, read_request_header, write_response_header
from ottla.wire.structs cimport Message

cdef enum:
    LENGTH_SIZE = 4
    HEADER_SIZE_MIN = 8         # the smallest request: API key, version and correlation id


cdef class Conversation:
    """The frames of one client, and the replies to them."""

    def __init__(self, Py_ssize_t frame_size_max):
        self.inbox, self.out = Inbox(frame_size_max), Reply()

    # -- requests --------------------------------------------------------------------------------

    def expect_tokens(self, bint expected):
        """Set whether the next frames are SASL tokens, which have no header and may be empty."""
        self.in_tokens = expected
        self.inbox.frame_size_min = 0 if expected else HEADER_SIZE_MIN

    cdef RequestHeader next(self, Cursor body, str known_client_id):
        """Take the request that `inbox.has_frame` found, and point `body` at its body. The bytes
        stay valid until the inbox is compacted. Raises MalformedMessage."""
        cdef uint8_t *frame = self.inbox.take(&self.frame_size)
        body.at, body.end = frame, frame + self.frame_size
        return read_request_header(body, known_client_id)

    cdef bytes next_token(self):
        """Take the frame that `inbox.has_frame` found, which is a bare token."""
        cdef uint8_t *frame = self.inbox.take(&self.frame_size)
        return frame[:self.frame_size]

    # -- responses -------------------------------------------------------------------------------

    cdef Py_ssize_t begin_response(
        self, int key, int version, int32_t correlation_id, response
    ) except -1:
        """Add a response with its header; returns where its body begins. If the response cannot be
        encoded, nothing is added."""
        cdef Py_ssize_t body_at
        self.response_at = self.out.size
        self.out.write_int32(0)
        if key != TOKEN:
            write_response_header(self.out, key, version, correlation_id)
        body_at = self.out.size
        try:
            (<Message?>response).encode_into(self.out, version)
        except BaseException:
            self.out.size = self.response_at
            raise
        return body_at

    cdef int end_response(self) noexcept:
        """Write the length in front of the response."""
        store_int32(
            self.out.data + self.response_at,
            <int32_t>(self.out.size - self.response_at - LENGTH_SIZE))
        return 0

    # -- for Python ------------------------------------------------------------------------------

    def receive_data(self, bytes data not None):
        """Add bytes that the client has sent."""
        cdef Py_ssize_t size, at = 0
        cdef const uint8_t *received = data
        cdef uint8_t *into
        while at < len(data):
            into = self.inbox.space(&size)
            size = min(size, len(data) - at)
            memcpy(into, received + at, size)
            self.inbox.add(size)
            at += size

    def next_request(self):
        """Take the header and the body of the next request; None until all of it has arrived. A
        bare token has no header. Raises MalformedMessage."""
        cdef Cursor body = Cursor.__new__(Cursor)
        if not self.inbox.has_frame():
            self.inbox.compact()
            return None
        if self.in_tokens:
            return None, self.next_token()
        header = self.next(body, None)
        return header, body.at[:body.end - body.at]

    def send_response(self, RequestHeader header, response):
        """Add the response to a request, or to a token if `header` is None."""
        if header is None:
            self.begin_response(TOKEN, 0, 0, response)
        else:
            self.begin_response(header.api_key, header.version, header.correlation_id, response)
        self.end_response()

    def data_to_send(self):
        """Take the bytes of all responses so far."""
        data = self.out.getvalue()
        self.out.clear()
        return data
