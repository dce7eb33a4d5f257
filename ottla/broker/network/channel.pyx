# cython: boundscheck=False, wraparound=False
"""The flow of bytes on one socket: when it is read, when frames are handled, when replies are sent.

The event loop only reports that the socket is ready; the channel receives and sends by itself.
Frames are handled in order, as soon as they have arrived. A request that has to wait for something
is a `Held` (promises.pxd lists the kinds): later frames wait until it ends. If the batches of a
Produce request still have to be replicated (acks=all) or flushed, its reply waits in the
`ReplyQueue`. Meanwhile only further Produce requests are handled.

While the socket accepts no more replies, nothing more is read: this bounds the memory that a client
can make the broker use. A client above its quota is muted for a while.

A client that ends its sending side may still read. Its requests are answered, as in Kafka; then the
channel is closed.

The channel does not interpret frames: its subclass `ClientConnection` handles them.
"""

from libc.stdint cimport uint32_t

from ottla.broker.network.cold_reads cimport WARM_SIZE
from ottla.broker.network.conversation cimport Conversation
from ottla.broker.network.counts cimport Counts
from ottla.broker.network.poller cimport EPOLLIN, EPOLLOUT, Pollable
from ottla.broker.network.promises cimport Held
from ottla.broker.network.reply cimport COLD, FileRange, Reply
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.network.transport cimport Transport
from ottla.broker.quotas.quotas cimport Quotas
from ottla.broker.security.client cimport Client

import logging
from errno import EIO

from ottla.broker.network.reply import RangeLost

log = logging.getLogger("ottla.connection")

cdef enum:
    PRODUCE = 0
    INBOX_SIZE_HELD = 1 << 16   # while a whole frame waits, the inbox stops growing at this size
    OUT_SIZE_MAX = 1 << 20      # unsent replies above this stop the handling of frames
    PROMISED_MAX = 1000         # replies in the ReplyQueue; clients have a handful in flight
    SEND_SIZE_PER_TURN = 4 << 20    # bytes; then other connections are served


