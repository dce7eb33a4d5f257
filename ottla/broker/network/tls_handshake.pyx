"""One TLS handshake, of a listener or of a broker that connects to another one.

A thread does the computations (a signature costs a millisecond); the loop only moves bytes. The
result is a `TlsTransport` or an error. The number of received bytes is limited. The creator of the
handshake limits its duration, and calls `fail` or `cancel` when the time is over.
"""

import ssl

from ottla.broker.network.poller cimport EPOLLIN, EPOLLOUT, Pollable, Poller
from ottla.broker.network.tls_transport cimport TlsTransport

cdef enum:
    RECEIVE_SIZE = 1 << 14
    HANDSHAKE_SIZE_MAX = 1 << 17        # a long chain of certificates needs a tenth of this
    RECORD_HANDSHAKE = 0x16             # the first byte that a TLS client sends


class NotTls(ConnectionError):
    """The received bytes are not TLS."""


cdef class TlsHandshake(Pollable):
    def __init__(self, loop, workers, sock, wrap, done):
        """`wrap` makes an SSLObject of two MemoryBIOs; `done(self, transport, error)` is called
        once, unless `cancel` is called first. One of `transport` and `error` is None."""
        self.loop, self.workers, self.sock, self.done = loop, workers, sock, done
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = wrap(self.incoming, self.outgoing)
        self.poller, self.fd = loop.poller, sock.fileno()
        self.began_at = loop.time()
        if self.tls.server_side:
            self.poller.watch(self.fd, self, EPOLLIN)
        else:
            self.step()

    cdef int ready(self) except -1:
        try:
            if self.writing:
                self.flush()
            else:
                self.receive()
        except Exception as error:
            self.fail(error)
        return 0

    cdef int receive(self) except -1:
        try:
            data = self.sock.recv(RECEIVE_SIZE)
        except (BlockingIOError, InterruptedError):
            return 0
        if not data:
            raise ConnectionError(
                f"the {'client' if self.tls.server_side else 'other broker'} closed the"
                " connection during the TLS handshake")
        if self.received == 0 and self.tls.server_side and data[0] != RECORD_HANDSHAKE:
            raise NotTls(
                "the client does not speak TLS on a port for TLS (is its security.protocol"
                " PLAINTEXT or SASL_PLAINTEXT?)")
        self.received += len(data)
        if self.received > HANDSHAKE_SIZE_MAX:
            raise ConnectionError(f"the TLS handshake exceeds {HANDSHAKE_SIZE_MAX} bytes")
        self.incoming.write(data)
        return self.step()

    cdef int step(self) except -1:
        """Have a thread process the received bytes."""
        self.poller.watch(self.fd, self, 0)
        self.workers.run(self.compute).add_done_callback(self.stepped)
        return 0

    def compute(self):
        """Process the received bytes. Runs in a thread; nothing else uses the TLS objects
        meanwhile."""
        try:
            self.tls.do_handshake()
            self.finished = True
        except ssl.SSLWantReadError:
            pass
        except Exception as error:
            self.error = error

    def stepped(self, future):
        """Continue on the loop after `compute` has ended."""
        if self.over or future.cancelled():
            return
        try:
            self.unsent = self.outgoing.read()
            self.flush()
        except Exception as error:
            self.fail(error)

    cdef int flush(self) except -1:
        """Send the bytes of the handshake, or an alert; then wait for the next message, or end."""
        if self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent):]
            except (BlockingIOError, InterruptedError):
                pass
        if self.unsent and self.error is None:
            self.writing = True
            self.poller.watch(self.fd, self, EPOLLOUT)
            return 0
        if self.error is not None:
            raise self.error
        self.writing = False
        if self.finished:
            self.end()
            self.done(
                self, TlsTransport(self.sock, self.tls, self.incoming, self.outgoing), None)
            return 0
        self.poller.watch(self.fd, self, EPOLLIN)
        return 0

    def fail(self, error):
        """End the handshake, and report the error."""
        if not self.over:
            self.end()
            try:
                self.done(self, None, error)
            finally:
                self.sock.close()

    def cancel(self):
        """End the handshake without reporting an error."""
        if not self.over:
            self.end()
            self.sock.close()

    def end(self):
        """End the handshake: no callback is called any more."""
        self.over = True
        self.poller.watch(self.fd, self, 0)
