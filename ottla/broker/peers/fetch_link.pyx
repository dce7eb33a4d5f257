# cython: boundscheck=False, wraparound=False
"""The connection on which the partitions of one leader are fetched. It sends requests, and passes
the bytes of replies to the `Fetcher` as they arrive.

The fetcher appends whole batches of records to the logs, straight from the receive buffer. What
remains, at most a part of a batch, is moved to the buffer's front. So the buffer may be smaller
than a reply.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from ottla.broker.network.transport cimport Transport
from ottla.broker.peers.peer_link cimport PeerLink
from ottla.replication.fetcher cimport Fetcher

import logging

from ottla.wire.errors import MalformedMessage

log = logging.getLogger("ottla.peers")

cdef enum:
    SIZE = 1 << 16                  # of a new buffer, which grows as bytes arrive
    SIZE_FULL = 1 << 20             # a full buffer doubles up to this; larger batches need more
    SIZE_MAX = 1 << 30              # no batch is this large
    RECEIVED_PER_TURN = 1 << 20     # after that, the other connections have their turn
    REQUESTS_MAX = 2                # one waits for records; a second names changes, ending the wait


cdef class FetchLink(PeerLink):
    """Runs a fetcher over an open connection. `on_end` is called with the reason when the
    connection ends by itself. `on_cut` is called when the fetcher has truncated logs."""

    def __init__(
        self, loop, Transport transport not None, Fetcher fetcher not None, on_end, on_cut
    ):
        self.fetcher, self.on_end, self.on_cut = fetcher, on_end, on_cut
        self.unsent = b""
        fetcher.reset()
        self.open(loop, transport)

    def __repr__(self):
        return f"the fetches from broker {self.fetcher.plan.source_id}"

    def __dealloc__(self):
        free(self.buffer)

    # -- requests --------------------------------------------------------------------------------

    def send_due(self):
        """Send the requests that are due now; later ones are sent by a timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        try:
            while self.error is None and not self.writing:
                if not self.is_due():
                    break
                request = self.fetcher.plan.request()
                if request is None:
                    break
                if self.fetcher.plan.outstanding == 1:
                    self.heard_at = self.poller.clock.monotonic()
                self.unsent, self.sent = request, 0
                self.flush()
            # While a request waits for records and nothing has changed, no other request is due:
            # the reply makes the next one due.
            if self.error is None and not self.writing and self.is_due():
                self.wait_for_due()
        except OSError as error:
            self.fail(error)
        except Exception as error:
            log.error("fetching from broker %d failed", self.fetcher.plan.source_id, exc_info=error)
            self.fail(error)

    def is_due(self):
        return self.fetcher.plan.outstanding == 0 or (
            self.fetcher.plan.news and self.fetcher.plan.outstanding < REQUESTS_MAX)

    def wait_for_due(self):
        due_ms = self.fetcher.plan.due_ms
        if due_ms >= 0:
            seconds = max(0.001, due_ms / 1000 - self.poller.clock.monotonic())
            self.timer = self.loop.call_later(seconds, self.time_has_come)

    def time_has_come(self):
        self.timer = None
        self.send_due()

    cdef int flush(self) except -1:
        cdef const uint8_t *data = self.unsent
        self.sent += self.push(data + self.sent, len(self.unsent) - self.sent)
        return 0

    # -- replies ---------------------------------------------------------------------------------

    cdef int make_progress(self) except -1:
        self.send_due()
        return 0

    cdef int receive(self) except -1:
        cdef Py_ssize_t got, room, budget = RECEIVED_PER_TURN
        while budget > 0 and self.error is None:
            if self.filled == self.room:
                self.make_room(self.fetcher.parser.wanted)
            room = self.room - self.filled
            got = self.transport.receive(self.buffer + self.filled, room)
            if got == 0:
                raise ConnectionResetError("the other broker has closed the connection")
            if got < 0:
                return 0
            budget -= got
            self.filled += got
            self.heard_at = self.poller.clock.monotonic()
            self.hand_on()
            if got < room and self.fetcher.plan.outstanding == 0:
                return 0                        # send the next request first
        return 0

    cdef int make_room(self, Py_ssize_t wanted) except -1:
        """Enlarge a buffer that is full, or too small for the `wanted` bytes of the next batch."""
        cdef Py_ssize_t size = max(wanted, min(max(2 * self.room, SIZE), SIZE_FULL))
        if size > SIZE_MAX:
            raise MalformedMessage(
                f"a fetched batch has {wanted} bytes, but at most {SIZE_MAX} are allowed")
        if size > self.room:
            grown = <uint8_t *>realloc(self.buffer, size)
            if grown is NULL:
                raise MemoryError(
                    f"out of memory: cannot allocate a receive buffer of {size} bytes")
            self.buffer, self.room = grown, size
        elif self.filled == self.room:
            raise MalformedMessage(
                f"the receive buffer is full, but none of its {self.filled} bytes can be parsed")
        return 0

    cdef int hand_on(self) except -1:
        """Pass the received bytes to the fetcher, which returns how many it has consumed."""
        cdef Py_ssize_t used
        if self.filled < self.fetcher.parser.wanted:
            if self.fetcher.parser.wanted > self.room:
                self.make_room(self.fetcher.parser.wanted)
            return 0
        used = self.fetcher.take(self.buffer, self.filled)
        if not 0 <= used <= self.filled:
            raise AssertionError(
                f"the fetcher consumed {used} bytes, but {self.filled} bytes were received")
        self.filled -= used
        if self.filled > 0 and used > 0:
            memmove(self.buffer, self.buffer + used, self.filled)
        if self.fetcher.parser.wanted > self.room:
            self.make_room(self.fetcher.parser.wanted)
        if self.fetcher.plan.cut:
            self.on_cut()
        return 0

    def trim(self):
        """Free the memory of an idle link."""
        if self.filled == 0 and self.room > SIZE:
            free(self.buffer)
            self.buffer, self.room = NULL, 0

    # -- the end ---------------------------------------------------------------------------------

    cdef int fail(self, error) except -1:
        if self.error is not None:
            return 0
        on_end = self.on_end
        self.close(error)
        on_end(error)
        return 0

    def close(self, error):
        """End the link; the fetcher starts again with the next link."""
        if self.error is not None:
            return
        self.error = error
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.detach(True)
        self.fetcher.reset()
