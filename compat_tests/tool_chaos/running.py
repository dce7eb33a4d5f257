"""One of our commands as a process; a scene decides how much it writes and reads."""

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
        """The whole lines of its output; a signal may cut the last one."""
        return self.out.split(b"\n")[:-1]


class Running:
    """The process. Until `read_rest` at most `hold` bytes of its output are read, and of its input
    given to it, so that something can happen in the middle of its work."""

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
        """Wait until it has done so much that it is held, or has ended, or for so long."""
        while time.monotonic() - self.began < seconds and self.process.poll() is None:
            if self.hold and max(len(self.out), self.fed) >= self.hold:
                return
            time.sleep(0.002)

    def read_rest(self) -> None:
        """Read and feed the rest."""
        self.free.set()

    def close_reader(self) -> None:
        """Whoever reads the output goes away."""
        self.reader_ends.set()
        self.free.set()

    def send(self, number: signal.Signals) -> None:
        """A signal for the process; for a pipeline, for all of it."""
        if self.process.poll() is None:
            if self.program[0] == "bash":
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def wait(self, seconds: float) -> Outcome:
        """The end. One that takes longer is an error, and is killed; its threads are told."""
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
        """Whether a process that it started goes on; a moment is allowed for a pipeline's."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """Whatever is left of it."""
        self.free.set()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
