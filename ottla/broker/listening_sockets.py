"""Binds a listener to every address of its host.

`localhost` is 127.0.0.1 and ::1 on most systems, and clients may try either address first. If only
one of them were bound, some clients would be refused or reach another program.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress

log = logging.getLogger("ottla.listener")

NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""The machine does not have the address, or does not support its address family."""
PORTS_TRIED_MAX = 20
"""How many free ports are tried in order to find one that is free at all addresses."""


class Unbindable(OSError):
    """One address cannot be bound."""


def listen(
    name: str, host: str, port: int, backlog: int | None, receive_buffer_size: int
) -> list[socket.socket]:
    """Non-blocking sockets that listen on one port of all addresses of a host, IPv4 first; port 0
    chooses a free port. Without a backlog the sockets are only bound, so that clients are still
    refused. Raises OSError with advice."""
    try:
        infos = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise OSError(
            f"listener {name} cannot listen on {host}:{port}: {host} does not resolve"
            f" ({error.strerror}); set another address in `listeners`"
        ) from error
    addresses = list(dict.fromkeys((family, address[0]) for family, _, _, _, address in infos))
    addresses.sort(key=lambda each: each[0] != socket.AF_INET)
    for attempt in range(PORTS_TRIED_MAX):
        try:
            return _listen(name, addresses, port, backlog, receive_buffer_size)
        except Unbindable as error:
            chosen_elsewhere = port == 0 and error.errno == errno.EADDRINUSE
            if chosen_elsewhere and attempt < PORTS_TRIED_MAX - 1:
                continue
            where = error.filename if len(addresses) > 1 else ""
            raise OSError(
                error.errno,
                f"listener {name} cannot listen on {host or '*'}:{port}:"
                f" {where and f'{where}: '}{error.strerror}; set another address in `listeners`",
            ) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _listen(
    name: str, addresses: Sequence[tuple[int, str | int]], port: int,
    backlog: int | None, receive_buffer_size: int,
) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: Unbindable | None = None
    try:
        for family, address in addresses:
            try:
                sock = _bound(family, str(address), port, len(addresses) > 1, receive_buffer_size)
            except OSError as error:
                missing = Unbindable(error.errno, error.strerror, address)
                if error.errno not in NOT_HERE:
                    raise missing from error
                log.info("listener %s does not use %s, which is not an address of this machine",
                         name, address)
                continue
            bound.append(sock)
            if backlog is not None:
                sock.listen(backlog)
            port = sock.getsockname()[1]
        if missing is not None and not bound:
            raise missing
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


def _bound(
    family: int, address: str, port: int, one_of_several: bool, receive_buffer_size: int
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and one_of_several:
            # The IPv4 address gets a socket of its own. Without this option, the socket at :: would
            # also occupy the port for IPv4.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if receive_buffer_size >= 0:
            # Accepted sockets inherit the size; setting it later would not affect the window scale.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        sock.bind((address, port))
    except OSError:
        with suppress(OSError):
            sock.close()
        raise
    return sock
