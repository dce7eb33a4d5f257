"""The proxy's process: clients connect to it, and it cleans up when a test run is killed.

    python -m ottla.testing.proxy_process PARENT_PID HOST PORT LOCK_FD DIRECTORY

The proxy's port stays the same when the broker restarts. While the broker is stopped, the port
refuses connections. When the test process has ended, the proxy kills the broker and removes
DIRECTORY. If the test has chosen the broker's directory, DIRECTORY is empty text, and nothing is
removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from typing import Any

from ottla.testing.control import Control
from ottla.testing.faults import Rule
from ottla.testing.frames import FrameWriter
from ottla.testing.proxied import Proxied

REMOVAL_SECONDS = 5.0


class Proxy:
    """Listens for clients while there is a broker to forward to."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.broker_port, self.broker_fd = 0, -1
        self.rules: dict[int, Rule] = {}
        self.recorder: FrameWriter | None = None
        self.connections: set[Proxied] = set()
        self.accepted = 0
        self.began = time.monotonic()
        self.server: asyncio.Server | None = None

    def commands(self) -> dict[str, Any]:
        """The commands of the test process."""
        return {
            "open": self.open, "close": self.close, "disconnect": self.disconnect,
            "add_fault": self.add_fault, "end_fault": self.end_fault, "hits": self.hits,
            "clear": self.clear, "record": self.record, "stop_recording": self.stop_recording,
        }

    async def open(self, broker_port: int, broker_pid: int) -> None:
        """Listens, and forwards connections to the broker at this port."""
        self.broker_port = broker_port
        if hasattr(os, "pidfd_open"):
            self.broker_fd = os.pidfd_open(broker_pid)
        self.server = await asyncio.start_server(
            self._accept, self.host, self.port, reuse_port=True, backlog=1024
        )

    async def close(self) -> None:
        """Refuses connections and closes the existing ones."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if self.broker_fd >= 0:
            os.close(self.broker_fd)
            self.broker_fd = -1
        await self.disconnect()

    async def end(self) -> None:
        """Closes all connections and kills the broker: a paused broker (SIGSTOP) cannot itself
        notice the end of the tests."""
        if self.broker_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.broker_fd, signal.SIGKILL)
        await self.close()

    async def disconnect(self) -> int:
        """End all connections; returns how many there were."""
        ended = list(self.connections)
        for connection in ended:
            connection.end()
        return len(ended)

    async def add_fault(self, **rule: Any) -> None:
        """Adds a rule; earlier rules take precedence."""
        self.rules[rule["number"]] = Rule(**rule)

    async def end_fault(self, number: int) -> None:
        """Ends a rule; the number of its hits is kept."""
        if number in self.rules:
            self.rules[number].count = 0

    async def hits(self, number: int) -> int:
        """The number of requests to which a rule was applied, also if the rule has ended; 0 after
        `clear`."""
        return self.rules[number].hits if number in self.rules else 0

    async def clear(self) -> None:
        """Removes all rules."""
        self.rules.clear()

    async def record(self, path: str) -> None:
        """Write all frames from now on to a file."""
        await self.stop_recording()
        self.recorder = FrameWriter(path)

    async def stop_recording(self) -> int:
        """End the recording. Returns how many frames the file lacks, because it was full."""
        recorder, self.recorder = self.recorder, None
        if recorder is None:
            return 0
        recorder.file.close()
        return recorder.left_out

    def rule_for(self, api_key: int, client_id: str | None) -> Rule | None:
        """The first rule that applies to this request."""
        for rule in self.rules.values():
            if rule.meets(api_key, client_id):
                return rule
        return None

    def passed_ms(self) -> float:
        """Milliseconds since this process started."""
        return (time.monotonic() - self.began) * 1000

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = Proxied(self, self.accepted, reader, writer)
        self.connections.add(connection)
        try:
            await connection.run(self.host, self.broker_port)
        finally:
            self.connections.discard(connection)


def remove(directory: str) -> None:
    """Removes the test run's directory; retries because the broker may still be writing."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while os.path.exists(directory) and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)


async def serve(parent_pid: int, host: str, port: int, directory: str) -> None:
    """Serve until the test process ends."""
    ended = asyncio.Event()
    proxy = Proxy(host, port)
    control = Control(
        asyncio.get_running_loop(), proxy.commands(), parent_pid, on_end=ended.set
    )
    control.say({"ready": port})
    await ended.wait()
    await proxy.end()
    if directory:
        remove(directory)


def main() -> int:
    """Run the proxy; returns the exit status."""
    # LOCK_FD is not used here. The inherited descriptor keeps DIRECTORY locked until this process
    # ends, so that no other test run removes DIRECTORY: see directories.py.
    parent_pid, host, port, _, directory = sys.argv[1:]
    asyncio.run(serve(int(parent_pid), host, int(port), directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
