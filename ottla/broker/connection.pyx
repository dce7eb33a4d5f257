# cython: boundscheck=False, wraparound=False
"""One client: frames in, replies out in the order of their requests, and back-pressure.

The loop only says when the socket is ready; the connection does its own receiving and sending.
Whatever a request needs happens in its turn, except for what is finished later:

- a produce whose acknowledgement is still promised (acks=all): further produces are appended
  meanwhile, their replies queue behind it;
- a produce with a batch that a thread prepares, a fetch that waits for bytes, and a handler that
  is a coroutine or returns a LateReply: the frames behind them wait.

While the socket does not take the replies, nothing more is read: this bounds what a client can
make us hold.
"""

from libc.stdint cimport int16_t, int32_t, uint8_t

from ottla.broker.api.records.fetch cimport Fetch, Fetching
from ottla.broker.api.records.produce cimport Producing, Serving
from ottla.broker.dispatch cimport RequestContext, serve
from ottla.broker.network.cold_reads cimport WARM_SIZE
from ottla.broker.network.inbox cimport Inbox
from ottla.broker.counts cimport Counts
from ottla.broker.network.poller cimport EPOLLIN, EPOLLOUT, Pollable, Poller
from ottla.broker.network.reply cimport COLD, FileRange, Reply
from ottla.broker.network.transport cimport Transport
from ottla.broker.network.promises cimport LateReply, PendingReply, Wait
from ottla.broker.security.client cimport Client
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.headers cimport RequestHeader, read_request_header, write_response_header
from ottla.wire.structs cimport Message

import asyncio
import logging
from collections import deque

from ottla.broker.network.reply import RangeLost
from ottla.wire.errors import MalformedMessage

log = logging.getLogger("ottla.connection")

cdef enum:
    PRODUCE = 0
    FETCH = 1
    INBOX_SIZE_HELD = 1 << 16   # received behind a frame that waits; more stays in the socket
    OUT_SIZE_MAX = 1 << 20      # unsent replies above this stop the handling of frames
    PROMISED_MAX = 1000         # produces in flight on one connection; clients keep a handful
    SEND_SIZE_PER_TURN = 4 << 20    # then the other connections have their turn

cdef int16_t FETCH_FLEXIBLE = 12
cdef int16_t PRODUCE_FLEXIBLE = 9
cdef int16_t IMPLICIT_TRANSACTION = 12      # Produce adds its partitions by itself (KIP-890)


