# One client; see connection.pyx for how its frames flow.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.broker.api.records.fetch cimport FetchHandler
from ottla.broker.api.records.produce cimport ProduceHandler
from ottla.broker.network.counts cimport Counts
from ottla.broker.request_context cimport RequestContext
from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.poller cimport Pollable, Poller
from ottla.broker.network.reply cimport Reply
from ottla.broker.network.transport cimport Transport
from ottla.broker.network.promises cimport Held, LateReply
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.quotas.quotas cimport Quotas
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport RequestHeader


cdef class Connection(Pollable):
    cdef readonly object listener
    cdef object loop, broker
    cdef readonly object session        # security.session.Session; None without authentication
    cdef Counts counts
    cdef Quotas quotas
    cdef readonly int64_t received, sent, requests     # bytes, and frames handled
    cdef readonly double opened_at
    cdef readonly int newest_key        # the API of the newest request
    cdef Poller poller
    cdef readonly Client client         # with the client id of the newest request
    cdef readonly bint closed
    cdef readonly double active_at      # loop time since when we wait for the client
    cdef Transport transport
    cdef ProduceHandler produce_handler
    cdef FetchHandler fetch_handler
    cdef Inbox inbox                    # bytes received but not handled yet

    cdef ReplyQueue queue               # replies, in order
    cdef Reply out                      # the part of the queue that may be sent
    cdef bint bare                      # the next frame is a bare SASL token, not a request
    cdef bint paused                    # frames wait in the inbox; nothing is read meanwhile
    cdef readonly bint writing          # the socket accepts no more; nothing is read until it does
    cdef readonly bint warming          # the next bytes to send are being read from disk
    cdef readonly bint ended            # the client sends nothing more
    cdef bint scheduled                 # go_on is due in the next turn of the loop
    cdef Held holding                   # the current request; later frames wait
    cdef object muting                  # a timer: the client is throttled until it fires

    cdef int receive(self) except -1
    cdef bint may_handle(self) except -1
    cdef int handle_frames(self) except -1
    cdef int handle(self, uint8_t *frame, Py_ssize_t size) except -1
    cdef int take_token(self, bytes token) except -1
    cdef int hold(self, Held held) except -1
    cdef int handle_other(self, Cursor request, RequestHeader head) except -1
    cdef int wait_for(
        self, LateReply late, RequestContext context, int32_t correlation_id) except -1
    cdef int answer(self, LateReply late) except -1
    cdef int called(self, Client client) except -1
    cdef int write_response(
        self, RequestContext context, int32_t correlation_id, response) except -1
    cdef int throttle(self, RequestContext context, Py_ssize_t body_at) except -1
    cdef int flush(self) except -1
    cdef int wait_for_room(self) except -1
    cdef int warm(self) except -1
    cdef int unreadable(self, error) except -1
    cdef int compact(self) except -1
    cdef int close_if_done(self) except -1
    cdef int schedule(self) except -1
