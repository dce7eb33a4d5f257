# cython: boundscheck=False, wraparound=False
"""The replies of one connection: those that can be sent now, and those that wait."""

from libc.stdint cimport int32_t

from collections import deque

from ottla.broker.network.counts cimport Counts, LOCAL, QUEUED, REMOTE, THROTTLED, TOTAL
from ottla.broker.network.poller cimport MovableTimer
from ottla.broker.network.promises cimport PendingReply
from ottla.broker.network.reply cimport Reply
from ottla.broker.quotas.quotas cimport Quotas
from ottla.broker.quotas.throttle_field cimport set_throttle_time
from ottla.broker.security.client cimport Client
from ottla.log.files.clock cimport Clock
from ottla.wire.codec cimport Writer

cdef enum:
    PRODUCE = 0


cdef class ReplyQueue:
    """Keeps replies in the order of their requests."""

    def __init__(
        self, Reply out not None, loop, Clock clock not None, Counts counts not None,
        Quotas quotas not None, Client client not None, connection
    ):
        self.loop, self.clock, self.counts, self.connection = loop, clock, counts, connection
        self.quotas, self.client = quotas, client
        self.out, self.promised = out, deque()
        self.wait_timer = MovableTimer(loop)

    cdef Py_ssize_t waiting(self) except -1:
        """The number of replies that wait, or that follow a reply that waits."""
        return len(self.promised)

    cdef int add(self, Writer reply, Py_ssize_t start, PendingReply pending) except -1:
        """Add the encoded reply to a Produce request. The reply is in `out` from `start` on, or in
        its own writer. It waits for the acknowledgements (promises) in `pending`, unless `pending`
        is None."""
        if pending is not None and pending.open_promises == 0:
            pending = None
        if reply is self.out:
            if pending is None:
                return self.answered(PRODUCE)
            # This reply has acks=1, and waits for a flush (flush.messages). It leaves `out`, so
            # that earlier replies are sent now.
            pending.move_to(Writer(), start)
            self.out.cut(start, len(self.out.ranges))
        if pending is None and not self.promised:
            self.out.write_raw(reply.data, reply.size)
            return self.answered(PRODUCE)
        if pending is None:
            pending = PendingReply(reply, None, 0)
        self.waits()
        pending.began, pending.begun = self.began, max(self.began, self.free_at)
        pending.waits_since = self.free_at = self.waits_since
        self.promised.append(pending)
        if len(self.promised) == 1:
            self.watch()
        return 0

    cdef int release(self) except -1:
        """Move the complete replies at the head of the queue to `out`, from where they are sent."""
        cdef PendingReply head
        cdef bint released = False
        while self.promised:
            head = <PendingReply>self.promised[0]
            if head.open_promises > 0:
                if released:
                    self.watch()
                return 0
            self.promised.popleft()
            if head.moved is not None:
                head.complete()
            self.out.write_raw(head.frame.data, head.frame.size)
            if self.counts.timing or self.counts.traced:
                self.count(PRODUCE, head.began, head.begun, head.waits_since)
            released = True
        return 0

    cdef int watch(self) except -1:
        """Keep one timer for the whole queue: no reply can be sent before the head."""
        cdef double deadline = (<PendingReply>self.promised[0]).deadline
        if self.timer is not None:
            if <double>self.timer.when() <= deadline:
                return 0
            self.timer.cancel()
        self.timer = self.loop.call_at(max(deadline, self.clock.monotonic() + 0.01), self.due)
        return 0

    def due(self):
        """Answer requests that have timed out; set the timer again if replies still wait."""
        cdef PendingReply reply
        self.timer = None
        now = self.clock.monotonic()
        for item in self.promised:
            reply = <PendingReply>item
            if reply.open_promises > 0 and reply.deadline <= now:
                reply.expire()
        self.release()
        if self.promised:
            self.watch()

    cdef int arrived(self, double seconds) noexcept:
        """There is a new current request, which arrived at `seconds`."""
        self.began, self.waits_since = seconds, 0
        return 0

    cdef int waits(self) except -1:
        """The current request's handler has ended or waits: further time is not charged to the
        handler.
        """
        if self.waits_since == 0 and self.counts.timing:
            self.waits_since = self.clock.monotonic()
        return 0

    cdef int answered(self, int key) except -1:
        """The current request's reply is ready: count its duration if it is measured or logged."""
        if self.counts.timing or self.counts.traced:
            self.free_at = self.count(
                key, self.began, max(self.began, self.free_at), self.waits_since)
        return 0

    cdef double count(self, int key, double began, double begun, double waits_since) except -1:
        """Count the phases of a request that arrived at `began`: its handler ran from `begun` until
        `waits_since` (0: until now). Returns the current time."""
        cdef double now = self.clock.monotonic()
        cdef Counts counts = self.counts
        if waits_since == 0:
            waits_since = now
        counts.took(key, TOTAL, now - began)
        counts.took(key, QUEUED, begun - began)
        counts.took(key, LOCAL, waits_since - begun)
        counts.took(key, REMOTE, now - waits_since)
        if counts.traced:
            counts.trace(self.connection, key, now - began)
        return now

    cdef int32_t charge(self, int key, Py_ssize_t size) except -1:
        """Charge the current request to its client's quotas. Returns the throttle time.

        Called once the reply is made, and only while there are quotas (`quotas.active`).
        """
        cdef double now = self.clock.monotonic()
        return self.quotas.charge(self.client, key, size, now - self.in_hand, now)

    cdef int throttle(
        self, Writer reply, Py_ssize_t body_at, int key, int version, int32_t ms
    ) except -1:
        """Report the throttle time in `reply`, unless `reply` is None. Read nothing from the client
        for that time."""
        if reply is not None:
            set_throttle_time(reply, body_at, key, version, ms)
        self.counts.throttled += 1
        self.counts.took(key, THROTTLED, ms * 0.001)
        if self.connection is not None:
            self.connection.mute(ms * 0.001)
        return 0

    cdef int close(self) except -1:
        """Drop all replies, since the connection has ended."""
        self.connection = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.wait_timer.close()
        self.promised.clear()
        self.out.ranges.clear()
        return 0
