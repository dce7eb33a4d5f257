# cython: boundscheck=False, wraparound=False
"""One client: frames in, replies out in the order of their requests, and back-pressure.

The event loop only reports that the socket is ready; the connection receives and sends by itself.
Requests are handled in order, at once. A request that has to wait for something is a `Held`
(`network.promises` has a table of them): later frames wait until it ends. A produce whose
acknowledgement is pending (acks=all) holds nothing: its reply is in the `ReplyQueue`.

While the socket accepts no more replies, nothing more is read: this bounds the memory that a client
can make the broker use.

A client that ends its sending side may still read. What it has asked for is answered, as in Kafka;
then the connection is closed.
"""

from libc.stdint cimport int32_t, uint8_t

from ottla.broker.api.records.fetch_request cimport serve_fetch
from ottla.broker.api.records.produce_request cimport serve_produce
from ottla.broker.dispatch cimport serve
from ottla.broker.request_context cimport RequestContext
from ottla.broker.network.cold_reads cimport WARM_SIZE
from ottla.broker.network.counts cimport Counts
from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.poller cimport EPOLLIN, EPOLLOUT, Pollable, Poller
from ottla.broker.network.reply cimport COLD, FileRange, Reply
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.network.transport cimport Transport
from ottla.broker.network.promises cimport Held, LateReply, TaskReply
from ottla.broker.security.client cimport Client
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport RequestHeader, read_request_header, write_response_header
from ottla.wire.structs cimport Message

import logging
from errno import EIO

from ottla.broker.network.reply import RangeLost
from ottla.wire.errors import MalformedMessage

log = logging.getLogger("ottla.connection")

cdef enum:
    PRODUCE = 0
    FETCH = 1
    INBOX_SIZE_HELD = 1 << 16   # bytes kept after a frame that waits; more stays in the socket
    OUT_SIZE_MAX = 1 << 20      # unsent replies above this stop the handling of frames
    PROMISED_MAX = 1000         # produces in flight on one connection; clients keep a handful
    SEND_SIZE_PER_TURN = 4 << 20    # then other connections are served
    HEADER_SIZE_MIN = 8         # the smallest request: API key, version and correlation id
    BARE = -1                   # instead of an API key: a SASL token without any header


