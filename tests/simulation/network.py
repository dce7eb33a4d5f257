"""Connections between clients and the simulated broker: real socket pairs, with delays.

What a client sends reaches the broker's socket later, whole or in pieces. What the broker has sent
reaches the client later. A link breaks when the broker's process dies, or when the world breaks it.
With some seeds a broker's socket accepts few bytes at a time, so the broker needs many turns of its
loop to send a response.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.wire.apis import APIS
from ottla.wire.headers import RequestHeader, response_header_size

if TYPE_CHECKING:
    from tests.simulation.histories.history import Call
    from tests.simulation.machine import Machine
    from tests.simulation.world import World


READ_BYTES = 1 << 18
PIECES_MAX = 6


def pieces_of(data: bytes, world: World) -> Iterator[bytes]:
    """The bytes as a network may deliver them: whole, or in pieces of any size. Small, medium and
    large sizes (by order of magnitude) are equally likely."""
    chance, at = world.pieces.random, 0
    if world.options.pieces_share and chance() < world.options.pieces_share:
        for _ in range(PIECES_MAX - 1):
            size = int((len(data) - at) ** chance())
            if at + size < len(data):
                yield data[at : at + size]
                at += size
    if data:
        yield data[at:]


def pair(world: World) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: the world's and a broker's. With some seeds the broker's socket
    accepts only a few thousand bytes before the world must receive them."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    if world.options.narrow:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)      # becomes the system's minimum
    return near, far


class Broken(ConnectionError):
    """The link ended before the answer, so it is not known whether the request was served."""


class Link:
    """One connection of a client."""

    def __init__(self, world: World, machine: Machine, client_id: str, host: str) -> None:
        self.world, self.machine, self.client_id = world, machine, client_id
        assert machine.server is not None
        self.near, self.far = pair(world)
        machine.server.listeners[0].admit(self.far, (host, 40_000))
        self.fd = self.near.fileno()
        self.unsent = bytearray()           # arrived while the broker's socket was full
        self.on_way = 0.0                   # when the last piece arrives, in each direction
        self.on_way_back = 0.0
        self.received = bytearray()
        self.waiting: deque[
            tuple[int, int, int, asyncio.Future[Any], Call | None]
        ] = deque()
        self.correlation_id = 0
        self.broken = False
        self.deaf_until = 0.0               # until then the client does not read

    # The client's side

    def ask(self, request: Any, version: int) -> asyncio.Future[Any]:
        """Send a request; the future belongs to the client's loop."""
        future: asyncio.Future[Any] = self.world.clients.create_future()
        if self.broken:
            future.set_exception(Broken())
            return future
        self.correlation_id += 1
        header = RequestHeader(request.API_KEY, version, self.correlation_id, self.client_id)
        body = header.encode() + request.encode(version)
        call = self.world.history.ask(request)
        self.waiting.append((request.API_KEY, version, self.correlation_id, future, call))
        self.send(struct.pack(">i", len(body)) + body)
        return future

    def send_only(self, request: Any, version: int) -> None:
        """Send a request that has no answer: a produce with acks=0."""
        if self.broken:
            raise Broken
        self.correlation_id += 1
        header = RequestHeader(request.API_KEY, version, self.correlation_id, self.client_id)
        body = header.encode() + request.encode(version)
        self.send(struct.pack(">i", len(body)) + body)

    def send(self, data: bytes) -> None:
        """Have these bytes arrive at the broker, perhaps in pieces."""
        random = self.world.random
        cut = random.randrange(1, len(data)) if random.random() < 0.05 else len(data)
        for part in (data[:cut], data[cut:]):
            for piece in pieces_of(part, self.world):
                self.on_way = max(self.on_way + 1e-7, self.world.now + self.world.latency())
                self.world.at(self.on_way, partial(self.arrive, piece))

    # In transit

    def arrive(self, piece: bytes) -> None:
        if not self.broken:
            self.unsent += piece
            self.push()

    def push(self) -> None:
        """Put what has arrived into the broker's socket."""
        while self.unsent and not self.broken:
            try:
                sent = self.near.send(self.unsent)
            except BlockingIOError:
                break
            except OSError:
                self.end()
                return
            del self.unsent[:sent]
        self.machine.poke()

    def pull(self, everything: bool = True) -> None:
        """Receive the bytes that the broker has sent; they reach the client later. If `everything`
        is false, do not check whether the stream has ended."""
        if self.broken or self.deaf_until > self.world.now:
            return
        while True:
            try:
                data = self.near.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.on_way_back = max(self.on_way_back + 1e-7, self.world.now + self.world.latency())
            if not data:
                self.world.at(self.on_way_back, self.end)
                self.world.unwatch(self)
                return
            self.machine.poke()
            self.world.at(self.on_way_back, partial(self.deliver, data))
            if not everything and len(data) < READ_BYTES:
                return

    def deliver(self, data: bytes) -> None:
        if self.broken:
            return
        self.received += data
        while len(self.received) >= 4:
            size = int.from_bytes(self.received[:4], "big")
            if len(self.received) < 4 + size:
                return
            frame = bytes(self.received[4 : 4 + size])
            del self.received[: 4 + size]
            key, version, correlation_id, future, call = self.waiting.popleft()
            assert int.from_bytes(frame[:4], "big") == correlation_id, "responses are out of order"
            body = frame[response_header_size(key, version, frame) :]
            response = APIS[key].response.decode(body, version)
            if call is not None:
                self.world.history.answer(call, response)
            if not future.done():
                future.set_result(response)
                self.world.on_answer()

    def end(self) -> None:
        """End the link for the client: its pending requests fail."""
        if self.broken:
            return
        self.broken = True
        self.world.unwatch(self)
        self.near.close()
        waiting, self.waiting = self.waiting, deque()
        for _, _, _, future, _ in waiting:
            if not future.done():
                future.set_exception(Broken())
        self.machine.poke()
