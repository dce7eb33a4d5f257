# cython: boundscheck=False, wraparound=False
"""One client: what its frames mean, and who answers them.

`Channel` decides when a frame is handled and when replies are sent; `Conversation` knows the form
of frames. Produce and Fetch are served directly, everything else by `dispatch`. While a client
authenticates, its frames may be bare SASL tokens.
"""

from libc.stdint cimport int32_t

from ottla.broker.api.records.fetch_request cimport serve_fetch
from ottla.broker.api.records.produce_request cimport serve_produce
from ottla.broker.dispatch cimport serve
from ottla.broker.network.channel cimport Channel
from ottla.broker.network.conversation cimport TOKEN
from ottla.broker.network.promises cimport LateReply, TaskReply
from ottla.broker.network.transport cimport Transport
from ottla.broker.request_context cimport RequestContext
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport RequestHeader

from ottla.wire.errors import MalformedMessage

cdef enum:
    PRODUCE = 0
    FETCH = 1


cdef class ClientConnection(Channel):
    def __init__(
        self, loop, listener, Transport transport not None, Client client not None, security=None
    ):
        broker = listener.broker
        Channel.__init__(
            self, loop, transport, client, broker.counts, broker.quotas, broker.cold_reads,
            broker.doubted.doubt_file, listener.frame_size_max)
        self.listener, self.broker, self.client, self.newest_key = listener, broker, client, -1
        self.produce_handler = listener.produce_handler
        self.fetch_handler = listener.fetch_handler
        if security is not None:
            self.session = security.session(broker, self)
        if self.session is not None:
            self.inbox.frame_size_max = security.settings.sasl_server_max_receive_size

    def __repr__(self):
        # Without a request there is no client id; the peer may not even speak Kafka's protocol.
        name = self.client.client_id
        return f"connection from {self.client.peer()}" + (f", client {name!r}" if name else "")

    # -- requests --------------------------------------------------------------------------------

    cdef int handle_next(self) except -1:
        cdef Cursor request = Cursor.__new__(Cursor)
        cdef RequestHeader header
        cdef Py_ssize_t size
        if self.conversation.in_tokens:
            return self.take_token(self.conversation.next_token())
        request.elements_max = self.broker.request_elements_max
        header = self.conversation.next(request, self.client.client_id)
        size = self.conversation.frame_size
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

    cdef int handle_other(self, Cursor request, RequestHeader head) except -1:
        cdef RequestContext context = RequestContext.__new__(RequestContext)
        context.broker, context.api_key, context.version = self.broker, head.api_key, head.version
        context.client, context.session = self.client, self.session
        response = serve(context, request)
        if isinstance(response, LateReply):
            return self.wait_for(<LateReply>response, context, head.correlation_id)
        return self.write_response(context, head.correlation_id, response)

    cdef int called(self, Client client) except -1:
        """Set the sender of all later requests to `client`."""
        self.client = self.queue.client = client
        return 0

    # -- authentication --------------------------------------------------------------------------

    cdef int take_token(self, bytes token) except -1:
        """Answer a frame that is a bare SASL token instead of a request (SaslHandshake 0)."""
        cdef LateReply late = TaskReply(self.session.bare_token(token))
        cdef RequestContext context = RequestContext.__new__(RequestContext)
        context.broker, context.api_key = self.broker, TOKEN
        late.context, late.receiver = context, self
        return self.hold(late)

    def expect_tokens(self, bint expected):
        """Set whether the next frames are SASL tokens, which have no header and may be empty."""
        self.conversation.expect_tokens(expected)

    def authenticated(self, str principal, bint by_token):
        """The client has authenticated: from now on the listener's usual frame limit applies."""
        self.called(self.client.authenticated(principal, by_token))
        self.inbox.frame_size_max = self.listener.frame_size_max
        self.listener.authenticated(self)

    # -- responses -------------------------------------------------------------------------------

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
        """Write a late reply that is ready, and send it now: another turn of the event loop would
        cost more."""
        self.holding = None
        cdef RequestContext context = <RequestContext>late.context
        if context.api_key == TOKEN and self.session.over:
            self.close()                # SASL has no token that reports the failure
            return
        if self.quotas.timing:
            self.queue.in_hand += self.poller.clock.monotonic() - context.seconds
        self.answer(late)
        if self.session is not None and self.session.over:
            self.end()
            return
        if self.inbox.held() > 0:
            self.schedule()             # not now: the caller's state may be half changed
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
        """Add the response, with its header, to the replies to send."""
        cdef Py_ssize_t body_at = self.conversation.begin_response(
            context.api_key, context.version, correlation_id, response)
        if (self.quotas.active or context.throttle_ms > 0) and context.api_key != TOKEN:
            self.throttle(context, body_at)
        self.conversation.end_response()
        if context.api_key == TOKEN:
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

    # -- ending ----------------------------------------------------------------------------------

    def failed(self, error):
        """Close after an exception: a malformed frame, or a bug in the broker, which is logged."""
        if isinstance(error, MalformedMessage):
            self.refuse(error)
        else:
            Channel.failed(self, error)

    def refuse(self, error):
        """Log the reason in one line, and end the connection."""
        self.listener.refused(self, error)
        self.end()

    def close(self):
        """End the connection, and cancel everything that it waits for."""
        if not self.closed:
            Channel.close(self)
            self.listener.closed(self)

    def waiting_for(self):
        """Return the API key of the current request, or -1 if no request waits for its response.
        Return also the number of produce requests that wait for acknowledgements."""
        return -1 if self.holding is None else self.newest_key, self.queue.waiting()
