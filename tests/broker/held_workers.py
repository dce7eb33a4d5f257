"""The broker's worker threads, held by a test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from unittest import mock

from tests.broker.running import RunningBroker


class HeldWorkers:
    """Workers that do nothing until the test releases one piece of work after the other."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker, self.arrived = broker, threading.Semaphore(0)
        self.held: list[tuple[Callable[[], None], asyncio.Future[None]]] = []
        self.workers, broker.server.broker.workers = broker.server.broker.workers, self

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        future = self.broker.loop.create_future()
        self.held.append((work, future))
        self.arrived.release()
        return future

    def wait(self) -> None:
        """Wait until something is held."""
        assert self.arrived.acquire(timeout=20)
        self.arrived.release()

    def let_go(self) -> None:
        """Execute the first piece of work."""
        assert self.arrived.acquire(timeout=20)

        def on_the_loop() -> None:
            work, future = self.held.pop(0)
            work()
            future.set_result(None)

        self.broker.call(on_the_loop)


@contextlib.contextmanager
def slow_flush(broker: RunningBroker) -> Iterator[None]:
    """A context in which no flush completes."""
    release = threading.Event()
    broker.server.flusher.thread.submit(release.wait)
    try:
        with mock.patch("ottla.broker.threads.flusher.plain_files", lambda tasks: None):
            yield
    finally:
        release.set()
