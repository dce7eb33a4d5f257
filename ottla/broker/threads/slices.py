"""Long work on the loop, a few milliseconds at a time: nobody's small request waits behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

SLICE_SECONDS = 0.002
"""What one piece of work may hold the loop for. A request that arrives meanwhile waits so long, so
that of ten such works under way at a time it would wait 20 ms."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs in a thread, beside the loop, what blocks in the kernel."""


class Slices:
    """How long a piece of work has held the loop."""

    __slots__ = ("began",)

    def __init__(self) -> None:
        self.began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether it is the others' turn: time to `pause`."""
        return time.monotonic() - self.began > SLICE_SECONDS

    async def pause(self) -> None:
        """Let the loop serve everybody else once."""
        await asyncio.sleep(0)
        self.began = time.monotonic()


async def in_slices(steps: Iterable[None]) -> None:
    """Walk through `steps`, with a pause after each SLICE_SECONDS."""
    slices = Slices()
    for _ in steps:
        if slices.over:
            await slices.pause()
