"""One blocking connection to one broker.

`call` is the usual way: newest version on both sides, request out, response in. Tests and
benchmarks also send what no client would: any version, any bytes, frames before earlier answers.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from ottla.client.addresses import Address, show_address
from ottla.client.errors import NotSupported, TimedOut, Unreachable, check
from ottla.client.frames import Frames, Sent, frame_size
from ottla.client.transport import UNPROTECTED, Security, open_transport
from ottla.wire.errors import ErrorCode

CLIENT_ID = "ottla"


class Connection:
    """A socket with the frames that travel on it. Answers come in the order of the requests."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str | None = CLIENT_ID,
        connect_seconds: float = 5.0,
        request_seconds: float = 30.0,
        security: Security = UNPROTECTED,
        retry_refused: bool = True,
    ) -> None:
        self.address = address
        self.request_seconds = request_seconds
        self.frames = Frames(client_id)
        self.socket: socket.socket = open_transport(
            address, security, connect_seconds, retry_refused=retry_refused
        )
        self.socket.settimeout(request_seconds)

    def call(self, request: Any, version: int | None = None, *, at_most: int | None = None) -> Any:
        """Send a request and return the response to it.

        `version` None is the newest that both sides know, `at_most` bounds it. Raises NotSupported,
        Unreachable where the broker closed the connection, TimedOut.
        """
        return self.answer(self.send(request, version, at_most=at_most))

    def send(self, request: Any, version: int | None = None, *, at_most: int | None = None) -> Sent:
        """Send a request; the result is for `answer`."""
        if version is None:
            version = self.version_of(request.API_KEY, at_most)
        frame, sent = self.frames.encode(request, version)
        self.send_bytes(frame)
        return sent

    def answer(self, sent: Sent) -> Any:
        """The response to what `send` sent; it must be the next frame."""
        return self.frames.decode(sent, self.receive_frame())

    def version_of(self, key: int, at_most: int | None = None) -> int:
        """The newest version of an API on both sides, asking the broker once."""
        if not self.frames.served:
            self.negotiate()
        return self.frames.version_of(key, at_most)

    def negotiate(self) -> None:
        """Ask which versions the broker serves."""
        for version in self.frames.hello_versions():
            sent = self.send(self.frames.hello(), version)
            frame = self.receive_frame()
            # A broker that does not know the version answers in version 0 (KIP-511): read the code
            # only, which all versions have in one place.
            if int.from_bytes(frame[4:6], "big") != ErrorCode.UNSUPPORTED_VERSION:
                response = self.frames.decode(sent, frame)
                check(response.error_code, what=show_address(self.address))
                self.frames.learn(response)
                return
        raise NotSupported(f"{show_address(self.address)} does not answer ApiVersions")

    def send_frame(self, frame: bytes) -> None:
        """Send bytes after their length."""
        self.send_bytes(len(frame).to_bytes(4, "big", signed=True) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self.socket.sendall(data)
        except TimeoutError as late:
            raise TimedOut(self._late()) from late
        except OSError as broken:
            raise Unreachable(self._broken()) from broken

    def receive_frame(self) -> bytearray:
        """The next frame without its length."""
        return self._take(frame_size(self._take(4)))

    def _take(self, size: int) -> bytearray:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            try:
                got = self.socket.recv_into(view[filled:])
            except TimeoutError as late:
                raise TimedOut(self._late()) from late
            except OSError as broken:
                raise Unreachable(self._broken()) from broken
            if got == 0:
                raise Unreachable(self._broken())
            filled += got
        return data

    def _broken(self) -> str:
        return f"{show_address(self.address)}: the broker closed the connection"

    def _late(self) -> str:
        return f"{show_address(self.address)}: no answer within {self.request_seconds:g} s"

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without another byte; waits for that."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
