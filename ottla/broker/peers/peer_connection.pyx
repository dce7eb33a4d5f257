# cython: boundscheck=False, wraparound=False
"""One connection to another broker: it sends requests and receives replies in the same order.

Addresses and retries are the task of `Peers`. When the connection ends, requests without a reply
fail; their outcome is unknown.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memmove

from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.transport cimport Transport
from ottla.broker.peers.peer_link cimport PeerLink
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.headers cimport RequestHeader, is_flexible
from ottla.wire.structs cimport Message, decode_from

import asyncio
import logging
from collections import deque

from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import MalformedMessage

log = logging.getLogger("ottla.peers")

cdef enum:
    WAITING_MAX = 1000              # requests without a reply
    UNSENT_MAX = 4 << 20            # bytes of requests that are not sent yet
    REPLY_SIZE_MAX = 100 << 20      # like socket.request.max.bytes for requests
    LENGTH_SIZE = 4
    API_VERSIONS = 18


class PeerUnavailable(ConnectionError):
    """Another broker did not answer. `sent` is False if that broker has certainly not served the
    request; otherwise the outcome is unknown."""

    def __init__(self, str text, bint sent):
        super().__init__(text)
        self.sent = sent


cdef class PeerConnection(PeerLink):
    """An open connection. `on_close` is called with the reason when it ends, unless `close`,
    `retire` or `hand_over` was called before."""

    def __init__(self, loop, Transport transport not None, str client_id, str name, on_close):
        self.client_id, self.name, self.on_close = client_id, name, on_close
        self.inbox, self.out = Inbox(REPLY_SIZE_MAX), Writer()
        self.waiting = deque()
        self.open(loop, transport)

    def __repr__(self):
        return f"connection to {self.name}"

    def ask(self, Message request not None, int version):
        """Send a request; returns a future of the response.

        The future may fail with PeerUnavailable. This method raises PeerUnavailable if the
        connection has ended or too many requests are waiting.
        """
        cdef Writer out = self.out
        cdef RequestHeader header
        cdef Py_ssize_t start = out.size
        if self.error is not None:
            raise PeerUnavailable(f"{self.name}: {self.error}", sent=False)
        if len(self.waiting) >= WAITING_MAX or out.size > UNSENT_MAX:
            raise PeerUnavailable(
                f"{self.name} is too slow: {len(self.waiting)} requests have no reply yet, and"
                f" {out.size} bytes of them are not sent yet", sent=False)
        self.correlation_id = (self.correlation_id + 1) & 0x7fffffff
        header = RequestHeader(request.API_KEY, version, self.correlation_id, self.client_id)
        try:
            out.write_int32(0)
            header.write(out)
            request.encode_into(out, version)
        except BaseException:
            out.size = start
            raise
        store_int32(out.data + start, <int>(out.size - start - LENGTH_SIZE))
        future = self.loop.create_future()
        self.waiting.append((self.correlation_id, APIS[request.API_KEY], version, future))
        if not self.writing:
            try:
                self.flush()
            except OSError as error:
                self.fail(error)
        return future

    cdef int flush(self) except -1:
        cdef Writer out = self.out
        cdef Py_ssize_t moved = self.push(out.data, out.size)
        memmove(out.data, out.data + moved, out.size - moved)
        out.size -= moved
        return 0

    cdef int receive(self) except -1:
        """Receive bytes, and complete the futures of the replies that have arrived completely."""
        cdef Py_ssize_t got = self.inbox.receive(self.transport)
        if got == 0:
            raise ConnectionResetError("the other broker has closed the connection")
        if got < 0:
            return 0
        self.heard_at = self.poller.clock.monotonic()
        while self.inbox.has_frame():
            self.take_reply()
        self.inbox.compact()
        return 0

    cdef int take_reply(self) except -1:
        cdef Cursor reply = Cursor.__new__(Cursor)
        cdef Py_ssize_t size
        cdef uint8_t *frame = self.inbox.take(&size)
        reply.at, reply.end = frame, frame + size
        if not self.waiting:
            raise MalformedMessage("a reply arrived, but no request was waiting for one")
        correlation_id, api, version, future = self.waiting[0]
        if reply.read_int32() != correlation_id:
            raise MalformedMessage(
                f"a reply arrived out of order: the reply to {api.name} was due")
        if api.key != API_VERSIONS and is_flexible(api.key, version):
            reply.skip_tags()
        if future.done():                       # the caller has cancelled it
            self.waiting.popleft()
            return 0
        response = decode_from(api.response, reply, version)
        self.waiting.popleft()
        future.set_result(response)
        return 0

    cdef int make_progress(self) except -1:
        if self.retired and not self.waiting:
            self.close(ConnectionError("a newer connection has replaced this one"))
        return 0

    def retire(self):
        """End once all due replies have arrived. No further requests are sent on this
        connection."""
        self.retired, self.on_close = True, None
        self.make_progress()

    cdef int fail(self, error) except -1:
        if self.error is not None:
            return 0
        on_close = self.on_close
        self.close(error)
        if on_close is not None:
            on_close(error)
        return 0

    def close(self, error):
        """End the connection; requests without a reply fail for this reason."""
        if self.error is not None:
            return
        self.error, self.on_close = error, None
        self.detach(True)
        waiting, self.waiting = self.waiting, deque()
        for _, api, _, future in waiting:
            if not future.done():
                future.set_exception(
                    PeerUnavailable(f"{self.name} did not answer {api.name}: {error}", sent=True))

    def hand_over(self):
        """Give the transport to a new owner. Raises PeerUnavailable while a reply is due."""
        if self.waiting or self.inbox.held() or self.error is not None:
            raise PeerUnavailable(
                f"{self.name}: {self.error or 'the connection still waits for a reply'}",
                sent=False)
        transport = self.transport
        self.detach(False)
        self.on_close = None
        self.error = ConnectionError("its socket was handed over to a new owner")
        return transport
