"""Connections to other brokers: the interface, and its implementation with sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Protocol

from ottla.broker.network.transport import Transport

NOTHING_AFTER_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER: when the socket is closed, the kernel drops the bytes that it has not sent.
Otherwise it would try to send them for minutes while the network is broken. If a request is then
sent again on another connection, the first copy could arrive much later. For instance, a
transaction marker could arrive during the producer's next transaction."""


class Network(Protocol):
    """Makes connections; the simulator has its own implementation."""

    async def connect(self, host: str, port: int, listener: str) -> Transport:
        """Connect to another broker's listener of this name. Raises OSError."""


class TcpNetwork:
    """Plain TCP."""

    async def connect(self, host: str, port: int, listener: str) -> Transport:
        """Connect without blocking."""
        return Transport(await connected(host, port))


async def connected(host: str, port: int) -> socket.socket:
    """A connected socket that does not block; each address of the host is tried in turn."""
    loop = asyncio.get_running_loop()
    refused: OSError | None = None
    for family, address in await _addresses(host, port):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOTHING_AFTER_CLOSE)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            refused = error
        except BaseException:           # such as a timeout
            sock.close()
            raise
        else:
            return sock
    assert refused is not None
    raise refused


async def _addresses(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """Families and addresses of a host; a host name, unlike an address, is resolved in a thread."""
    try:
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(info[0], info[4]) for info in addresses]       # type: ignore[misc]
