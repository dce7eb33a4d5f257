"""The package's client as benchmarks use it: requests are encoded once and sent often."""

from __future__ import annotations

from typing import Any

from ottla.client.connection import Connection
from ottla.client.frames import Frames

CLIENT_ID = "bench"


def frame(request: Any, version: int) -> bytes:
    """A request with its header after its length."""
    encoded, _ = Frames(CLIENT_ID).encode(request, version)
    return encoded


class RawClient(Connection):
    """One connection; requests are answered in their order."""

    def __init__(self, port: int, timeout_seconds: float = 120.0) -> None:
        super().__init__(
            ("127.0.0.1", port), client_id=CLIENT_ID, connect_seconds=timeout_seconds,
            request_seconds=timeout_seconds, retry_refused=False,
        )  # fmt: skip

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request, decoded."""
        return self.call(request, version)

    def ask_frame(self, data: bytes) -> bytearray:
        """Sends a request's frame with its length; returns the answer's frame without its length.
        """
        self.send_bytes(data)
        return self.receive_frame()
