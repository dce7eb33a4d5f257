"""Runs a command as a process; a scene decides how much output and input may pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 14
PROGRAM = [sys.executable, "-m", "ottla.tools.command"]


@dataclass
class Outcome:
    """How a command ended."""

    words: list[str]
    status: int
    out: bytes
    err: str
    left_behind: bool

    @property
    def lines(self) -> list[bytes]:
        """The complete lines of the output, without a last line that a signal cut."""
        return self.out.split(b"\n")[:-1]


class Running:
    """A running command. Until `read_rest` is called, output and input stop after about `hold`
    bytes, so that something can happen in the middle of the command's work."""

    def __init__(
        self, words: list[str], folder: Path, bootstrap: str, given: bytes | None = None,
        hold: int = 0,
    ) -> None:
        self.words, self.given, self.hold = words, given, hold
        self.program = words if words[0] in ("bash", sys.executable) else [*PROGRAM, *words]
        self.err, self.out = folder / "stderr", bytearray()
        folder.mkdir(parents=True)
        (folder / "command").write_text(" ".join(self.program) + "\n")
        self.free, self.reader_ends = threading.Event(), threading.Event()
        self.fed = 0
        environment = {"OTTLA_BOOTSTRAP_SERVERS": bootstrap, "HOME": "/nonexistent",
                       "PYTHONFAULTHANDLER": "1"}    # fmt: skip
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(
                self.program, stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=err, bufsize=0, start_new_session=True,
                env=os.environ | environment,
            )  # fmt: skip
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self._read, daemon=True)]
        if given is not None:
            self.threads.append(threading.Thread(target=self._feed, daemon=True))
        for thread in self.threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while not self.reader_ends.is_set():
            if len(self.out) >= self.hold and not self.free.wait(0.02):
                continue
            piece = os.read(descriptor, CHUNK)
            self.out += piece
            if not piece:
                break
        self.process.stdout.close()

    def _feed(self) -> None:
        assert self.process.stdin is not None and self.given is not None
        descriptor = self.process.stdin.fileno()
        try:
            while self.fed < len(self.given):
                if self.fed >= self.hold and not self.free.wait(0.02):
                    if self.process.poll() is not None:
                        break
                    continue
                self.fed += os.write(descriptor, self.given[self.fed:self.fed + CHUNK])
        except BrokenPipeError:
            pass
        self.process.stdin.close()

    def until_held(self, seconds: float) -> None:
        """Wait until `hold` bytes have passed, or the command has ended or has run for `seconds`.
        """
        while time.monotonic() - self.began < seconds and self.process.poll() is None:
            if self.hold and max(len(self.out), self.fed) >= self.hold:
                return
            time.sleep(0.002)

    def read_rest(self) -> None:
        """Let the rest of the output and input pass."""
        self.free.set()

    def close_reader(self) -> None:
        """Close the pipe from which the output is read."""
        self.reader_ends.set()
        self.free.set()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, or to all processes if it is a shell's pipeline."""
        if self.process.poll() is None:
            if self.program[0] == "bash":
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def wait(self, seconds: float) -> Outcome:
        """Wait for the end, and return the outcome. A command that takes longer is killed. Then
        AssertionError is raised, with the stack of each of the command's threads."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)   # Python's fault handler writes where each thread is
            time.sleep(1)
            self.kill()
            raise AssertionError(
                f"still running after {seconds:.0f} s: {self.words}, {len(self.out)} bytes written:"
                f" {self.err.read_text(errors='replace')[-3000:]}") from None
        left = self._group_lives()
        self.kill()
        for thread in self.threads:
            thread.join(30)
        return Outcome(
            self.words, self.process.returncode, bytes(self.out),
            self.err.read_text(errors="replace"), left,
        )  # fmt: skip

    def _group_lives(self) -> bool:
        """Whether a process that the command started still runs after 5 s; a pipeline's processes
        need a moment to end."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """Kill every process of the command that is left."""
        self.free.set()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
