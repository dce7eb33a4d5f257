"""Machines, their brokers and their clients: a heap of events, and random numbers from one seed."""

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
from ottla.broker import listener_set
from ottla.broker.server import Server
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.topic import TopicConfig
from ottla.broker.threads import slices
from ottla.broker.upkeep import scrubber
from ottla.log.storage import move_transfer
from ottla.replication import standalone
from tests.simulation.disk import ProcessEnds, SimDisk
from tests.simulation.histories.history import History
from tests.simulation.logs import checking_copies
from tests.simulation.loop import NEVER, SimExecutor, SimLoop, running
from tests.simulation.machine import Machine
from tests.simulation.network import Link
from tests.simulation.options import Options
from tests.simulation.slow_images import follow_late
from tests.simulation.slow_loads import slow_down
from tests.simulation.small import make_small
from tests.simulation.violation import Violation as Violation

START_MS = 1_700_000_000_000
STEPS_MAX = 400_000
READABLE = select.EPOLLIN
READY_MOST = 32
"""How many ready links a poll returns at most; a poll reserves memory for this many."""


class SimListener(listening.Listener):
    """A listener whose clients are simulated."""

    def _listen(self, *_: Any) -> Any:
        return [_NoSocket(socket.AF_UNIX, socket.SOCK_DGRAM)]

    def _client(self, sock: Any, address: tuple[Any, ...]) -> listening.Client:
        self.accepted += 1
        return listening.Client(address[0], self.name, f"connection {self.accepted}")


class _NoSocket(socket.socket):
    """A substitute for a listening socket; nothing connects to it."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 9092


class World:
    """Everything in one run. `run` drives it until a coroutine of the clients has ended."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed, self.options = seed, options
        self.random = random.Random(f"world {seed}")
        self.chance, self.slow_share = self.random.random, options.slow_share
        self.pieces = random.Random(f"pieces {seed}")
        self.now = 1000.0
        self.jumped_ms = 0
        self.heap: list[tuple[float, float, int, Callable[[], None]]] = []
        self.count = 0
        self.machines = self.make_machines(seed)
        self.clients = SimLoop(self, sockets=False)
        self.links: dict[int, Link] = {}
        self.history = History()
        self.poll = select.epoll()
        self.trace: list[str] = []
        self.excused_end: str | None = None     # why the broker is allowed to end or not start
        self.steps = 0
        self.turned: SimLoop | None = None      # asyncio's running loop, from the last turn
        self.failures: list[BaseException] = []     # errors that brokers logged
        self.config_overrides: dict[str, str] = {}
        self.on_answer: Callable[[], None] = lambda: None
        self.on_kill: Callable[[Machine], None] = lambda _: None
        """Called before a process ends without a clean stop."""

    def make_machines(self, seed: int) -> list[Machine]:
        """One machine; a cluster has more."""
        return [Machine(self, 7, seed)]

    def is_failure(self, record: logging.LogRecord) -> bool:
        """Whether a logged error is one that no fault of this world explains."""
        return False

    def patch(self, put: Callable[[Any, str, Any], None]) -> None:
        """Replace objects by `put(owner, name, value)` until the run is over. A world with one
        broker replaces none here."""

    # Time

    def wall_ms(self) -> int:
        return START_MS + int(self.now * 1000) + self.jumped_ms

    def spent(self) -> float:
        """The time. Each reading advances it a little, sometimes by more than a slice."""
        self.now = now = self.now + (1e-6 if self.chance() >= self.slow_share else 0.003)
        return now

    def at(self, when: float, callback: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (when, self.chance(), self.count, callback))

    def latency(self) -> float:
        slow = self.random.random() < self.options.slow_network
        return self.random.expovariate(2.0 if slow else 3000.0)

    def thread_latency(self, name: str) -> float:
        slow = self.random.random() < self.options.slow_threads
        return self.random.expovariate(1.0 if slow else 2000.0)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:.6f} {text}")

    # The broker of a world with one broker

    @property
    def machine(self) -> Machine:
        """The only machine, or the first one."""
        return self.machines[0]

    @property
    def disk(self) -> SimDisk:
        return self.machine.disk

    @property
    def loop(self) -> SimLoop | None:
        return self.machine.loop

    @property
    def server(self) -> Server | None:
        return self.machine.server

    @property
    def up(self) -> bool:
        return self.machine.up

    @property
    def died(self) -> bool:
        return self.machine.died

    def begin_broker(self) -> None:
        self.machine.begin_broker()

    def kill(self) -> None:
        self.machine.kill()

    def cut_power(self) -> None:
        self.machine.cut_power()

    async def stop_cleanly(self) -> None:
        await self.machine.stop_cleanly()

    # Clients

    def connect(
        self, client_id: str, machine: Machine | None = None, host: str = ""
    ) -> Link | None:
        """A new connection from this host, or from a random one; None if nothing listens."""
        machine = machine or self.machine
        if not machine.up or machine.server is None:
            return None
        host = host or f"10.0.0.{self.random.randrange(1, 250)}"
        link = Link(self, machine, client_id, host)
        self.watch(link)
        return link

    def watch(self, link: Link) -> None:
        """Receive what the broker sends on this link."""
        self.links[link.fd] = link
        self.poll.register(link.fd, READABLE)

    def links_of(self, machine: Machine) -> list[Link]:
        """The connections of one broker."""
        return [link for link in self.links.values() if link.machine is machine]

    def unwatch(self, link: Link) -> None:
        if self.links.pop(link.fd, None) is not None:
            try:
                self.poll.unregister(link.fd)
            except (OSError, ValueError):
                pass

    async def until(
        self, holds: Callable[[], bool], what: str, seconds: float, every: float = 0.02
    ) -> None:
        """Wait for a condition, in simulated time. Raises Violation after `seconds`."""
        deadline = self.now + seconds
        while not holds():
            if self.now > deadline:
                raise Violation(f"this did not happen in {seconds:g} s: {what}")
            await asyncio.sleep(every)

    # Driving

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Drive everything until `main`, a coroutine of the clients' loop, has ended."""
        with running(self.clients):
            task = self.clients.create_task(main)
        with running(None):
            self.drive(task.done, STEPS_MAX * len(self.machines))
        task.result()

    def drive(self, done: Callable[[], bool], most: int) -> None:
        """Run turns of loops and events, each as one step. If several are due at the same time,
        their order is random. The loop in this method runs for each step, so it reads fields itself
        where it could call methods."""
        clients, heap, machines = self.clients, self.heap, self.machines
        ready, timers, poll = clients.ready, clients.timers, self.poll.poll
        while not done():
            self.steps += 1
            if self.steps > most:
                raise Violation(f"the run has not ended after {self.steps} steps")
            now = self.now
            clients_at = 0.0 if ready or clients.poked else timers[0][0] if timers else NEVER
            event_at = heap[0][0] if heap else NEVER
            soonest = clients_at if clients_at < event_at else event_at
            machine = several = None
            for each in machines:
                loop = each.loop
                if loop is None or each.paused:
                    continue
                if not loop.ready and not loop.poked:
                    at = loop.timers[0][0] if loop.timers else NEVER
                    if at > now:
                        if at < soonest:
                            soonest = at
                        continue
                if machine is None:
                    machine = each
                elif several is None:
                    several = [machine, each]
                else:
                    several.append(each)
            if machine is None and soonest > now:
                assert soonest < NEVER, "the run is stuck: nothing will ever happen"
                self.now = soonest
                continue
            if several is not None:
                machine = self.random.choice(several)
            chance = self.chance()
            if event_at <= now and (chance < 0.5 or (clients_at > now and machine is None)):
                self._guarded(heapq.heappop(heap)[3])
                for each in machines:
                    if each.died:
                        each.look()
            elif machine is not None and (clients_at > now or chance < 0.75):
                assert machine.loop is not None
                self._guarded(machine.loop.turn)
                self.now += chance * 1e-4
                for fd, happened in poll(0, READY_MOST):
                    link = self.links.get(fd)
                    if link is not None:
                        link.pull(happened != READABLE)
                if self.failures or not machine.is_well():
                    machine.look()
            else:
                clients.turn()
                self.now += 1e-6

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except ProcessEnds:
            pass                                    # the disk has told its machine of this

    def close(self) -> None:
        """Close all descriptors, and end the remaining tasks of dead processes."""
        for machine in self.machines:
            machine.kill()
        for link in list(self.links.values()):
            link.broken = True
            link.near.close()
            link.far.close()
        self.poll.close()
        self.clients.kill()
        dead = [entry for machine in self.machines for entry in machine.dead]
        for loop in [entry[0] for entry in dead] + [self.clients]:
            for task in asyncio.all_tasks(loop):
                with contextlib.suppress(BaseException):
                    task.get_coro().close()         # or it may be finalized during a later run
            loop.close()
        for machine in self.machines:
            machine.dead.clear()


