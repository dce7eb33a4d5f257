"""The progress of a long command: one line on stderr that is redrawn. Only a terminal shows it.

The line has no colours and no escape sequences, so that it is the same with NO_COLOR.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

DRAW_SECONDS = 0.25
BAR = 24


class ProgressLine:
    """`total` is a number of `unit`s, 0 if unknown. Draws only if `stream` is a terminal."""

    def __init__(
        self,
        total: int,
        unit: str = "records",
        *,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.unit, self.now = total, unit, now
        self.stream = sys.stderr if stream is None else stream
        self.wanted = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.done, self.width = 0, 0
        self.begun = self.drawn = now() if self.wanted else 0.0

    def add(self, count: int) -> None:
        """Adds to the count, and draws at most four times a second."""
        if self.wanted:
            self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """Sets the count, and draws at most four times a second."""
        if not self.wanted:
            return
        self.done = done
        now = self.now()
        if now - self.drawn >= DRAW_SECONDS:
            self.drawn = now
            text = line_of(done, self.total, self.unit, now - self.begun)
            self.stream.write("\r" + text.ljust(self.width))
            self.stream.flush()
            self.width = len(text)

    def clear(self) -> None:
        """Removes the line, before other output or at the end of the work."""
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0


def line_of(done: int, total: int, unit: str, seconds: float) -> str:
    """The text of the line. If the total is known, it has a bar and the remaining time."""
    rate = done / max(seconds, 1e-6)
    count = f"{scaled(done)} {unit}, {scaled(rate)}/s"
    if total <= 0:
        return count
    share = min(1.0, done / total)
    full = int(share * BAR)
    seconds_left = max(0, total - done) / rate if rate else 0
    bar = "#" * full + "." * (BAR - full)
    remaining = f", {clock(seconds_left)} left" if rate else ""
    return f"{share:4.0%} [{bar}] {scaled(done)} of {scaled(total)} {unit}, {scaled(rate)}/s" + (
        remaining
    )


def scaled(number: float) -> str:
    """A number with a few digits: 950, 12.3 k, 4.0 M."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {letter}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """A time as 0:05, 12:30 or 3:00:00."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