cdef class Connection:
    def __init__(
        self, loop, listener, Transport transport not None, Client client not None, security=None
    ):
        self.loop, self.listener, self.client = loop, listener, client
        self.broker = listener.broker
        self.produce_handler = listener.produce_handler
        self.fetch_handler = listener.fetch_handler
        self.inbox = Inbox(listener.frame_size_max)
        if security is not None:
            self.session = security.session(self.broker, self)
        if self.session is not None:
            self.inbox.frame_size_max = security.settings.sasl_server_max_receive_size
        self.transport = transport
        self.poller = loop.poller
        self.counts = self.broker.counts
        self.counts.opened += 1
        self.newest_key = -1
        self.quotas = self.broker.quotas
        self.queue = ReplyQueue(
            loop, self.poller.clock, self.counts, self.quotas, client, self)
        self.out = self.queue.out
        self.active_at = self.opened_at = self.poller.clock.monotonic()
        self.poller.watch(self.transport.fd, self, EPOLLIN)

    def __repr__(self):
        return f"connection from {self.client.peer()}, client {self.client.client_id!r}"

    # -- the loop's calls ------------------------------------------------------------------------

    cdef int ready(self) except -1:
        """The socket is readable, at its end, or writable again."""
        if self.writing:
            self.active_at = self.poller.clock.monotonic()
            self.go_on()
            return 0
        try:
            self.receive()
        except OSError:
            self.close()
        except Exception as error:
            self.failed(error)
        return 0

    def go_on(self):
        """Handle whole frames and send their replies, as far as both are possible."""
        self.scheduled = False
        if self.closed:
            return
        try:
            while True:
                self.queue.release()
                self.handle_frames()
                self.flush()
                if self.closed or self.writing or not self.may_handle():
                    break
            self.compact()
            self.close_if_done()
        except OSError:
            self.close()
        except Exception as error:
            self.failed(error)

    cdef int schedule(self) except -1:
        if not self.scheduled and not self.closed:
            self.scheduled = True
            self.poller.later(self.go_on)
        return 0

    # -- receiving -------------------------------------------------------------------------------

    cdef int receive(self) except -1:
        cdef Py_ssize_t got
        if self.inbox.held() >= INBOX_SIZE_HELD and self.inbox.has_frame():
            self.pause()
            return 0
        got = self.inbox.receive(self.transport)
        if got == 0:
            self.ended = self.paused = True
            self.poller.watch(self.transport.fd, self, 0)
            return self.close_if_done()
        if got < 0:
            return 0
        self.active_at = self.poller.clock.monotonic()
        if self.holding is not None and self.inbox.has_frame():
            self.holding.next_is_here()
        if not self.scheduled:
            self.go_on()
        if not self.closed:
            self.transport.wait_for(self.inbox.awaited(got))
            if self.transport.pending() > 0:
                self.loop.call_soon(self.receive_pending)
        return 0

    def receive_pending(self):
        """Receive bytes that wait inside the transport: the poller does not know of them."""
        if not self.closed and not self.paused and not self.writing:
            self.ready()

    def catch_up(self):
        """Receive the part of a slow frame that has arrived, although it is too little for a
        wake-up."""
        if self.transport.awaited > 1 and not self.closed and not self.paused and not self.writing:
            self.ready()

    def pause(self):
        """Stop receiving until some of the whole frames that wait here are handled."""
        self.paused = True
        self.poller.watch(self.transport.fd, self, 0)

    cdef int compact(self) except -1:
        """Make room in the inbox, and resume receiving if it was stopped."""
        if self.closed:
            return 0
        self.inbox.compact()
        if (self.paused and not self.ended and not self.writing and self.muting is None
                and not self.inbox.has_frame()
                and not (self.holding is not None and self.holding.stops_reading)):
            self.paused = False
            self.poller.watch(self.transport.fd, self, EPOLLIN)
            if self.transport.pending() > 0:
                self.loop.call_soon(self.receive_pending)
        return 0

    def trim(self):
        """Free the memory of an idle connection."""
        self.inbox.trim()

    # -- handling --------------------------------------------------------------------------------

    cdef bint may_handle(self) except -1:
        """Whether a whole frame has arrived and nothing prevents its handling."""
        cdef Py_ssize_t promised
        if self.holding is not None or self.muting is not None or not self.inbox.has_frame():
            return False
        promised = self.queue.waiting()
        if promised:
            return promised < PROMISED_MAX and self.inbox.api_key() == PRODUCE
        return True

    cdef int handle_frames(self) except -1:
        cdef Py_ssize_t size
        cdef uint8_t *frame
        while not self.closed and self.out.unsent() + self.out.file_bytes < OUT_SIZE_MAX:
            if self.writing or not self.may_handle():
                return 0
            frame = self.inbox.take(&size)
            self.handle(frame, size)
        return 0

    cdef int handle(self, uint8_t *frame, Py_ssize_t size) except -1:
        cdef Cursor request = Cursor.__new__(Cursor)
        cdef RequestHeader header
        if self.bare:
            return self.take_token(frame[:size])
        request.at, request.end = frame, frame + size
        request.elements_max = self.broker.request_elements_max
        header = read_request_header(request, self.client.client_id)
        self.queue.arrived(self.active_at)
        self.newest_key = header.api_key
        self.received += size + 4
        self.requests += 1
        self.counts.received += size + 4
        self.counts.began(header.api_key, header.version)
        if self.counts.traced:
            self.counts.trace_arrival(self, header.api_key, header.version, size)
        if self.session is not None:
            self.session.admit(header.api_key, header.version)
        if (header.client_id is not self.client.client_id
                and header.client_id != self.client.client_id):
            self.called(self.client.named(header.client_id))
        if self.quotas.active:
            self.queue.frame_size = size
            self.queue.in_hand = self.poller.clock.monotonic()
        if header.api_key == PRODUCE and 0 <= header.version <= 13:
            return self.hold(serve_produce(
                self.produce_handler, request, header.version, header.correlation_id, self.client,
                self.queue, self))
        if header.api_key == FETCH and 0 <= header.version <= 18:
            return self.hold(serve_fetch(
                self.fetch_handler, request, header.version, header.correlation_id, self.client,
                self.queue, self))
        return self.handle_other(request, header)

    cdef int take_token(self, bytes token) except -1:
        """Answer a frame that is a bare SASL token instead of a request (SaslHandshake 0)."""
        cdef LateReply late = TaskReply(self.session.bare_token(token))
        cdef RequestContext context = RequestContext.__new__(RequestContext)
        context.broker, context.api_key = self.broker, BARE
        late.context, late.receiver = context, self
        return self.hold(late)

    def expect_tokens(self, bint bare):
        """Whether the next frames are SASL tokens, without headers and of any size."""
        self.bare = bare
        self.inbox.frame_size_min = 0 if bare else HEADER_SIZE_MIN

    def authenticated(self, str principal, bint by_token):
        """The client has authenticated: from now on the listener's usual frame limit applies."""
        self.called(self.client.authenticated(principal, by_token))
        self.inbox.frame_size_max = self.listener.frame_size_max
        self.listener.authenticated(self)

    cdef int hold(self, Held held) except -1:
        """Make `held`, if there is one, the current request, after which later frames wait."""
        self.holding = held
        if held is not None and held.stops_reading:
            self.pause()
        if held is not None:
            self.queue.waits()
        if held is not None and self.quotas.timing:
            self.queue.in_hand -= self.poller.clock.monotonic()     # spent before the request waits
        return 0

    cdef int called(self, Client client) except -1:
        """Later requests belong to this client."""
        self.client = self.queue.client = client
        return 0

    def resume(self, Held held not None):
        """Continue the current request: what it waited for may have happened."""
        cdef Held following
        if self.closed or self.holding is not held:
            return
        if self.quotas.timing:
            self.queue.in_hand += self.poller.clock.monotonic()
        try:
            following = held.go_on()
            if following is held:
                if self.quotas.timing:
                    self.queue.in_hand -= self.poller.clock.monotonic()
                return
            self.active_at = self.poller.clock.monotonic()
            self.hold(following)
        except Exception as error:
            self.failed(error)
        self.go_on()

    cdef int handle_other(self, Cursor request, RequestHeader head) except -1:
        cdef RequestContext context = RequestContext.__new__(RequestContext)
        context.broker, context.api_key, context.version = self.broker, head.api_key, head.version
        context.client, context.session = self.client, self.session
        response = serve(context, request)
        if isinstance(response, LateReply):
            return self.wait_for(<LateReply>response, context, head.correlation_id)
        return self.write_response(context, head.correlation_id, response)

    cdef int wait_for(
        self, LateReply late, RequestContext context, int32_t correlation_id
    ) except -1:
        """Write a late reply if it is ready; otherwise later frames wait for it."""
        late.context, late.correlation_id = context, correlation_id
        late.receiver = self
        if late.over:
            self.answer(late)
        else:
            self.hold(late)
        return 0

    def deliver_late(self, LateReply late not None):
        """Write a late reply that is ready, and send it at once: a turn of the loop costs more."""
        self.holding = None
        cdef RequestContext context = <RequestContext>late.context
        if context.api_key == BARE and self.session.over:
            self.close()                # SASL has no token that reports the failure
            return
        if self.quotas.timing:
            self.queue.in_hand += self.poller.clock.monotonic() - context.seconds
        self.answer(late)
        if self.session is not None and self.session.over:
            self.end()
            return
        if self.inbox.held() > 0:
            self.schedule()             # not from here: later frames may need the caller's state
            return
        try:
            self.flush()
            self.close_if_done()
        except OSError:
            self.close()

    cdef int answer(self, LateReply late) except -1:
        """Write the response of a handler that has finished, or the error for its exception."""
        self.active_at = self.poller.clock.monotonic()
        if self.closed:
            return 0
        try:
            if isinstance(late.response, BaseException):
                raise late.response
            self.write_response(<RequestContext>late.context, late.correlation_id, late.response)
        except Exception as error:
            self.failed(error)
        return 0

    cdef int write_response(
        self, RequestContext context, int32_t correlation_id, response
    ) except -1:
        """Add a reply: the response with its header."""
        cdef Py_ssize_t start = self.out.size, body_at
        self.out.write_int32(0)
        if context.api_key != BARE:
            write_response_header(self.out, context.api_key, context.version, correlation_id)
        body_at = self.out.size
        try:
            (<Message?>response).encode_into(self.out, context.version)
        except BaseException:
            self.out.size = start
            raise
        if (self.quotas.active or context.throttle_ms > 0) and context.api_key != BARE:
            self.throttle(context, body_at)
        store_int32(self.out.data + start, <int32_t>(self.out.size - start - 4))
        if context.api_key == BARE:
            return 0
        return self.queue.answered(context.api_key)

    cdef int throttle(self, RequestContext context, Py_ssize_t body_at) except -1:
        """Throttle the client of the last reply if it has exceeded its quota."""
        cdef int32_t ms = 0
        if self.quotas.active:
            ms = self.queue.charge(context.api_key, 0)
        ms = max(ms, context.throttle_ms)
        if ms > 0:
            self.queue.throttle(self.out, body_at, context.api_key, context.version, ms)
        return 0

    def mute(self, double seconds):
        """Handle and read nothing for this time (KIP-219); replies are still sent.

        The socket is not watched meanwhile, so that a throttled client costs no more than a timer.
        """
        if self.closed:
            return
        if self.muting is not None:
            if <double>self.muting.when() >= self.poller.clock.monotonic() + seconds:
                return
            self.muting.cancel()
        self.muting = self.loop.call_later(seconds, self.unmute)
        self.paused = True
        if not self.writing:
            self.poller.watch(self.transport.fd, self, 0)

    def unmute(self):
        """The throttle time is over: handle the frames received before, and resume receiving."""
        self.muting = None
        self.active_at = self.poller.clock.monotonic()
        self.go_on()

    def promise_kept(self):
        """The last promise of a queued reply was kept."""
        self.schedule()

    # -- sending ---------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Send as much as the socket accepts; wait until it is writable if that is not all."""
        cdef Reply out = self.out
        cdef Py_ssize_t sent, budget = SEND_SIZE_PER_TURN
        if self.warming:
            return 0
        while not self.closed and (out.sent < out.size or out.ranges):
            try:
                sent = out.send_some(self.transport, budget)
            except RangeLost as error:
                self.unreadable(error)
                return 0
            except OSError as error:
                if error.errno != EIO:      # a socket never has this one
                    raise
                self.unreadable(error)
                return 0
            if sent == COLD:
                return self.warm()
            budget -= max(sent, 0)
            self.sent += max(sent, 0)
            self.counts.sent += max(sent, 0)
            if sent < 0 or budget <= 0:
                return self.wait_for_room()
        if self.closed:
            return 0
        out.clear()
        if self.writing:
            self.writing = False
            self.active_at = self.poller.clock.monotonic()       # until now nothing was read
            self.poller.watch(self.transport.fd, self, 0 if self.paused else EPOLLIN)
            if self.transport.pending() > 0:
                self.loop.call_soon(self.receive_pending)
        return 0

    cdef int wait_for_room(self) except -1:
        if not self.writing:
            self.writing = True
            self.poller.watch(self.transport.fd, self, EPOLLOUT)
        return 0

    cdef int warm(self) except -1:
        """Have a thread read the next bytes to send; the connection sends nothing until then."""
        cdef FileRange cold = <FileRange>self.out.ranges[0]
        self.warming = self.writing = True
        self.poller.watch(self.transport.fd, self, 0)
        reads = self.broker.cold_reads
        reads.begin(cold.file, cold.position, min(cold.left, WARM_SIZE), self.warmed)

    def warmed(self, error):
        """The cold range is in memory now, or `error` is why it cannot be read."""
        self.warming = False
        if error is not None and not self.closed:
            self.unreadable(error)
        if not self.closed:
            self.out.warmed()
            self.poller.watch(self.transport.fd, self, EPOLLOUT)

    cdef int unreadable(self, error) except -1:
        log.error("%r is closed: a part of its reply cannot be read: %s", self, error)
        if self.out.ranges:
            self.broker.doubt_file((<FileRange>self.out.ranges[0]).file.path, error)
        self.close()

    # -- ending ----------------------------------------------------------------------------------

    cdef int close_if_done(self) except -1:
        """Close if the client sends nothing more and has all its answers."""
        if self.ended and not (
                self.writing or self.scheduled or self.held() or self.inbox.has_frame()):
            self.close()
        return 0

    def failed(self, error):
        """Close after an exception: the frame is malformed, or the broker has a bug (logged)."""
        if isinstance(error, MalformedMessage):
            self.refuse(error)
            return
        log.error("%r is closed by a failure of the broker", self, exc_info=error)
        self.close()

    def refuse(self, error):
        """Close on bytes that are no valid request, and log the reason in one line."""
        self.listener.refused(self, error)
        self.end()

    def end(self):
        """Close after sending the replies that the socket accepts at once."""
        try:
            self.flush()
        except OSError:
            pass
        self.close()

    def close(self):
        """End the connection, and cancel everything that it waits for."""
        if self.closed:
            return
        self.closed = True
        self.counts.closed_connections += 1
        self.poller.watch(self.transport.fd, self, 0)
        if self.holding is not None:
            self.holding.abandon()
        if self.muting is not None:
            self.muting.cancel()
            self.muting = None
        self.queue.close()
        self.transport.close()
        self.listener.closed(self)

    def stalled_since(self):
        """Loop time since when a frame is incomplete; None if there is no such frame."""
        if self.inbox.held() == 0 or self.writing or self.held():
            return None
        return self.active_at

    def waiting_for(self):
        """What waits here: the API key of the current request if it waits, otherwise -1, and the
        number of produces that wait for acknowledgements."""
        return -1 if self.holding is None else self.newest_key, self.queue.waiting()

    def held(self):
        """Whether frames wait here for the broker, not for the client."""
        return (
            self.holding is not None or self.muting is not None or self.queue.waiting() > 0)
