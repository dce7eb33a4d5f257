"""One machine, its broker and its clients: a heap of events, and chance from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
import select
import socket
import sys
import traceback
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker import listener as listening
from ottla.broker import server as serving
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.topic import TopicConfig
from ottla.broker.threads import slices
from ottla.replication import standalone
from tests.simulation.disk import ProcessEnds, SimDisk
from tests.simulation.loop import SimExecutor, SimLoop, running
from tests.simulation.network import Link
from tests.simulation.options import Options

START_MS = 1_700_000_000_000
NEVER = float("inf")
STEPS_MAX = 400_000


class Violation(AssertionError):
    """A promise was broken."""


class SimListener(listening.Listener):
    """A listener whose clients come from the world."""

    def _listen(self, *_: Any) -> Any:
        return _NoSocket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def _client(self, sock: Any, address: tuple[Any, ...]) -> listening.Client:
        self.accepted += 1
        return listening.Client(address[0], self.name, f"connection {self.accepted}")


class _NoSocket(socket.socket):
    """What stands for a listening socket: nobody ever connects to it."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 9092


class World:
    """Everything of one run. `run` drives it until a coroutine of the clients' has ended."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed, self.options = seed, options
        self.random = random.Random(f"world {seed}")
        self.now = 1000.0
        self.jumped_ms = 0
        self.heap: list[tuple[float, float, int, Callable[[], None]]] = []
        self.count = 0
        self.disk = SimDisk(seed, self.wall_ms)
        self.disk.cold_share = options.cold_share
        self.clients = SimLoop(self, sockets=False)
        self.loop: SimLoop | None = None        # the broker's
        self.server: Server | None = None
        self.starting: Any = None
        self.up = False
        self.links: dict[int, Link] = {}
        self.poll = select.epoll()
        self.dead: list[Any] = []
        self.died = False
        self.trace: list[str] = []
        self.excused_end: str | None = None     # why the broker may end or refuse to start
        self.steps = 0
        self.failures: list[BaseException] = []     # of the broker, logged whole: bugs of ours
        self.config_overrides: dict[str, str] = {}

    # Time

    def wall_ms(self) -> int:
        return START_MS + int(self.now * 1000) + self.jumped_ms

    def spent(self) -> float:
        """The time, which passes a little with each look: now and then for longer than a slice."""
        self.now += 1e-6 if self.random.random() >= self.options.slow_share else 0.003
        return self.now

    def at(self, when: float, callback: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (when, self.random.random(), self.count, callback))

    def latency(self) -> float:
        slow = self.random.random() < self.options.slow_network
        return self.random.expovariate(2.0 if slow else 3000.0)

    def thread_latency(self, name: str) -> float:
        slow = self.random.random() < self.options.slow_threads
        return self.random.expovariate(1.0 if slow else 2000.0)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:.6f} {text}")

    # The broker's process

    def begin_broker(self) -> None:
        """Start the broker; it serves some turns later, or its start fails."""
        assert self.loop is None
        self.disk = self.disk.reopened()
        self.disk.on_end = self._process_stopped
        self.died = False
        loop = self.loop = SimLoop(self)
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:9092", "node.id": "7",
            "log.dirs": ",".join(self.options.directories), **self.options.settings,
            **self.config_overrides,
        }
        config = BrokerConfig.load(None, [f"{k}={v}" for k, v in settings.items()])
        with running(loop):
            server = self.server = Server(config, self.disk, loop.poller.clock)
            self.starting = loop.create_task(server.start())
        self.up = False
        self.note("broker starts")

    def poke(self) -> None:
        if self.loop is not None:
            self.loop.poked = True

    def _process_stopped(self) -> None:
        """The disk ends the process inside a call: what it sent until now is on its way."""
        self.died = True
        for link in list(self.links.values()):
            link.pull()

    def kill(self) -> None:
        """kill -9, between two calls or inside one that the disk has ended."""
        if self.loop is None:
            return
        self.note("broker is killed")
        for link in list(self.links.values()):
            if not self.died:
                link.pull()
        self.disk.stopped = True
        self._bury()

    def _bury(self) -> None:
        loop, server = self.loop, self.server
        assert loop is not None and server is not None
        loop.kill()
        self.dead.append((loop, server, self.starting))
        self.loop, self.server, self.up = None, None, False
        for link in list(self.links.values()):
            link.far.close()
            self.unwatch(link)
            self.at(max(link.on_way_back + 1e-7, self.now), link.end)

    def cut_power(self) -> None:
        """The machine stops: what was not synced may be gone."""
        self.kill()
        self.note("power cut")
        self.disk = self.disk.reopened()
        self.disk.cut_power()

    async def stop_cleanly(self) -> None:
        """SIGTERM; awaited by the clients' loop."""
        server, loop = self.server, self.loop
        assert server is not None and loop is not None
        self.up = False
        with running(loop):
            task = loop.create_task(server.stop())
        self.poke()
        await self.until(lambda: task.done() or loop.dead, "a clean stop ends", 600.0)
        if loop.dead:
            return
        if task.exception() is not None and not self.disk.errors and self.disk.capacity is None:
            raise Violation(f"a clean stop failed: {task.exception()!r}") from task.exception()
        self.disk.stopped = True
        self.note("broker has stopped")
        self._bury()

    def _watch_broker(self) -> None:
        """Notice that the broker serves, or has ended by itself."""
        loop, server = self.loop, self.server
        if loop is None or server is None:
            return
        if self.died:
            self.kill()
            return
        if self.starting is not None and self.starting.done():
            error = self.starting.exception()
            self.starting = None
            if error is not None:
                if self.excused_end is None:
                    raise Violation(f"the broker does not start: {error!r}") from error
                self.note(f"the start is refused: {error}")
                self.disk.stopped = True
                self._bury()
                return
            self.up = True
            self.note("broker serves")
        if server.failure is not None and server.failure.done() and self.up:
            reason = server.failure.result()
            self.note(f"broker ends: {reason}")
            if self.excused_end is None:
                raise Violation(f"the broker has ended itself: {reason}")
            self.kill()
        for failure in self.failures:
            if not isinstance(failure, ProcessEnds):
                raise Violation(f"a failure of the broker: {failure!r}") from failure
        self.failures.clear()
        if loop.errors:
            context = loop.errors[0]
            loop.errors.clear()
            error = context.get("exception")
            if not isinstance(error, ProcessEnds):
                raise Violation(f"an error reached the loop: {context}") from error

    # Clients

    def connect(self, client_id: str) -> Link | None:
        """A new connection, or None where nobody listens."""
        if not self.up or self.server is None:
            return None
        host = f"10.0.0.{self.random.randrange(1, 250)}"
        link = Link(self, self.server.listeners[0], client_id, host)
        self.links[link.fd] = link
        self.poll.register(link.fd, select.EPOLLIN)
        return link

    def unwatch(self, link: Link) -> None:
        if self.links.pop(link.fd, None) is not None:
            try:
                self.poll.unregister(link.fd)
            except (OSError, ValueError):
                pass

    async def until(self, holds: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for a condition, in simulated time."""
        deadline = self.now + seconds
        while not holds():
            if self.now > deadline:
                raise Violation(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(0.02)

    # Driving

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Drive everything until `main`, a coroutine of the clients' loop, has ended."""
        with running(self.clients):
            task = self.clients.create_task(main)
        while not task.done():
            self.step()
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Violation(f"no end after {STEPS_MAX} steps")
        task.result()

    def step(self) -> None:
        """The next turn of a loop, or the next event."""
        clients, broker = self.clients, self.loop
        clients_at = clients.due()
        broker_at = NEVER if broker is None else broker.due()
        event_at = self.heap[0][0] if self.heap else NEVER
        now = self.now
        if clients_at > now and broker_at > now and event_at > now:
            self.now = min(clients_at, broker_at, event_at)
            assert self.now < NEVER, "nothing will ever happen"
            return
        chance = self.random.random()
        if event_at <= now and (chance < 0.5 or (clients_at > now and broker_at > now)):
            self._guarded(heapq.heappop(self.heap)[3])
            if self.died:
                self._watch_broker()
        elif broker is not None and broker_at <= now and (clients_at > now or chance < 0.75):
            self._guarded(broker.turn)
            self.now += chance * 1e-4
            for fd, _ in self.poll.poll(0):
                link = self.links.get(fd)
                if link is not None:
                    link.pull()
            self._watch_broker()
        else:
            clients.turn()
            self.now += 1e-6

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except ProcessEnds:
            self.died = True

    def close(self) -> None:
        """Give back descriptors; what is left of dead processes does nothing any more."""
        if self.loop is not None:
            self.kill()
        for link in list(self.links.values()):
            link.broken = True
            link.near.close()
            link.far.close()
        self.poll.close()
        self.clients.kill()
        for loop in [entry[0] for entry in self.dead] + [self.clients]:
            for task in asyncio.all_tasks(loop):
                with contextlib.suppress(BaseException):
                    task.get_coro().close()         # now, and not in the middle of another run
            loop.close()
        self.dead.clear()


class TraceHandler(logging.Handler):
    """The broker's log, as a part of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        self.world.note(f"  {record.levelname} {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self.world.failures.append(record.exc_info[1])
            self.world.note("".join(traceback.format_exception(record.exc_info[1])))


class Patches:
    """Chance and threads of the modules that take them from Python, exchanged for a world's."""

    def __init__(self, world: World) -> None:
        self.world, self.undo = world, []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self.undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def __enter__(self) -> None:
        world = self.world
        for name, module in sorted(sys.modules.items()):
            if name.startswith("ottla.") and hasattr(module, "ThreadPoolExecutor"):
                self.put(module, "ThreadPoolExecutor", SimExecutor)
        chance = world.random
        self.put(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
        self.put(random, "SystemRandom", lambda: chance)
        self.put(slices.time, "monotonic", world.spent)
        self.put(serving, "Listener", SimListener)
        self.put(standalone, "SNAPSHOT_AFTER_RECORDS", world.options.metadata_snapshot_after)
        # Small segments, so that little data makes many of them.
        self.put(TopicConfig.declared["segment.bytes"], "at_least", 1)
        self.put(kafka_settings("broker")["log.segment.bytes"].setting, "at_least", 1)
        self.put(sys, "unraisablehook", lambda _: None)
        logger = logging.getLogger("ottla")
        self.put(logger, "handlers", [TraceHandler(world)])
        self.put(logger, "propagate", False)

    def __exit__(self, *_: object) -> None:
        for owner, name, value in reversed(self.undo):
            setattr(owner, name, value)
