"""uvicorn with limits for slow clients: on the number of connections, and on the time to send a
request and to read its answer. Connections that do not speak HTTP are logged at most once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.wire.apis import APIS
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from ottla.console.service import Options

CONNECTIONS_MAX = 800
REQUEST_SECONDS = 15.0
"""How long a request may take to arrive, and how long a new connection may wait before its first
request."""
STALL_SECONDS = 15.0
"""How long a client may read nothing of its answer."""
STOP_SECONDS = 3
SEND_BUFFER_SIZE = 256 << 10
"""The size to which the kernel's send buffer is set; Linux doubles it. If no size is set, the
buffer grows to as much as 4 MiB."""
WHOLE = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
"""States of a client that has sent its whole request."""

NOTE_SECONDS = 60.0
"""The shortest time between two log lines about connections that do not speak HTTP."""
OF_UVICORN = ("Invalid HTTP request received.", "Unsupported upgrade request.",
              "No supported WebSocket library detected.")
"""The beginnings of uvicorn's warnings that `Refusals` replaces: uvicorn logs one for each
connection."""

log = logging.getLogger("ottla.console")


class Refusals:
    """Logs refused connections in at most one line a minute, which also counts the others."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._next = now()
        self._others = 0

    def note(self, what: str) -> None:
        """Log that a connection was refused, or count it."""
        if self._now() < self._next:
            self._others += 1
            return
        more = counted(self._others, "other connection")
        log.warning("%s%s", what, f"; refused since the previous warning: {more}" if self._others
                    else "")
        self._next, self._others = self._now() + NOTE_SECONDS, 0


def not_http(begin: bytes, client: tuple[str, int] | None) -> str:
    """What probably sent these bytes to the console's port, and what to do."""
    who = f" at {client[0]}" if client else ""
    key = int.from_bytes(begin[4:6], "big")
    if begin[:1] == b"\0" and len(begin) >= 6 and key in APIS:
        return (f"a Kafka client{who} sent {APIS[key].name} to the console's port, which serves"
                " HTTP only: give it the address of a broker")
    if begin[:2] == b"\x16\x03":
        return (f"a client{who} used TLS on the console's port, which has none: use http://, or"
                " start `ottla console` with --certificate and --key")
    return f"a client{who} sent an invalid HTTP request, which begins with {begin!r}"


class BoundedProtocol(H11Protocol):
    """A connection that is closed if its request does not arrive in time, or if its client does not
    read the answer. If there are too many connections, the server closes the connection whose
    answer has been unread for longest. If all clients read their answers, it closes the connection
    that has waited for a complete request for longest."""

    waiting: dict[BoundedProtocol, None] = {}
    """Connections without a complete request, including idle ones."""
    stalled: dict[BoundedProtocol, None] = {}
    """Connections whose client does not read the answer."""
    refusals = Refusals()
    begin = b""
    """The first bytes of the request that is being received."""
    late: asyncio.TimerHandle | None = None
    stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Counts the connection; closes one if there are too many."""
        super().connection_made(transport)
        self._expect()
        if len(self.connections) > CONNECTIONS_MAX:
            next(iter(self.stalled or self.waiting)).drop()     # may be this connection

    def data_received(self, data: bytes) -> None:
        """Read a request, or a part of it."""
        if self in self.waiting and self.late is None:
            self._expect()                          # the next request begins
        self.begin = self.begin or data[:16]
        super().data_received(data)

    def handle_events(self) -> None:
        """Note that a request is complete."""
        super().handle_events()
        if self.conn.their_state in WHOLE:
            self._cease()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not HTTP with status 400, and logs the connection."""
        self.refusals.note(not_http(self.begin, self.client))
        super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        who = f" at {self.client[0]}" if self.client else ""
        self.refusals.note(f"a client{who} asked for WebSocket, which the console does not have")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.begin = b""
        super().on_response_complete()              # may start a request that has arrived already
        if self.conn.their_state in WHOLE or self.transport.is_closing():
            return
        self.waiting[self] = None                   # uvicorn closes idle connections
        if self.conn.their_state is h11.SEND_BODY and self.late is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._cease()
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called when the client does not read its answer."""
        super().pause_writing()
        self.stalled[self] = None
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Called when the client reads its answer again."""
        super().resume_writing()
        self._go_on()

    def _expect(self) -> None:
        self.waiting[self] = None
        self.late = self.loop.call_later(REQUEST_SECONDS, self.drop)

    def _cease(self) -> None:
        self.waiting.pop(self, None)
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _watch(self, left: int) -> None:
        self.stuck = self.loop.call_later(STALL_SECONDS, self._look, left)

    def _look(self, left: int) -> None:
        """Keeps waiting if the client has read more of its answer; else closes the connection."""
        now = self.transport.get_write_buffer_size()
        if now < left:
            self._watch(now)
        else:
            self.drop()

    def _go_on(self) -> None:
        self.stalled.pop(self, None)
        if self.stuck is not None:
            self.stuck.cancel()
            self.stuck = None

    def drop(self) -> None:
        """Closes the connection at once."""
        self._cease()
        self._go_on()
        self.transport.abort()


class Server(uvicorn.Server):
    """A server that reports when it serves, and leaves signals to the caller."""

    def __init__(self, config: uvicorn.Config, ready: Any) -> None:
        super().__init__(config)
        self.ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, then calls `ready`."""
        await super().startup(sockets)
        if not self.should_exit:
            self.ready()


def is_logged(record: logging.LogRecord) -> bool:
    """Whether uvicorn may log this; `Refusals` logs the others."""
    return not str(record.msg).startswith(OF_UVICORN)


def server(app: ASGIApp, options: Options, ready: Any) -> Server:
    """A server of this application; the caller passes a socket to `serve`."""
    logging.getLogger("uvicorn.error").addFilter(is_logged)
    return Server(uvicorn.Config(
        app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False, date_header=False, proxy_headers=False, backlog=1024,
        timeout_keep_alive=30, timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=32 << 10,
        ssl_certfile=options.certificate, ssl_keyfile=options.key,
    ), ready)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that is bound to this address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The sockets of accepted connections inherit this size.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_SIZE)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
