"""One listener, at every address of its host: accepts clients within the limits, and closes those
that have been silent for too long."""

from __future__ import annotations

import errno
import logging
import math
import socket
from typing import TYPE_CHECKING, Any

from ottla.broker.connection import ClientConnection
from ottla.broker.handshakes import Handshakes
from ottla.broker.listening_sockets import listen
from ottla.broker.network.transport import Transport
from ottla.broker.security.client import Client
from ottla.broker.security.listener_security import ListenerSecurity
from ottla.broker.security.logins import Logins
from ottla.broker.settings.addresses import canonical_host

if TYPE_CHECKING:
    import asyncio

    from ottla.broker.api.records.fetch import FetchHandler
    from ottla.broker.api.records.produce import ProduceHandler
    from ottla.broker.connection_limits import ConnectionLimits
    from ottla.broker.context import BrokerContext
    from ottla.broker.network.poller import BrokerLoop

log = logging.getLogger("ottla.listener")
requests = logging.getLogger("ottla.requests")

ACCEPTS_PER_TURN = 64
"""How many connections are accepted in one turn of the loop, before its other work."""
SWEEP_SECONDS = 5.0
FRAME_STALL_SECONDS = 30.0
"""A connection is closed if an incomplete frame gets no further byte for this long (slow loris).
Idle clients may stay longer.
"""
REFUSALS_LOGGED_PER_SWEEP = 10
LOGIN_SECONDS = 30.0
"""A client that has not authenticated after this time is closed."""
THROTTLED_MAX = 1000
"""The limit on a listener's connections from addresses above their quota. Each of them stays open
until its delay ends; connections above the limit are closed at once."""
STRANGERS_MAX = 1000
"""The limit on a listener's unauthenticated clients; if one more connects, the oldest is closed."""


