"""Ottla's own client, adapted to benchmarks: a request is encoded once and can be sent often."""

from __future__ import annotations

from typing import Any

from ottla.client.connection import Connection
from ottla.client.frames import Frames

CLIENT_ID = "bench"


def frame(request: Any, version: int) -> bytes:
    """A request as it is sent: its length, its header and its body."""
    encoded, _ = Frames(CLIENT_ID).encode(request, version)
    return encoded


class RawClient(Connection):
    """One connection; the broker answers its requests in their order."""

    def __init__(self, port: int, timeout_seconds: float = 120.0) -> None:
        super().__init__(
            ("127.0.0.1", port), client_id=CLIENT_ID, connect_seconds=timeout_seconds,
            request_seconds=timeout_seconds, retry_refused=False,
        )  # fmt: skip

    def ask(self, request: Any, version: int) -> Any:
        """Send a request; returns its answer, decoded."""
        return self.call(request, version)

    def ask_frame(self, data: bytes) -> bytearray:
        """Sends a request's frame with its length; returns the answer's frame without its length.
        """
        self.send_bytes(data)
        return self.receive_frame()
