"""Long work on the loop, a few milliseconds at a time, so that requests do not wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TypeVar

Item = TypeVar("Item")

SLICE_SECONDS = 0.002
"""How long one piece of work may block the loop. A request that arrives meanwhile waits this long;
with ten such pieces of work at a time it would wait 20 ms."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function in a thread beside the loop, for calls that block in the kernel."""


class Slices:
    """Measures how long a piece of work has blocked the loop."""

    __slots__ = ("began", "seconds")

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = SLICE_SECONDS if seconds is None else seconds
        self.began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the slice is used up: time to `pause`."""
        return time.monotonic() - self.began > self.seconds

    async def pause(self) -> None:
        """Let the loop do all other waiting work once."""
        await asyncio.sleep(0)
        self.began = time.monotonic()

    async def each(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """The items, with a pause whenever the slice is used up.

        Other code may run between two items, so `items` must not be a dictionary that such code
        changes.
        """
        for item in items:
            if self.over:
                await self.pause()
            yield item


def in_parts(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """The items in order, at most `most` at a time."""
    return (items[at : at + most] for at in range(0, len(items), most))


async def run(steps: Generator[None, None, Item], slices: Slices) -> Item:
    """The result of a computation in steps (`replication.steps`), with pauses between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Item = end.value
            return result
        if slices.over:
            await slices.pause()


async def in_slices(steps: Iterable[None]) -> None:
    """Run through `steps`, with a pause after each SLICE_SECONDS."""
    slices = Slices()
    for _ in steps:
        if slices.over:
            await slices.pause()


def begun(
    work: Coroutine[None, None, None], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None] | None:
    """Begin work whose only waits are pauses; at the first pause a task takes over the rest.
    Returns None if the work ends before its first pause.

    Most work of this kind ends in its first slice and needs no task, which saves a turn of the
    loop.
    """
    try:
        work.send(None)
    except StopIteration:
        return None
    return loop.create_task(work)