class Listener:
    """Listening sockets and the connections that they accepted."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        broker: BrokerContext,
        produce_handler: ProduceHandler,
        fetch_handler: FetchHandler,
        limits: ConnectionLimits,
        loop: BrokerLoop,
        security: ListenerSecurity | None = None,
    ) -> None:
        self.security = security or ListenerSecurity(name, "PLAINTEXT", {})
        self.name, self.broker, self.limits, self.loop = name, broker, limits, loop
        self.logins = Logins(name)
        self.rates = broker.connection_rates
        self.paused: asyncio.Handle | None = None
        """The scheduled call that ends a pause in accepting connections; None if none is scheduled.
        The listener pauses if clients connect too fast, or if no slot is free."""
        self.throttled: dict[socket.socket, asyncio.TimerHandle] = {}
        """The connections from addresses above their quota, until the timers close them."""
        self.produce_handler, self.fetch_handler = produce_handler, fetch_handler
        config = broker.config
        self.frame_size_max = config.socket_request_max_bytes
        idle_ms = config.connections_max_idle_ms
        self.idle_seconds = idle_ms / 1000 if idle_ms >= 0 else math.inf
        self.connections: dict[ClientConnection, None] = {}
        self.strangers: dict[ClientConnection, None] = {}
        self.handshakes = Handshakes(loop, broker.workers, self._serve, self._unserved)
        self.refusals = self.accepted = 0
        self.full = False
        """Whether the listener has run out of slots since the last sweep, or still waits for
        one."""
        self.send_buffer_size = config.socket_send_buffer_bytes
        self.socks = self._listen(
            host, port, config.socket_listen_backlog_size, config.socket_receive_buffer_bytes
        )
        self.port: int = self.socks[0].getsockname()[1]
        self.spare = _spare_descriptor()
        limits.listeners.append(self)
        self._resume()
        broker.counts.traced = requests.isEnabledFor(logging.DEBUG)
        self.sweeper = loop.call_later(SWEEP_SECONDS, self.sweep)

    def _listen(
        self, host: str, port: int, backlog: int, receive_buffer_size: int
    ) -> list[socket.socket]:
        return listen(self.name, host, port, backlog, receive_buffer_size)

    def _resume(self) -> None:
        for sock in self.socks:
            self.loop.add_reader(sock.fileno(), self._accept, sock)

    def _pause(self) -> None:
        for sock in self.socks:
            self.loop.remove_reader(sock.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self.limits.has_slot(self.name):
                self._wait_for_a_slot()
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_away(listening)
                elif error.errno != errno.ECONNABORTED:
                    log.error("listener %s: accept failed: %s", self.name, error)
                return
            self._admit_or_close(sock, (canonical_host(address[0]), *address[1:]))
            pause = self.rates.accepted(self.name, self.loop.time())
            if pause > 0:
                self._pause()
                self.paused = self.loop.call_later(pause, self._accept_again)
                return

    def _wait_for_a_slot(self) -> None:
        self._pause()
        self.limits.wait(self.name, self._slot_is_free)
        if not self.full:
            self.full = True
            log.warning(
                "listener %s has %d connections, and the whole broker has %d: because of"
                " max.connections, further clients wait until a connection ends",
                self.name, self.limits.per_listener[self.name], self.limits.count,
            )

    def _slot_is_free(self) -> None:
        self.paused = self.loop.call_soon(self._accept_again)

    def _accept_again(self) -> None:
        """Accept again after a pause."""
        self.paused = None
        self._resume()
        for sock in self.socks:
            if self.paused is None:         # the previous socket may have caused a pause
                self._accept(sock)

    def _admit_or_close(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        held = self.rates.held(address[0], self.loop.time())
        if held > 0 and len(self.throttled) < THROTTLED_MAX:
            self.throttled[sock] = self.loop.call_later(held, self._close_throttled, sock)
        elif held <= 0 and self.limits.admits(address[0]):
            self._open(sock, address)
        else:
            sock.close()

    def _close_throttled(self, sock: socket.socket) -> None:
        del self.throttled[sock]
        sock.close()

    def _client(self, sock: socket.socket, address: tuple[Any, ...]) -> Client:
        """The client that has connected; its connection id has Kafka's format."""
        self.accepted += 1
        local, peer = sock.getsockname(), address
        return Client(
            peer[0], self.name, f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{self.accepted}",
            protocol=self.security.protocol,
        )

    def _open(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.send_buffer_size >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_size)
        self.admit(sock, address)

    def admit(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        """Serve the client of a non-blocking socket."""
        self.limits.opened(address[0], self.name)
        if self.security.tls is not None:
            self.handshakes.begin(sock, address, self.security.tls)
        else:
            self._serve(sock, address, Transport(sock), None)

    def _serve(
        self, sock: socket.socket, address: tuple[Any, ...], transport: Transport,
        principal: str | None,
    ) -> None:
        client = self._client(sock, address)
        if principal is not None and not self.security.authenticates:
            client = client.authenticated(principal, False)
            self.logins.success(principal, client.host, client.peer(), "TLS", False)
        connection = ClientConnection(self.loop, self, transport, client, self.security)
        self.connections[connection] = None
        if self.security.tls is not None:
            # The client's first request may have arrived together with the end of the handshake.
            self.loop.call_soon(connection.receive_pending)
        if connection.session is not None:
            self.strangers[connection] = None
            if len(self.strangers) > STRANGERS_MAX:
                oldest = next(iter(self.strangers))
                oldest.refuse(PermissionError("too many other clients have not authenticated yet"))
        log.debug("listener %s: %r is open", self.name, connection)

    def _unserved(self, address: tuple[Any, ...], error: Exception) -> None:
        """Handle a failed TLS handshake."""
        self.limits.closed(address[0], self.name)
        self.logins.failure(False)
        self._refused(f"connection from {address[0]}:{address[1]}", error)

    def _turn_away(self, listening: socket.socket) -> None:
        """Refuse a client when no descriptor is left: close the spare descriptor, accept the client
        and close it, and open the spare descriptor again."""
        self.refusals += 1
        if self.refusals <= REFUSALS_LOGGED_PER_SWEEP:
            log.error(
                "listener %s: a client was refused, since this broker has no free file descriptor;"
                " raise the limit (ulimit -n)", self.name)
        self.spare.close()
        try:
            sock, _ = listening.accept()
            sock.close()
            self.spare = _spare_descriptor()
        except OSError:
            pass                        # another file took the descriptor: there is no spare now

    def sweep(self) -> None:
        """Close connections that are idle, whose frame stays incomplete, or whose client does not
        authenticate in time; called every few seconds."""
        now = self.loop.time()
        self.broker.counts.traced = requests.isEnabledFor(logging.DEBUG)
        self.handshakes.sweep()
        for connection in list(self.connections):
            connection.catch_up()
            stalled = connection.stalled_since()
            if stalled is not None and now - stalled > FRAME_STALL_SECONDS:
                connection.refuse(
                    TimeoutError(
                        "the client sent a part of a request, and then nothing for"
                        f" {now - stalled:.0f} s")
                )
            elif connection in self.strangers and now - connection.opened_at > LOGIN_SECONDS:
                connection.refuse(TimeoutError(
                    f"the client did not authenticate within {LOGIN_SECONDS:.0f} s"))
            elif now - connection.active_at > self.idle_seconds and (
                connection.ended or not connection.held()
            ):
                connection.close()
            elif now - connection.active_at > SWEEP_SECONDS:
                connection.trim()
        if self.refusals > REFUSALS_LOGGED_PER_SWEEP:
            more = self.refusals - REFUSALS_LOGGED_PER_SWEEP
            log.warning(
                "listener %s: %d more connections were refused or closed; they are not logged one"
                " by one",
                self.name, more,
            )
        self.refusals, self.full = 0, self.name in self.limits.waiting
        self.logins.sweep()
        self.sweeper = self.loop.call_later(SWEEP_SECONDS, self.sweep)

    def refused(self, connection: ClientConnection, error: Exception) -> None:
        """Log why a connection is closed, at a bounded rate: bad clients must not flood the log."""
        self._refused(repr(connection), error)

    def _refused(self, who: str, error: Exception) -> None:
        self.refusals += 1
        if self.refusals <= REFUSALS_LOGGED_PER_SWEEP:
            log.warning("listener %s: %s is closed: %s", self.name, who, error)

    def authenticated(self, connection: ClientConnection) -> None:
        """A client has authenticated: the limits on unauthenticated clients no longer apply to it.
        """
        self.strangers.pop(connection, None)

    def closed(self, connection: ClientConnection) -> None:
        """Forget a connection that has ended."""
        self.strangers.pop(connection, None)
        if connection in self.connections:
            del self.connections[connection]
            log.debug(
                "listener %s: %r has ended after %d requests, with %d bytes received and %d bytes"
                " sent",
                self.name, connection, connection.requests, connection.received, connection.sent,
            )
            self.limits.closed(connection.client.host, self.name)

    def stop_accepting(self) -> None:
        """Close the listening sockets; existing connections stay."""
        self.limits.waiting.pop(self.name, None)
        if self.paused is not None:
            self.paused.cancel()
        for sock, handle in self.throttled.items():
            handle.cancel()
            sock.close()
        self.throttled.clear()
        self._pause()
        for sock in self.socks:
            sock.close()
        self.spare.close()
        self.sweeper.cancel()

    def close(self) -> None:
        """End the handshakes and all connections."""
        self.handshakes.close()
        for connection in list(self.connections):
            connection.close()


def _spare_descriptor() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
