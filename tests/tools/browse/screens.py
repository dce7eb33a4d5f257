"""`ottla topic browse` on a pseudo-terminal: what is on its screen, and keys to press."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

from tests.waiting import exhaust

SECONDS = 30.0
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

CONTROLLED = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C and the closing of the terminal are signals then
from ottla.tools.command import main
sys.exit(main())
"""


class Screen:
    """A process whose standard input, output and errors are one terminal of a given size."""

    def __init__(self, words: list[str], address: str, size: tuple[int, int] = (100, 12)) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.resize(*size)
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, *words], start_new_session=True,
            stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": address, "TERM": "xterm"},
        )  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    @property
    def styled(self) -> list[str]:
        """The lines of the last complete screen, with the escape sequences for their style."""
        whole = self.output.rpartition("\x1b[J")[0].rpartition("\x1b[H")[2]
        return whole.replace("\x1b[K", "").split("\r\n")

    @property
    def lines(self) -> list[str]:
        return [STYLE.sub("", line).rstrip() for line in self.styled]

    @property
    def chosen(self) -> str:
        """The line that is shown in reverse video, or ""."""
        found = [line for line in self.styled if "\x1b[7m" in line]
        return STYLE.sub("", found[0]).rstrip() if found else ""

    def wait(self, pattern: str, *, chosen: bool = False) -> None:
        """Wait until the regular expression matches in the screen, or in its chosen line."""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, self.chosen if chosen else "\n".join(self.lines)):
            assert self.read(deadline), f"no {pattern!r} in\n" + "\n".join(self.lines)

    def read(self, deadline: float) -> bool:
        """Read more output; returns False if there is none before the deadline."""
        ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
        if ready:
            self.output += os.read(self.master, 65536).decode(errors="replace")
        return bool(ready)

    def end(self) -> int:
        """Wait until the process has ended; returns its exit status."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self.read(time.monotonic() + 0.05)
        exhaust(lambda: self.read(time.monotonic()))
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for descriptor in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)
