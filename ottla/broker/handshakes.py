"""Keeps the TLS handshakes of one listener that are in progress, and limits their number and
duration."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.network.tls_handshake import TlsHandshake

if TYPE_CHECKING:
    from ottla.broker.network.poller import BrokerLoop
    from ottla.broker.network.tls_transport import TlsTransport
    from ottla.broker.security.tls.context import TlsSettings
    from ottla.broker.threads.workers import Workers

HANDSHAKE_SECONDS = 30.0
"""A client whose handshake takes longer than this is disconnected."""
HANDSHAKES_MAX = 1000
"""The limit on handshakes in progress. If one more client connects, the client with the oldest
handshake is disconnected."""

Address = tuple[Any, ...]
OnOpened = Callable[[socket.socket, Address, "TlsTransport", str | None], None]
OnRefused = Callable[[Address, Exception], None]


class Handshakes:
    """Handshakes in progress. `opened` and `refused` are callbacks of the listener."""

    def __init__(
        self, loop: BrokerLoop, workers: Workers, opened: OnOpened, refused: OnRefused
    ) -> None:
        self.loop, self.workers = loop, workers
        self.opened, self.refused = opened, refused
        self.open: dict[TlsHandshake, tuple[Address, TlsSettings]] = {}

    def begin(self, sock: socket.socket, address: Address, tls: TlsSettings) -> None:
        """Start the handshake with a client that has connected."""
        handshake = TlsHandshake(self.loop, self.workers, sock, tls.accept, self._ended)
        self.open[handshake] = address, tls
        if len(self.open) > HANDSHAKES_MAX:
            next(iter(self.open)).fail(ConnectionError("too many TLS handshakes at a time"))

    def _ended(
        self, handshake: TlsHandshake, transport: TlsTransport | None, error: Exception | None
    ) -> None:
        address, tls = self.open.pop(handshake)
        if transport is not None:
            try:
                principal = tls.principal(transport.tls)
            except (LookupError, ValueError, StopIteration) as unknown:
                transport.close()
                error = ConnectionError(
                    f"no user can be derived from the client's certificate: {unknown}")
            else:
                self.opened(handshake.sock, address, transport, principal)
                return
        self.refused(address, error or ConnectionError("the TLS handshake has failed"))

    def sweep(self) -> None:
        """Disconnect the clients whose handshakes take too long."""
        now = self.loop.time()
        for handshake in list(self.open):
            if now - handshake.began_at > HANDSHAKE_SECONDS:
                seconds = now - handshake.began_at
                handshake.fail(
                    TimeoutError(f"the TLS handshake was not complete after {seconds:.0f} s")
                )

    def close(self) -> None:
        """End all handshakes without logging."""
        for handshake in list(self.open):
            handshake.cancel()
        self.open.clear()
