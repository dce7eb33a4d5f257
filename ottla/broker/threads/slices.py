"""Long work on the loop, a few milliseconds at a time, so that requests do not wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

SLICE_SECONDS = 0.002
"""How long one piece of work may hold the loop. A request that arrives meanwhile waits this long;
with ten such pieces of work at a time it would wait 20 ms."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function that blocks in the kernel in a thread, beside the loop."""


class Slices:
    """Measures how long a piece of work has held the loop."""

    __slots__ = ("began", "seconds")

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self.seconds = seconds
        self.began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the slice is used up: time to `pause`."""
        return time.monotonic() - self.began > self.seconds

    async def pause(self) -> None:
        """Let the loop do all other waiting work once."""
        await asyncio.sleep(0)
        self.began = time.monotonic()


async def in_slices(steps: Iterable[None]) -> None:
    """Run through `steps`, with a pause after each SLICE_SECONDS."""
    slices = Slices()
    for _ in steps:
        if slices.over:
            await slices.pause()
