"""A server that does not speak Kafka's protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ottla.client.addresses import show_address

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x50"


@contextmanager
def foreign_server(says: bytes | None) -> Iterator[str]:
    """Yields the address of a server that answers any request with these bytes, and then closes the
    connection. With None, the server never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, says))
        thread.start()
        try:
            yield show_address(server.getsockname())
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: socket.socket, says: bytes | None) -> None:
    kept = []
    with suppress(OSError):     # the test has ended
        while True:
            peer, _ = server.accept()
            if says is None:
                kept.append(peer)
                continue
            with peer, suppress(ConnectionError):
                peer.recv(1000)
                peer.sendall(says)
    for peer in kept:
        peer.close()