class TraceHandler(logging.Handler):
    """Adds the broker's log lines to the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        self.world.note(f"  {record.levelname} {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self.world.failures.append(record.exc_info[1])
            self.world.note("".join(traceback.format_exception(record.exc_info[1])))
        elif record.levelno >= logging.ERROR and self.world.is_failure(record):
            self.world.failures.append(AssertionError(record.getMessage()))


class Patches:
    """Replaces random numbers, threads and clocks by those of a world, and changes limits, until
    the end of a `with` block."""

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
        self.put(listener_set, "Listener", SimListener)
        options = world.options
        self.put(scrubber, "START_SECONDS", options.scrub_after_seconds)
        self.put(standalone, "SNAPSHOT_AFTER_RECORDS", options.metadata_snapshot_after)
        kept = standalone.KEPT_FOR_EVER._replace(segment_bytes=options.metadata_segment_bytes)
        self.put(standalone, "KEPT_FOR_EVER", kept)
        # Small segments, so that a little data fills many of them.
        self.put(TopicConfig.declared["segment.bytes"], "at_least", 1)
        self.put(kafka_settings("broker")["log.segment.bytes"].setting, "at_least", 1)
        self.put(sys, "unraisablehook", lambda _: None)
        self.put(move_transfer, "SWAP_BYTES", options.swap_bytes)
        self.put(move_transfer.Move, "continue_in_copy", checking_copies(world.failures))
        if options.small:
            make_small(options.drawn_from, self.put)
        if options.slow_loads:
            slow_down(options.drawn_from, self.put)
        if options.slow_images:
            follow_late(options.drawn_from, self.put)
        world.patch(self.put)
        logger = logging.getLogger("ottla")
        self.put(logger, "handlers", [TraceHandler(world)])
        self.put(logger, "propagate", False)

    def __exit__(self, *_: object) -> None:
        for owner, name, value in reversed(self.undo):
            setattr(owner, name, value)