cdef class Connection:
    def __init__(self, loop, listener, sock, Client client not None):
        self.loop, self.listener, self.client = loop, listener, client
        self.broker = listener.broker
        self.producing, self.fetching = listener.producing, listener.fetching
        self.inbox = Inbox(listener.frame_size_max)
        self.transport = Transport(sock)
        self.out = Reply()
        self.promised = deque()
        self.poller = loop.poller
        self.counts = self.broker.counts
        self.counts.opened += 1
        self.newest_key = -1
        self.active_at = self.opened_at = self.poller.clock.monotonic()
        self.poller.watch(self.transport.fd, self, EPOLLIN)

    def __repr__(self):
        return f"connection from {self.client.peer()}, client {self.client.client_id!r}"

    # -- the loop's calls ------------------------------------------------------------------------

    cdef int ready(self) except -1:
        """The socket has bytes, or its end, or takes bytes again."""
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
        """Handle whole frames and send their replies, as far as both go."""
        self.scheduled = False
        if self.closed:
            return
        try:
            while True:
                self.release_promised()
                self.handle_frames()
                self.flush()
                if self.closed or self.writing or not self.may_handle():
                    break
            self.compact()
        except OSError:
            self.close()
        except Exception as error:
            self.failed(error)

    cdef int schedule(self) except -1:
        if not self.scheduled and not self.closed:
            self.scheduled = True
            self.loop.call_soon(self.go_on)
        return 0

    # -- receiving -------------------------------------------------------------------------------

    cdef int receive(self) except -1:
        cdef Py_ssize_t got
        if self.inbox.held() >= INBOX_SIZE_HELD and self.inbox.has_frame():
            self.pause()
            return 0
        got = self.inbox.receive(self.transport)
        if got == 0:
            self.close()
            return 0
        if got < 0:
            return 0
        self.active_at = self.poller.clock.monotonic()
        if not self.scheduled:
            self.go_on()
        if not self.closed:
            self.transport.wait_for(self.inbox.awaited(got))
        return 0

    def catch_up(self):
        """Receive what has come of a slow frame, though it is less than is worth a wake-up."""
        if self.transport.awaited > 1 and not self.closed and not self.paused and not self.writing:
            self.ready()

    def pause(self):
        """Whole frames wait here already: stop receiving until some of them are handled."""
        self.paused = True
        self.poller.watch(self.transport.fd, self, 0)

    cdef int compact(self) except -1:
        """Make room in the inbox, and receive again where that was stopped."""
        if self.closed:
            return 0
        self.inbox.compact()
        if (self.paused and not self.writing and not self.preparing
                and not self.inbox.has_frame()):
            self.paused = False
            self.poller.watch(self.transport.fd, self, EPOLLIN)
        return 0

    def trim(self):
        """Give the memory of an idle connection back."""
        self.inbox.trim()

    # -- handling --------------------------------------------------------------------------------

    cdef bint may_handle(self) except -1:
        """Whether a whole frame is there and nothing holds it up."""
        if self.task is not None or self.wait is not None or not self.inbox.has_frame():
            return False
        if self.promised:
            return len(self.promised) < PROMISED_MAX and self.inbox.api_key() == PRODUCE
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
        request.at, request.end = frame, frame + size
        request.elements_max = self.broker.request_elements_max
        header = read_request_header(request)
        self.began_at, self.newest_key = self.active_at, header.api_key
        self.received += size + 4
        self.requests += 1
        self.counts.received += size + 4
        self.counts.began(header.api_key, header.version)
        if header.client_id != self.client.client_id:
            self.client = self.client.named(header.client_id)
        if header.api_key == PRODUCE and 0 <= header.version <= 13:
            return self.handle_produce(request, header.version, header.correlation_id)
        if header.api_key == FETCH and 0 <= header.version <= 18:
            return self.handle_fetch(request, header.version, header.correlation_id)
        return self.handle_other(request, header)

    cdef int handle_produce(self, Cursor request, int version, int32_t correlation_id) except -1:
        cdef const uint8_t *body = request.at
        cdef int acks = self.producing.check(request, version)
        request.at, request.elements_max = body, 0          # it is read again, from the beginning
        if self.producing.untidy:
            body = self.producing.tidy(request, version)
        if self.producing.transactional and version >= IMPLICIT_TRANSACTION:
            waiting = self.producing.gate.admission(request, version, self.client)
            request.at = body
            if waiting is not None:
                return self.hold_produce(request, version, correlation_id, acks, waiting)
        return self.serve_produce(request, version, correlation_id, acks, None)

    cdef int serve_produce(
        self, Cursor request, int version, int32_t correlation_id, int acks, object refusal
    ) except -1:
        cdef bint apart = acks == -1 or acks == 0 or len(self.promised) > 0
        cdef Writer reply = Writer() if apart else self.out
        cdef Py_ssize_t start = reply.size
        cdef Serving serving
        reply.write_int32(0)
        write_response_header(reply, PRODUCE, version, correlation_id)
        serving = self.producing.begin(request, reply, version, self.client, self)
        serving.refusal = refusal or serving.refusal
        if self.producing.go_on(serving):
            return self.finish_produce(serving, start)
        return self.prepare(serving, start)

    cdef int prepare(self, Serving serving, Py_ssize_t start) except -1:
        """Have a thread prepare a batch. Frames behind it wait, and nothing more is read: the end
        of the stream must not be met before what was sent in front of it is appended."""
        cdef Writer reply = serving.reply
        self.producing.suspend(serving, start)
        if reply is self.out:                           # half a reply is not to be sent
            self.out.cut(start, len(self.out.ranges))
        self.preparing = True
        self.pause()
        self.task = self.broker.workers.run(serving.preparation.run)
        self.task.add_done_callback(lambda done: self.prepared(done, serving))
        return 0

    def prepared(self, done, Serving serving not None):
        """A thread has prepared a batch: go on with its request."""
        self.task, self.preparing = None, False
        self.active_at = self.poller.clock.monotonic()
        if self.closed or done.cancelled():
            return
        try:
            self.producing.resume(serving)
            if not self.producing.go_on(serving):
                self.prepare(serving, 0)
                return
            self.finish_produce(serving, 0)
        except Exception as error:
            self.failed(error)
        self.go_on()

    cdef int finish_produce(self, Serving serving, Py_ssize_t start) except -1:
        """Send the reply of a request that is served, or keep it for as long as it is promised."""
        cdef Writer reply = serving.reply
        cdef PendingReply pending = serving.pending
        if serving.acks == 0:
            if serving.failed:
                raise MalformedMessage("a produce with acks=0 failed; closing is its only answer")
            self.answered(PRODUCE, self.began_at)
            return 0
        store_int32(reply.data + start, <int32_t>(reply.size - start - 4))
        if pending is not None and pending.open_promises == 0:
            pending = None
        if reply is self.out:
            if pending is None:
                self.answered(PRODUCE, self.began_at)
                return 0
            # acks=1 that flush.messages holds back: the replies before it go without it.
            pending.move_to(Writer(), start)
            self.out.cut(start, len(self.out.ranges))
        if pending is None and not self.promised:
            self.out.write_raw(reply.data, reply.size)
            self.answered(PRODUCE, self.began_at)
            return 0
        if pending is None:
            pending = PendingReply(reply, None, 0)
        pending.began = self.began_at
        self.promised.append(pending)
        if len(self.promised) == 1:
            self.watch_promised()
        return 0

    cdef int hold_produce(
        self, Cursor request, int version, int32_t correlation_id, int acks, waiting
    ) except -1:
        """Serve a produce once its partitions are in its transaction; frames behind it wait."""
        frame = bytearray(request.rest())
        self.task = waiting
        waiting.add_done_callback(
            lambda done: self.go_on_producing(done, frame, version, correlation_id, acks))
        return 0

    def go_on_producing(self, done, bytearray frame, int version, int correlation_id, int acks):
        """The coordinator has added a produce's partitions to its transaction, or refused."""
        cdef Cursor request = Cursor.__new__(Cursor)
        cdef uint8_t[::1] view = frame
        self.task = None
        self.active_at = self.poller.clock.monotonic()
        if self.closed or done.cancelled():
            return
        request.at, request.end = &view[0], &view[0] + view.shape[0]
        try:
            self.serve_produce(request, version, correlation_id, acks, done.result())
        except Exception as error:
            self.failed(error)
        self.go_on()

    cdef int handle_fetch(self, Cursor request, int version, int32_t correlation_id) except -1:
        self.fetch = self.fetching.read(request, version)
        self.fetch.client = self.client
        self.correlation_id = correlation_id
        self.fetching.begin(self.fetch, self.poller.clock.monotonic())
        if not self.try_fetch(False):
            self.wait = Wait(self.loop, self.resume_fetch)
            self.fetching.watch(self.fetch, self.wait)
            self.wait.start(self.fetch.wait_ms_max * 0.001)
        return 0

    cdef bint try_fetch(self, bint final) except -1:
        """Answer the fetch in hand if its reply is due."""
        cdef Py_ssize_t start = self.out.size
        cdef Py_ssize_t ranges = len(self.out.ranges)
        cdef Py_ssize_t file_bytes = self.out.file_bytes
        if not self.fetching.look(self.fetch, final):
            return False
        try:
            self.out.write_int32(0)
            write_response_header(self.out, FETCH, self.fetch.version, self.correlation_id)
            self.fetching.write(self.fetch, self.out)
        except BaseException:
            self.out.cut(start, ranges)
            raise
        store_int32(
            self.out.data + start,
            <int32_t>(self.out.size - start - 4 + self.out.file_bytes - file_bytes))
        self.fetch = None
        self.answered(FETCH, self.began_at)
        return True

    def resume_fetch(self, Wait wait not None):
        """Something that the waiting fetch reads has moved, or its time is up."""
        cdef Fetch fetch = self.fetch
        if self.closed or self.wait is not wait:
            return
        try:
            if not self.try_fetch(wait.over):
                return
            self.fetching.unwatch(fetch, wait)
            wait.stop()
            self.wait = None
            self.active_at = self.poller.clock.monotonic()
        except Exception as error:
            self.failed(error)
        self.go_on()

    cdef int handle_other(self, Cursor request, RequestHeader head) except -1:
        cdef RequestContext context = RequestContext.__new__(RequestContext)
        context.broker, context.api_key, context.version = self.broker, head.api_key, head.version
        context.client = self.client
        response = serve(context, request)
        if type(response) is LateReply:
            return self.wait_for(<LateReply>response, head)
        if isinstance(response, (Message, bytes)):
            return self.write_response(head.api_key, head.version, head.correlation_id, response)
        self.task = asyncio.ensure_future(response, loop=self.loop)
        self.task.add_done_callback(
            lambda task: self.task_done(task, head.api_key, head.version, head.correlation_id))
        return 0

    def task_done(self, task, int key, int version, int correlation_id):
        """A coroutine handler ended: send its reply and go on with the frames behind it."""
        self.task = None
        if self.closed or task.cancelled():
            return
        self.answer(task.exception() or task.result(), key, version, correlation_id)
        self.go_on()

    cdef int wait_for(self, LateReply late, RequestHeader head) except -1:
        """Write a late reply if it is there already; else the frames behind it wait."""
        late.api_key, late.version = head.api_key, head.version
        late.correlation_id = head.correlation_id
        late.receiver = self
        if late.over:
            self.answer(late.response, late.api_key, late.version, late.correlation_id)
        else:
            self.task = late
        return 0

    def deliver_late(self, LateReply late not None):
        """A late reply is there: it is sent from here, a turn of the loop would cost more."""
        self.task = None
        self.answer(late.response, late.api_key, late.version, late.correlation_id)
        if self.inbox.held() > 0:
            self.schedule()             # not from here: what is behind it may need whoever called
            return
        try:
            self.flush()
        except OSError:
            self.close()

    cdef int answer(self, response, int key, int version, int32_t correlation_id) except -1:
        """Write what a handler had later: its response, or the exception in its place."""
        self.active_at = self.poller.clock.monotonic()
        if self.closed:
            return 0
        try:
            if isinstance(response, BaseException):
                raise response
            self.write_response(key, version, correlation_id, response)
        except Exception as error:
            self.failed(error)
        return 0

    cdef int write_response(
        self, int16_t key, int version, int32_t correlation_id, response
    ) except -1:
        """Add a reply: a message, or a body that is bytes already."""
        cdef Py_ssize_t start = self.out.size
        self.out.write_int32(0)
        write_response_header(self.out, key, version, correlation_id)
        try:
            if type(response) is bytes:
                self.out.write_raw(<const char *><bytes>response, len(response))
            else:
                (<Message?>response).encode_into(self.out, version)
        except BaseException:
            self.out.size = start
            raise
        store_int32(self.out.data + start, <int32_t>(self.out.size - start - 4))
        return self.answered(key, self.began_at)

    cdef int answered(self, int key, double began) except -1:
        """A reply is ready; a clock is asked where somebody wants to know how long it took."""
        cdef double seconds
        if self.counts.timing or self.counts.traced:
            seconds = self.poller.clock.monotonic() - began
            self.counts.took(key, seconds)
            if self.counts.traced:
                self.counts.trace(self, key, seconds)
        return 0

    # -- promised replies ------------------------------------------------------------------------

    def promise_kept(self):
        """The last promise of some queued reply was kept."""
        self.schedule()

    cdef int release_promised(self) except -1:
        """Move the replies at the head of the queue that are whole behind those to be sent."""
        cdef PendingReply head
        cdef bint released = False
        while self.promised:
            head = <PendingReply>self.promised[0]
            if head.open_promises > 0:
                if released:
                    self.watch_promised()
                return 0
            self.promised.popleft()
            self.out.write_raw(head.frame.data, head.frame.size)
            self.answered(PRODUCE, head.began)
            released = True
        return 0

    cdef int watch_promised(self) except -1:
        """Have one timer for the whole queue: nothing behind the head can be sent before it."""
        cdef double deadline = (<PendingReply>self.promised[0]).deadline
        if self.promise_timer is not None:
            if <double>self.promise_timer.when() <= deadline:
                return 0
            self.promise_timer.cancel()
        self.promise_timer = self.loop.call_at(
            max(deadline, self.poller.clock.monotonic() + 0.01), self.promises_due)
        return 0

    def promises_due(self):
        """Tell the clients whose time is up; look again when the next one's may be."""
        cdef PendingReply reply
        self.promise_timer = None
        if self.closed:
            return
        now = self.poller.clock.monotonic()
        for item in self.promised:
            reply = <PendingReply>item
            if reply.open_promises > 0 and reply.deadline <= now:
                reply.expire()
        self.release_promised()
        if self.promised:
            self.watch_promised()

    # -- sending ---------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Send what the socket takes; wait for room where it does not take all."""
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
            self.active_at = self.poller.clock.monotonic()       # nothing could arrive until now
            self.poller.watch(self.transport.fd, self, 0 if self.paused else EPOLLIN)
        return 0

    cdef int wait_for_room(self) except -1:
        if not self.writing:
            self.writing = True
            self.poller.watch(self.transport.fd, self, EPOLLOUT)
        return 0

    cdef int warm(self) except -1:
        """Have a thread read what is sent next; until then the connection rests."""
        cdef FileRange cold = <FileRange>self.out.ranges[0]
        self.warming = self.writing = True
        self.poller.watch(self.transport.fd, self, 0)
        reads = self.broker.cold_reads
        reads.begin(cold.file, cold.position, min(cold.left, WARM_SIZE), self.warmed)

    def warmed(self, error):
        """What was cold is in memory now, or `error` says why it never will be."""
        self.warming = False
        if error is not None and not self.closed:
            self.unreadable(error)
        if not self.closed:
            self.out.warmed()
            self.poller.watch(self.transport.fd, self, EPOLLOUT)

    cdef int unreadable(self, error) except -1:
        log.error("%r is closed, what it was promised cannot be read: %s", self, error)
        self.close()

    # -- ending ----------------------------------------------------------------------------------

    def failed(self, error):
        """Close on what a frame raised: it is no request, or the failure is ours and told whole."""
        if isinstance(error, MalformedMessage):
            self.refuse(error)
            return
        log.error("%r is closed by a failure of the broker", self, exc_info=error)
        self.close()

    def refuse(self, error):
        """Close on bytes that are no request, with one line in the log that says why."""
        self.listener.refused(self, error)
        try:
            self.flush()            # the requests before it have their replies
        except OSError:
            pass
        self.close()

    def close(self):
        """End the connection; everything that it waits for lets go of it."""
        if self.closed:
            return
        self.closed = True
        self.counts.closed_connections += 1
        self.poller.watch(self.transport.fd, self, 0)
        if self.wait is not None:
            self.fetching.unwatch(self.fetch, self.wait)
            self.wait.stop()
            self.wait = None
        if self.task is not None:
            self.task.cancel()
        if self.promise_timer is not None:
            self.promise_timer.cancel()
        self.promised.clear()
        self.out.ranges.clear()
        self.transport.close()
        self.listener.closed(self)

    def stalled_since(self):
        """Loop time since when a frame has been half received; None if there is no such frame."""
        if self.inbox.held() == 0 or self.writing or self.held():
            return None
        return self.active_at

    def held(self):
        """Whether frames wait here because of us, not of the client."""
        return (
            self.task is not None or self.wait is not None or len(self.promised) > 0
        )
