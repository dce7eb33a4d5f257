"""A child process controlled by lines of JSON, from the test process's side."""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

COMMAND_SECONDS = 30.0
TAIL_LINES = 40


class BrokerFailed(Exception):
    """The broker did not start, or does not answer; the text has the last lines of its log."""


class NoAnswer(BrokerFailed):
    """The process did not answer in time. It may still execute the command."""


class Child:
    """A process that runs one module of this package. Commands may come from any thread."""

    def __init__(
        self, module: str, arguments: list[str], log: Path, pass_fds: tuple[int, ...] = ()
    ) -> None:
        self.log = log
        self.lock = threading.Lock()
        self.is_ready = False
        self._received = b""
        self._numbers = itertools.count(1)
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                # -P: a test's directory may have modules named like those of the standard library.
                [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
                pass_fds=pass_fds, bufsize=0,
                start_new_session=True,     # Ctrl-C reaches only the tests, which clean up
            )

    def wait_until_ready(self, seconds: float) -> int:
        """Wait for the line `{"ready": PORT}` and return the port. Raises BrokerFailed."""
        port = int(self._answer(seconds)["ready"])
        self.is_ready = True
        return port

    def ask(self, do: str, **fields: Any) -> Any:
        """Executes one command and returns its result. Raises BrokerFailed."""
        with self.lock:
            assert self.process.stdin is not None
            command = next(self._numbers)
            line = json.dumps({"command": command, "do": do, **fields}).encode() + b"\n"
            try:
                self.process.stdin.write(line)
            except (BrokenPipeError, ValueError):
                raise BrokerFailed(self._text("is not running")) from None
            answer = self._answer(COMMAND_SECONDS, command)
        if "error" in answer:
            raise BrokerFailed(self._text(f"could not execute {do!r}: {answer['error']}"))
        return answer["ok"]

    def _answer(self, seconds: float, command: int | None = None) -> dict[str, Any]:
        """The answer to a command. Skips late answers to earlier commands, whose callers gave up or
        were interrupted. Without `command`, the line that says that the process is ready."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                if line.startswith(b"{"):
                    answer: dict[str, Any] = json.loads(line)
                    if answer.get("command") == command:
                        return answer
                continue
            left = deadline - time.monotonic()
            poll = select.poll()    # `select` takes no descriptor above 1,023
            poll.register(self.process.stdout, select.POLLIN)
            if left <= 0 or not poll.poll(left * 1000):
                raise NoAnswer(self._text(f"did not answer within {seconds:g} s"))
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                status = self.process.wait()
                raise BrokerFailed(self._text(f"ended with status {status}"))
            self._received += data

    def _text(self, what: str) -> str:
        return f"the broker's process {what}; the end of its log:\n{self.tail()}"

    def tail(self) -> str:
        """The last lines that the process logged."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(there is no log)"
        return "\n".join(lines[-TAIL_LINES:])

    def kill(self) -> None:
        """Kills the process (kill -9) and waits for its end."""
        self.process.kill()
        self._reap(None)

    def end(self, seconds: float) -> None:
        """Closes the pipe to the process and waits for its end; kills it after a timeout."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._reap(seconds)

    def terminate(self, seconds: float) -> int:
        """Sends SIGTERM, waits, and returns the exit status. Raises BrokerFailed if the process
        does not end in time."""
        self.process.terminate()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(self._text(f"did not stop within {seconds:g} s")) from None
        self._reap(None)
        return status

    def _reap(self, seconds: float | None) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class PassedTime:
    """By how much the broker's clock is advanced, also after a restart."""

    ms = 0.0

    def advance(self, broker: Child, ms: float) -> int:
        """Advances the broker's clock; returns the broker's time. Raises BrokerFailed."""
        self.ms += ms
        try:
            return int(broker.ask("advance", ms=ms))
        except NoAnswer:                # the clock moves later
            raise
        except BrokerFailed:
            self.ms -= ms
            raise