cdef class Channel(Pollable):
    def __init__(
        self, loop, Transport transport not None, Client client not None, Counts counts not None,
        Quotas quotas not None, cold_reads, doubt_file, Py_ssize_t frame_size_max
    ):
        self.loop, self.poller, self.transport = loop, loop.poller, transport
        self.counts, self.quotas = counts, quotas
        self.cold_reads, self.doubt_file = cold_reads, doubt_file
        self.conversation = Conversation(frame_size_max)
        self.inbox, self.out = self.conversation.inbox, self.conversation.out
        self.queue = ReplyQueue(
            self.out, loop, self.poller.clock, counts, quotas, client, self)
        self.active_at = self.opened_at = self.poller.clock.monotonic()
        self.counts.opened += 1
        self.watch()

    cdef int watch(self) except -1:
        """Have the poller report only the events that the channel waits for now."""
        cdef uint32_t events = 0
        if self.writing:
            events = 0 if self.warming else EPOLLOUT
        elif not self.paused:
            events = EPOLLIN
        return self.poller.watch(self.transport.fd, self, 0 if self.closed else events)

    # -- the loop's calls ------------------------------------------------------------------------

    cdef int ready(self) except -1:
        """Handle a socket that is readable, was closed by the client, or is writable again."""
        if self.writing:
            self.active_at = self.poller.clock.monotonic()
            self.make_progress()
            return 0
        try:
            self.receive()
        except OSError:
            self.close()
        except Exception as error:
            self.failed(error)
        return 0

    def make_progress(self):
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
            self.poller.later(self.make_progress)
        return 0

    # -- receiving -------------------------------------------------------------------------------

    cdef int receive(self) except -1:
        cdef Py_ssize_t got
        if self.inbox.held() >= INBOX_SIZE_HELD and self.inbox.has_frame():
            self.pause()
            return 0
        got = self.inbox.receive(self.transport)
        if got == 0:
            self.ended = True
            self.pause()
            return self.close_if_done()
        if got < 0:
            return 0
        self.active_at = self.poller.clock.monotonic()
        if self.holding is not None and self.inbox.has_frame():
            self.holding.next_is_here()
        if not self.scheduled:
            self.make_progress()
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
        """Receive what has arrived of an incomplete frame. The poller does not report fewer than
        `transport.awaited` bytes (SO_RCVLOWAT)."""
        if self.transport.awaited > 1 and not self.closed and not self.paused and not self.writing:
            self.ready()

    def pause(self):
        """Stop receiving. `compact` resumes it once no whole frame waits and nothing else prevents
        it."""
        self.paused = True
        self.watch()

    cdef int compact(self) except -1:
        """Make room in the inbox, and resume receiving if nothing prevents it any longer."""
        if self.closed:
            return 0
        self.inbox.compact()
        if (self.paused and not self.ended and not self.writing and self.muting is None
                and not self.inbox.has_frame()
                and not (self.holding is not None and self.holding.stops_reading)):
            self.paused = False
            self.watch()
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

    cdef int handle_next(self) except -1:
        """Handle the first frame of the inbox, which is complete. Subclasses define this."""
        raise TypeError(f"{type(self).__name__} has to define handle_next")

    cdef int handle_frames(self) except -1:
        while not self.closed and self.out.unsent() + self.out.file_bytes < OUT_SIZE_MAX:
            if self.writing or not self.may_handle():
                return 0
            self.handle_next()
        return 0

    cdef int hold(self, Held held) except -1:
        """Make `held` the current request: later frames wait until it ends. If `held` is None, no
        request makes them wait."""
        self.holding = held
        if held is not None and held.stops_reading:
            self.pause()
        if held is not None:
            self.queue.waits()
        if held is not None and self.quotas.timing:
            # Subtract the time at which the wait begins; `resume` adds the time at which it ends.
            # So `in_hand` grows by the length of the wait, which is not charged to the request.
            self.queue.in_hand -= self.poller.clock.monotonic()
        return 0

    def resume(self, Held held not None):
        """Continue the current request, since the event that it waits for may have happened."""
        cdef Held following
        if self.closed or self.holding is not held:
            return
        if self.quotas.timing:
            self.queue.in_hand += self.poller.clock.monotonic()
        try:
            following = held.advance()
            if following is held:
                if self.quotas.timing:
                    self.queue.in_hand -= self.poller.clock.monotonic()
                return
            self.active_at = self.poller.clock.monotonic()
            self.hold(following)
        except Exception as error:
            self.failed(error)
        self.make_progress()

    def mute(self, double seconds):
        """Handle and read nothing for this time (KIP-219); replies are still sent.

        The socket is not watched for requests meanwhile, so that a throttled client costs no more
        than a timer.
        """
        if self.closed:
            return
        if self.muting is not None:
            if <double>self.muting.when() >= self.poller.clock.monotonic() + seconds:
                return
            self.muting.cancel()
        self.muting = self.loop.call_later(seconds, self.unmute)
        self.pause()

    def unmute(self):
        """The throttle time is over: handle the frames received before, and resume receiving."""
        self.muting = None
        self.active_at = self.poller.clock.monotonic()
        self.make_progress()

    def promise_kept(self):
        """The last promise of a queued reply has ended."""
        self.schedule()

    # -- sending ---------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Send up to SEND_SIZE_PER_TURN. If bytes remain, continue once the socket is writable."""
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
                if error.errno != EIO:      # EIO comes from the file: sockets do not raise it
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
            self.active_at = self.poller.clock.monotonic()       # nothing was read while `writing`
            self.watch()
            if self.transport.pending() > 0:
                self.loop.call_soon(self.receive_pending)
        return 0

    cdef int wait_for_room(self) except -1:
        if not self.writing:
            self.writing = True
            self.watch()
        return 0

    cdef int warm(self) except -1:
        """Have a thread read the next bytes to send; the connection sends nothing until the thread
        has read them."""
        cdef FileRange cold = <FileRange>self.out.ranges[0]
        self.warming = self.writing = True
        self.watch()
        self.cold_reads.begin(cold.file, cold.position, min(cold.left, WARM_SIZE), self.warmed)

    def warmed(self, error):
        """The cold range is in memory now, or `error` is why it cannot be read."""
        self.warming = False
        if error is not None and not self.closed:
            self.unreadable(error)
        if not self.closed:
            self.out.warmed()
            self.watch()

    cdef int unreadable(self, error) except -1:
        log.error("%r is closed: a part of its reply cannot be read from disk: %s", self, error)
        if self.out.ranges:
            self.doubt_file((<FileRange>self.out.ranges[0]).file.path, error)
        self.close()

    # -- ending ----------------------------------------------------------------------------------

    cdef int close_if_done(self) except -1:
        """Close if the client sends nothing more and has all its answers."""
        if self.ended and not (
                self.writing or self.scheduled or self.held() or self.inbox.has_frame()):
            self.close()
        return 0

    def failed(self, error):
        """Close after an exception: the broker has a bug."""
        log.error("%r is closed after an internal error", self, exc_info=error)
        self.close()

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
        self.watch()
        if self.holding is not None:
            self.holding.abandon()
        if self.muting is not None:
            self.muting.cancel()
            self.muting = None
        self.queue.close()
        self.transport.close()

    def stalled_since(self):
        """If a frame is incomplete, return the loop time since which the broker has waited for the
        rest. Otherwise return None."""
        if self.inbox.held() == 0 or self.writing or self.held():
            return None
        return self.active_at

    def held(self):
        """Whether the client has to wait for the broker: for the end of the current request, for
        the end of a throttle, or for replies that wait for acknowledgements."""
        return (
            self.holding is not None or self.muting is not None or self.queue.waiting() > 0)
