"""Connections between simulated brokers. Each end of a connection is a socket pair, and the world
moves bytes from one pair to the other.

Bytes arrive later, in order, and on some seeds in pieces of any size. While a cut separates two
machines, in one direction or both, their bytes are held. They arrive when the cut is over, as with
TCP, unless the connection has ended by then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.network.transport import Transport
from tests.simulation.network import pair, pieces_of

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld

AGAIN_SECONDS = 0.2
"""The time between two attempts to connect while there is a cut."""
READ_BYTES = 1 << 18
FULL_BYTES = 1 << 14
"""Less than the size of a socket's buffer. A broker waits for room in the buffer only if the buffer
has more bytes than this."""


class SimNetwork:
    """The connections that the broker of one machine opens to other brokers
    (`broker.peers.network.Network`)."""

    def __init__(self, machine: ClusterMachine) -> None:
        self.machine, self.world = machine, machine.world

    async def connect(self, host: str, port: int, listener: str) -> Transport:
        """A connection to the broker of the machine at this address."""
        world, machine, loop = self.world, self.machine, self.machine.loop
        assert loop is not None
        target = world.machine_at(host)
        future = loop.create_future()

        def arrives() -> None:
            if loop.dead or future.done():
                return
            if world.is_cut(machine, target) or world.is_cut(target, machine):
                world.at(world.now + AGAIN_SECONDS, arrives)
            elif not target.listens():
                world.at(world.now + world.latency(), refused)
            else:
                near, far = End(world, machine), End(world, target)
                near.other, far.other = far, near
                assert target.server is not None
                target.server.listeners[0].admit(far.sock, (machine.host, 40_000))
                target.poke()
                future.set_result(Transport(near.sock))

        def refused() -> None:
            if not loop.dead and not future.done():
                future.set_exception(ConnectionRefusedError("nobody listens"))

        world.at(world.now + world.latency(), arrives)
        return await future


class End:
    """One machine's end of a connection."""

    other: End

    def __init__(self, world: ClusterWorld, machine: ClusterMachine) -> None:
        self.world, self.machine = world, machine
        self.near, self.far = pair(world)
        self.sock = self.far                # the broker's socket
        self.fd = self.near.fileno()
        self.on_way_back = 0.0              # when the latest bytes sent arrive at the other end
        self.unsent = bytearray()           # arrived while the broker's socket was full
        self.broken = False
        self.deaf_until = 0.0
        world.watch(self)                   # type: ignore[arg-type]

    def pull(self, everything: bool = True) -> None:
        """Receive what the broker has sent. It arrives at the other end later."""
        if self.broken:
            return
        pieces = []
        while True:
            try:
                data = self.near.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._pulled(pieces)
                self.end()
                return
            pieces.append(data)
            if len(data) < READ_BYTES:
                break                       # later bytes cause another event of the poll
        self._pulled(pieces)

    def _pulled(self, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        if len(data) > FULL_BYTES or self.world.options.narrow:
            self.machine.poke()             # the broker's socket may have been full
        for piece in pieces_of(data, self.world):
            self._send(partial(self.other.arrive, piece))

    def _send(self, call: Callable[[], Any]) -> None:
        self.on_way_back = max(self.on_way_back + 1e-7, self.world.now + self.world.latency())
        self.world.send_between(self.machine, self.other.machine, self.on_way_back, call)

    def arrive(self, data: bytes) -> None:
        if not self.broken:
            self.unsent += data
            self.push()

    def push(self) -> None:
        """Put what has arrived into the broker's socket."""
        while self.unsent and not self.broken:
            try:
                sent = self.near.send(self.unsent)
            except BlockingIOError:
                self.world.at(self.world.now + 0.001, self.push)
                break
            except OSError:
                self.end()
                return
            del self.unsent[:sent]
        self.machine.poke()

    def end(self) -> None:
        """Close this end, and notify the other one."""
        if self.close():
            self._send(self.other.hang_up)

    def hang_up(self) -> None:
        """Close the world's socket after the other end was closed, and after all bytes from there
        were delivered."""
        if not self.broken and self.unsent:
            self.world.at(self.world.now + 0.001, self.hang_up)     # deliver first what has arrived
            self.push()
            return
        self.close()

    def close(self) -> bool:
        """Close the world's socket, so that the broker reads the end of the stream. False if it was
        closed already."""
        if self.broken:
            return False
        self.broken = True
        self.world.unwatch(self)            # type: ignore[arg-type]
        self.near.close()
        self.machine.poke()
        return True
