"""Standard output for records, with its own buffer, to keep track of what has been written.

A full pipe does not block the program, which still handles signals. On a terminal, control bytes
are shown as \\x1b.
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from collections.abc import Callable

FULL = 1 << 18
PIECE = select.PIPE_BUF
"""The number of bytes that a ready pipe accepts without blocking."""
WAIT_MS = 200
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
"""All control characters except tab and line feed: C0, DEL, and C1 in UTF-8."""


def visible(data: bytes) -> bytes:
    """Replaces control characters by visible text, and also bytes that are not UTF-8: a terminal
    may take such a byte, for example 0x9b, for a control character."""
    data = data.decode(errors="backslashreplace").encode()
    return CONTROL.sub(lambda found: b"".join(b"\\x%02x" % one for one in found[0]), data)


class RecordOutput:
    """Collects records. `flush` writes them, and returns when they are written."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self.check: Callable[[], None] = lambda: None
        """Called while the pipe is full. An exception that it raises ends the program."""
        self.failed = False
        self._parts: list[bytes] = []
        self._size = 0
        self.terminal = sys.stdout.isatty()
        try:
            self._descriptor = sys.stdout.fileno()
        except (OSError, ValueError):       # standard output was replaced by an object
            self._descriptor = -1
        self._is_file = self._descriptor >= 0 and stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def write(self, data: bytes) -> None:
        """Add a record's text."""
        self._parts.append(visible(data) if self.terminal else data)
        self._size += len(data)

    @property
    def full(self) -> bool:
        """Whether it is time for a flush."""
        return self._size >= FULL

    def flush(self) -> None:
        """Writes everything. After a failure, nothing more is written, since it is unknown how much
        the failed call has written."""
        if not self._parts or self.failed:
            return
        unwritten = memoryview(b"".join(self._parts))
        try:
            while unwritten:
                unwritten = unwritten[self._write(unwritten):]
            self._parts, self._size = [], 0
        except BaseException:
            self.failed = True
            raise

    def _write(self, data: memoryview) -> int:
        if self._descriptor < 0:
            buffer = getattr(sys.stdout, "buffer", None)
            if buffer is None:
                sys.stdout.write(bytes(data).decode(errors="replace"))
            else:
                buffer.write(data)
                buffer.flush()
            return len(data)
        if self._is_file:
            return os.write(self._descriptor, data)
        while not polled(self._descriptor, select.POLLOUT, WAIT_MS):
            self.check()
        return os.write(self._descriptor, data[:PIECE])

    def check_reader(self) -> None:
        """Raises BrokenPipeError if the reader of the pipe has exited, even without new output."""
        if self._descriptor < 0 or self._is_file:
            return
        if polled(self._descriptor, 0, 0) & select.POLLERR:
            raise BrokenPipeError


def polled(descriptor: int, events: int, wait_ms: int) -> int:
    """The events of a descriptor; 0 if none occurs within this time."""
    poll = select.poll()
    poll.register(descriptor, events)
    return next((event for _, event in poll.poll(wait_ms)), 0)
