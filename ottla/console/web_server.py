"""uvicorn with limits that hold for whoever is slow: connections, and the time for a request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from ottla.console.service import Options

CONNECTIONS_MAX = 800
REQUEST_SECONDS = 15.0
"""How long a connection may take until its first request is there."""
STOP_SECONDS = 3


class BoundedProtocol(H11Protocol):
    """A connection that is closed if it does not ask anything in time. When there are too many,
    the one that has waited longest without a request goes."""

    waiting: dict[BoundedProtocol, None] = {}

    def connection_made(self, transport: Any) -> None:
        """Count it."""
        super().connection_made(transport)
        self.waiting[self] = None
        self.late = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self.drop)
        if len(self.connections) > CONNECTIONS_MAX:
            victim = next(iter(self.waiting))       # it may be this one
            victim.drop()

    def handle_events(self) -> None:
        """Note that a request has begun."""
        super().handle_events()
        if self.cycle is not None:
            self._asked()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._asked()
        super().connection_lost(exc)

    def _asked(self) -> None:
        self.waiting.pop(self, None)
        self.late.cancel()

    def drop(self) -> None:
        """Close it at once."""
        self._asked()
        self.transport.abort()


class Server(uvicorn.Server):
    """A server that says when it serves, and leaves signals to the caller."""

    def __init__(self, config: uvicorn.Config, ready: Any) -> None:
        super().__init__(config)
        self.ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self.ready()


def server(app: ASGIApp, options: Options, ready: Any) -> Server:
    """A server of this application; it is given a listening socket."""
    return Server(uvicorn.Config(
        app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False, date_header=False, proxy_headers=False, backlog=1024,
        timeout_keep_alive=30, timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=32 << 10,
        ssl_certfile=options.certificate, ssl_keyfile=options.key,
    ), ready)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
