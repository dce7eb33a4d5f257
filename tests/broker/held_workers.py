"""A test holds the broker's worker threads: the work is done as always, but later."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ottla.broker.server import Server
from ottla.testing.disk_room import RoomyDisk
from tests.broker.running import RunningBroker
from tests.log.faulty_disk import FaultyDisk

WAIT_SECONDS = 20


class Running(Protocol):
    """What is used here of a broker in this process, whether it is standalone or in a cluster."""

    @property
    def server(self) -> Server: ...

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any: ...


class HeldWorkers:
    """Passes work to the broker's own workers, whose threads begin it once the test lets them."""

    def __init__(self, broker: Running) -> None:
        self.broker, self.arrived = broker, threading.Semaphore(0)
        self.held: list[tuple[threading.Event, asyncio.Future[None]]] = []
        self.workers, broker.server.broker.workers = broker.server.broker.workers, self
        self.after_rebuilds, self.renew = self.workers.after_rebuilds, self.workers.renew

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        gate = threading.Event()

        def later() -> None:
            gate.wait()
            work()

        future = self.workers.run(later)
        self.held.append((gate, future))
        self.arrived.release()
        return future

    def wait(self) -> None:
        """Wait until something is held."""
        assert self.arrived.acquire(timeout=WAIT_SECONDS)
        self.arrived.release()

    def let_go(self) -> None:
        """Release the first piece of work; returns once the broker has continued after it."""
        assert self.arrived.acquire(timeout=WAIT_SECONDS)
        gate, future = self.held.pop(0)
        done = threading.Event()
        # Runs after the broker's own callback, which was added first.
        self.broker.call(future.add_done_callback, lambda _: done.set())
        gate.set()
        assert done.wait(WAIT_SECONDS)

    def restore(self) -> None:
        """Release all work, and give the broker its own workers back."""
        self.broker.server.broker.workers = self.workers
        for gate, _ in self.held:
            gate.set()


@contextlib.contextmanager
def held_workers(broker: Running) -> Iterator[HeldWorkers]:
    """A context in which the test decides when the workers begin their work."""
    held = HeldWorkers(broker)
    try:
        yield held
    finally:
        held.restore()


@contextlib.contextmanager
def slow_flush(broker: RunningBroker) -> Iterator[None]:
    """A context in which no flush completes.

    Only the flusher's Python thread can sync files of the broker's test disk, and it is kept busy.
    """
    assert isinstance(broker.disk, (FaultyDisk, RoomyDisk))
    release = threading.Event()
    broker.server.flusher.thread.submit(release.wait)
    try:
        yield
    finally:
        release.set()
