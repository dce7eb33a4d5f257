"""`ottla server start` as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ottla.client.connection import Connection
from ottla.wire.messages import MetadataRequest
from tests.broker.running import NODE_ID
from tests.waiting import until

READY = re.compile(
    rb"ottla ready: node %d on PLAINTEXT://([\w.\[\]:]+):(\d+), data in .*\n" % NODE_ID
)

WAIT_SECONDS = 30


class Service:
    """A started broker process. By default its log is in a file; the test may pass other
    streams."""

    def __init__(self, tmp_path: Path, *arguments: str, **streams: object) -> None:
        self.properties = tmp_path / "server.properties"
        if not self.properties.exists():
            self.properties.write_text(
                f"log.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://localhost:0\n"
                f"node.id={NODE_ID}\n"
            )
        self.log = tmp_path / "log"
        streams = {"stdout": subprocess.PIPE, "stderr": self.log.open("ab")} | streams
        command = [sys.executable, "-m", "ottla", "server", "start", str(self.properties)]
        self.process = subprocess.Popen([*command, *arguments], **streams)

    def ready(self) -> tuple[str, int]:
        """Read the ready line; returns its host and port."""
        assert self.process.stdout is not None
        printed = self.process.stdout.readline()
        match = READY.fullmatch(printed)
        assert match, (printed, self.text())
        return match[1].decode().strip("[]"), int(match[2])

    def text(self) -> str:
        """The log so far."""
        return self.log.read_text()

    def wait_for(self, pattern: str) -> None:
        """Wait until the log matches the pattern."""

        def is_there() -> bool:
            found = re.search(pattern, self.text())
            assert found or self.process.poll() is None, self.text()
            return bool(found)

        until(
            is_there, lambda: f"{pattern!r} in {self.text()}", WAIT_SECONDS, between=0.01
        )

    def stop(self) -> int:
        """Send SIGTERM; returns the exit status."""
        self.process.terminate()
        return self.process.wait(WAIT_SECONDS)


def serves(address: tuple[str, int]) -> bool:
    with Connection(address) as client:
        return bool(client.call(MetadataRequest(topics=[])).brokers)
