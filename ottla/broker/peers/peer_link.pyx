# cython: boundscheck=False, wraparound=False
"""The common part of connections to other brokers: it handles the socket's events, sends what the
socket accepts, and releases the socket at the end.
"""

from libc.stdint cimport uint8_t

from ottla.broker.network.poller cimport EPOLLIN, EPOLLOUT, Pollable
from ottla.broker.network.transport cimport Transport

import logging

from ottla.wire.errors import MalformedMessage

log = logging.getLogger("ottla.peers")


cdef class PeerLink(Pollable):
    """An open connection to another broker. The subclasses define the requests and the replies."""

    cdef int open(self, loop, Transport transport) except -1:
        self.loop, self.poller, self.transport = loop, loop.poller, transport
        self.heard_at = self.poller.clock.monotonic()
        self.poller.watch(transport.fd, self, EPOLLIN)
        return 0

    @property
    def expires_at(self):
        """Loop time at which the login of this connection has to be renewed; 0: never."""
        return 0.0 if self.transport is None else self.transport.expires_at

    # -- defined by subclasses ---------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Send what is unsent, with `push`."""
        raise NotImplementedError

    cdef int receive(self) except -1:
        """Receive what the socket has, and process it."""
        raise NotImplementedError

    cdef int make_progress(self) except -1:
        """Called after each event of the socket, for example to send requests that are due
        now."""
        return 0

    cdef int fail(self, error) except -1:
        """End the connection after an error, and report the error."""
        raise NotImplementedError

    # -- shared by all ---------------------------------------------------------------------------

    cdef int ready(self) except -1:
        """Handle a socket that is readable, closed or writable."""
        try:
            if self.writing:
                self.flush()
            self.receive()
        except (OSError, MalformedMessage) as error:
            self.fail(error)
        except Exception as error:
            log.error("%r is closed after an internal error", self, exc_info=error)
            self.fail(error)
        if self.error is None:
            self.make_progress()
        if self.error is None and self.transport.pending() > 0:
            self.loop.call_soon(self.receive_pending)
        return 0

    def receive_pending(self):
        """Receive what is buffered in the transport, which the poller cannot see."""
        if self.error is None:
            self.ready()

    cdef Py_ssize_t push(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Send what the socket accepts; returns the number of bytes. Once the socket has room
        again, `flush` is called and has to push the rest."""
        cdef Py_ssize_t moved, sent = 0
        while sent < size:
            moved = self.transport.send(data + sent, size - sent, False)
            if moved < 0:
                break
            sent += moved
        if self.writing != (sent < size):
            self.writing = sent < size
            self.poller.watch(
                self.transport.fd, self, EPOLLIN | EPOLLOUT if self.writing else EPOLLIN)
        return sent

    cdef int detach(self, bint close) except -1:
        """Stop watching the socket, and close it if `close` is true. Does nothing if it is released
        already."""
        if self.transport is not None:
            self.poller.watch(self.transport.fd, self, 0)
            if close:
                self.transport.close()
            self.transport = None
        return 0
