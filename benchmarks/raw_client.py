"""A blocking client of one connection that sends whatever it is told, cheap beside any broker."""

from __future__ import annotations

import socket
import struct
from typing import Any

from ottla.wire.apis import APIS
from ottla.wire.headers import RequestHeader, response_header_size

CLIENT_ID = "bench"


def frame(request: Any, version: int) -> bytes:
    """A request with its header behind its length."""
    header = RequestHeader(request.API_KEY, version, 1, CLIENT_ID).encode()
    body = header + request.encode(version)
    return struct.pack(">i", len(body)) + body


class RawClient:
    """One connection; requests are answered in their order."""

    def __init__(self, port: int, timeout_seconds: float = 120.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request, decoded."""
        body = self.ask_frame(frame(request, version))
        start = response_header_size(request.API_KEY, version, body)
        return APIS[request.API_KEY].response.decode(body[start:], version)

    def ask_frame(self, data: bytes) -> bytes:
        """The answer's frame, without its length."""
        self.socket.sendall(data)
        return self.receive_frame()

    def receive_frame(self) -> bytes:
        """The next frame, without its length."""
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            got = self.socket.recv_into(view[filled:])
            if got == 0:
                raise ConnectionError("the broker closed the connection")
            filled += got
        return bytes(data)

    def close(self) -> None:
        """End the connection."""
        self.socket.close()
