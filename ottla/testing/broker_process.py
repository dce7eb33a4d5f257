"""The broker's process: `ottla server start` with a clock and a disk controlled by the test.

    python -m ottla.testing.broker_process PARENT_PID PASSED_MS LOG_LEVEL KEY=VALUE…

The process writes `{"ready": PORT}` when the broker serves, then executes the test's commands. It
ends at once when the test process is gone. Nothing else differs from the broker that users start.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys

from ottla.broker.log_output import TextLines
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.threads.garbage import Garbage
from ottla.broker.threads.heap import keep_freed_memory
from ottla.log.files.clock import Clock
from ottla.testing.control import Control
from ottla.testing.disk_room import RoomyDisk

STEPS = 100
TURNS_PER_STEP = 3
ROUNDS_AT_END = 5


class MovedClock(Clock):
    """The machine's clock, plus the time by which a test has advanced it."""

    def __init__(self) -> None:
        self.passed_ms = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.passed_ms)

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_ms / 1000


class BrokerProcess:
    """One broker, and the test's operations on it. The constructor has to run on the broker's event
    loop."""

    def __init__(self, config: BrokerConfig, clock: MovedClock, passed_ms: float) -> None:
        clock.passed_ms = passed_ms
        self.clock, self.disk = clock, RoomyDisk()
        self.server = Server(config, self.disk, clock)

    async def serve(self, parent_pid: int) -> int:
        """Serve until a signal, or the end of the test process; returns the exit status."""
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        await self.server.start()
        Garbage().begin()
        commands = {"advance": self.advance, "disk_room": self.disk_room}
        # `on_end`: the test process has ended, so nobody needs a clean stop.
        control = Control(loop, commands, parent_pid, on_end=lambda: os._exit(0))
        control.say({"ready": self.server.listeners[0].port})
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait((waiting, self.server.failure), return_when=asyncio.FIRST_COMPLETED)
        await self.server.stop()
        return 0 if stopped.is_set() else 1

    async def advance(self, ms: float) -> int:
        """Advances time in small steps, so that an earlier timer can cancel a later one."""
        target_ms = self.clock.passed_ms + ms
        for step in range(STEPS, 0, -1):
            self.clock.passed_ms = target_ms - ms * (step - 1) / STEPS
            for _ in range(TURNS_PER_STEP):
                await asyncio.sleep(0)
        for _ in range(ROUNDS_AT_END):      # wait until the upkeep thread has deleted files
            await self.server.upkeep_thread.run(lambda: None)
            await asyncio.sleep(0)
        return self.clock.now_ms()

    async def disk_room(self, bytes_left: int) -> None:
        """Lets the disk accept this many more bytes; -1 means no limit."""
        self.disk.room.bytes_left = bytes_left


def main() -> int:
    """Run the broker with the settings of the command line; returns the exit status."""
    gc.disable()                # objects made during the start are not garbage
    parent_pid, passed_ms, level, *settings = sys.argv[1:]
    output = logging.StreamHandler()
    output.setFormatter(TextLines())
    logging.basicConfig(level=level.upper(), handlers=[output])
    log = logging.getLogger("ottla.server")
    try:
        config = BrokerConfig.load(None, settings)
    except SettingsError as error:
        for each in (error, *error.others):
            log.error("%s", each)
        return 1
    for warning in config.warnings:
        log.warning("%s", warning)
    keep_freed_memory()
    clock = MovedClock()

    async def serve() -> int:
        return await BrokerProcess(config, clock, float(passed_ms)).serve(int(parent_pid))

    with asyncio.Runner(loop_factory=lambda: BrokerLoop(clock)) as runner:
        return runner.run(serve())


if __name__ == "__main__":
    sys.exit(main())
