"""A whole broker inside the test process, and a client that sends valid and invalid frames."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.client.connection import Connection
from ottla.client.transport import Security
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from tests.fakes import LeapingClock

CLIENT_ID = "test"
TIMEOUT_SECONDS = 20.0

NODE_ID = 4
"""Neither the default nor a partition's index, so that a mix-up is found."""


@contextmanager
def kept_port() -> Iterator[int]:
    """Yields a port on 127.0.0.1 for a listener whose setting must name a port. A socket is bound
    to the port and does not listen, so the kernel gives the port to nobody else until the block
    ends."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


def end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """End a loop that runs in a thread, as `asyncio.Runner` does: cancel its tasks, and wait until
    they have ended."""

    async def end_tasks() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end_tasks(), loop).result(TIMEOUT_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(TIMEOUT_SECONDS)
    loop.close()


class RunningBroker:
    """A Server on its own loop in a thread. It listens on a free port of the loopback address."""

    def __init__(
        self, data: Path, disk: Disk | None = None, clock: Clock | None = None, **overrides: object
    ) -> None:
        self.disk, self.clock = disk, clock
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data),
            "node.id": NODE_ID,
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
        server = Server(self.config, self.disk, self.clock)
        await server.start()
        return server

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the broker's own loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_SECONDS)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on the broker's own loop and return its result."""

        async def called() -> Any:
            return function(*arguments)

        return self.run(called())

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        self.run(self.server.stop())
        end_loop(self.loop, self.thread)

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class WireClient(Connection):
    """The package's client with one connection to a test's broker. It can send invalid frames,
    too."""

    def __init__(self, address: tuple[str, int], **properties: str) -> None:
        names = {name.replace("_", "."): value for name, value in properties.items()}
        super().__init__(
            address, client_id=CLIENT_ID, connect_seconds=TIMEOUT_SECONDS,
            request_seconds=TIMEOUT_SECONDS, retry_refused=False,
            security=Security.from_properties(names),
        )  # fmt: skip


def pass_time(broker: RunningBroker, seconds: float) -> None:
    """Advance the loop's clock, and run what is due then."""
    broker.loop_clock.passed_seconds += seconds
    # Timers that are due run in the next turn. What they schedule runs in later turns.
    for _ in range(5):
        broker.call(lambda: None)
