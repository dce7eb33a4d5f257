"""A whole broker inside the test process, and a client that speaks frames, good and bad ones."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.log.disk import Disk
from ottla.wire.apis import APIS
from ottla.wire.headers import RequestHeader, response_header_size
from tests.fakes import LeapingClock

CLIENT_ID = "test"
TIMEOUT_SECONDS = 20.0


class RunningBroker:
    """A Server on its own loop in a thread, on a free port of the loopback address."""

    def __init__(self, data: Path, disk: Disk | None = None, **overrides: object) -> None:
        self.disk = disk
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data),
            "node.id": "0",  # not the default: nothing may take one for the other
            **{name.replace("_", "."): value for name, value in overrides.items()},
        }
        self.config = BrokerConfig.load(None, [f"{key}={value}" for key, value in settings.items()])
        self.loop_clock = LeapingClock()
        self.loop = BrokerLoop(self.loop_clock)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server: Server = self.run(self._start())
        self.port = self.server.listeners[0].port
        self.address = ("127.0.0.1", self.port)

    async def _start(self) -> Server:
        server = Server(self.config, self.disk)
        await server.start()
        return server

    def run(self, coroutine: Any) -> Any:
        """Run something on the broker's own loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_SECONDS)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something on the broker's own loop and return its result."""

        async def called() -> Any:
            return function(*arguments)

        return self.run(called())

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(TIMEOUT_SECONDS)
        self.loop.close()

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class WireClient:
    """One connection; every call is a frame out and a frame in."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, TIMEOUT_SECONDS)
        self.correlation_id = 0

    def call(self, request: Any, version: int) -> Any:
        """Send a message and decode the answer to it."""
        return self.answer(self.send(request, version))

    def send(self, request: Any, version: int) -> tuple[int, int, int]:
        """Send a message; the result is for `answer`."""
        self.correlation_id += 1
        header = RequestHeader(request.API_KEY, version, self.correlation_id, CLIENT_ID)
        self.send_frame(header.encode() + request.encode(version))
        return request.API_KEY, version, self.correlation_id

    def answer(self, sent: tuple[int, int, int]) -> Any:
        """The decoded response to what `send` sent; it must be the next frame."""
        key, version, correlation_id = sent
        frame = self.receive_frame()
        assert struct.unpack(">i", frame[:4])[0] == correlation_id
        body = frame[response_header_size(key, version, frame) :]
        return APIS[key].response.decode(body, version)

    def send_frame(self, frame: bytes) -> None:
        """Send bytes behind their length."""
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """The next frame without its length; ConnectionError where the broker closed instead."""
        return self._receive(struct.unpack(">i", self._receive(4))[0])

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
