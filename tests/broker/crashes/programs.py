"""Programs that are killed where a test wants it: at a call of their Kafka client, or during it.

A program runs unchanged in a process of its own, but its client's calls are counted. At the call
that the test has named, the program reports the call and waits. The test then kills the program or
the broker, or lets the program continue and kills it a moment later. `Program` is the test's side
of this, and `main` is the program's side.
"""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.broker.running import TIMEOUT_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent.parent
READY = "PLAINTEXT://127.0.0.1:"


class Process:
    """A process whose output is read line by line; it is killed when the test is over."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            bufsize=1, cwd=ROOT,
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def line(self) -> str:
        """The next line; empty when the process has ended."""
        return self._output.readline()

    def kill(self) -> None:
        """kill -9: the process has ended when this returns."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._input, self._output):
            pipe.close()


class Program(Process):
    """A program that stops at one call: `Program("produce:3", script, arguments...)`."""

    def __init__(self, stop_at: str, *command: str) -> None:
        super().__init__("-m", "tests.broker.crashes.programs", stop_at, *command)

    def stopped(self) -> bool:
        """Wait until the program stops at its call; False if it ended before."""
        return self.line() == "stopped\n"

    def let_call(self) -> None:
        """Let the program make the call."""
        self._input.write("go on\n")
        self._input.flush()

    def kill_within(self, seconds: float) -> None:
        """Let the program make the call, and kill it at most `seconds` later, probably during the
        call."""
        self.let_call()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def ended(self) -> bool:
        """Whether the program has ended by itself."""
        return self._process.poll() is not None

    def status(self) -> int:
        """The exit status, once the program has ended by itself."""
        return self._process.wait(TIMEOUT_SECONDS)

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Send SIGTERM and wait: the program ends after its round, or at once before the first."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(TIMEOUT_SECONDS) in (0, -signal.SIGTERM)
        self.kill()


class KillableBroker:
    """`ottla server start` as a process; after a restart it has the same port and data."""

    def __init__(self, data: Path, *overrides: str) -> None:
        self._settings = [f"log.dirs={data}", *overrides]
        self.port = 0
        self.start()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait for its ready line."""
        settings = [*self._settings, f"listeners={READY}{self.port}"]
        overrides = [word for each in settings for word in ("--override", each)]
        self._process = Process("-m", "ottla.broker.main", "server", "start", *overrides)
        ready = self._process.line()
        assert READY in ready, ready
        self.port = int(ready.partition(READY)[2].partition(",")[0])

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()


def main(stop_at: str, script: str, *arguments: str) -> None:
    """Run a script; the call `stop_at`, as in `commit:2`, is announced and waits for permission."""
    import confluent_kafka

    name, number = stop_at.split(":")
    left = int(number)

    def counted(method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                print("stopped", flush=True)
                sys.stdin.readline()
            return method(*given, **named)

        return call

    for kind in ("Consumer", "Producer"):
        stock = getattr(confluent_kafka, kind)
        if hasattr(stock, name):
            changed = {name: counted(getattr(stock, name))}
            setattr(confluent_kafka, kind, type(kind, (stock,), changed))
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
