"""Waits, with a deadline, for something on a broker's event loop or in another process.

A test with its own clock and disk does not need this, because it advances them itself.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS_MAX = 60.0
STEPS_MAX = 1_000_000
T = TypeVar("T")


def until(
    found: Callable[[], T],
    what: str | Callable[[], object],
    seconds: float = WAIT_SECONDS_MAX,
    between: float = 0.0,
) -> T:
    """Call `found` until its result is true, and return that; at the deadline, fail with `what`.

    `between` is the time in seconds between two calls; it leaves the processor to other processes.
    """
    deadline = time.monotonic() + seconds
    while not (result := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {seconds:.0f} s: {what() if callable(what) else what}")
        if between:
            pause(between)
        else:
            os.sched_yield()
    return result


def exhaust(step: Callable[[], object]) -> None:
    """Repeat `step` as long as it returns that there may be more to do."""
    for _ in range(STEPS_MAX):
        if not step():
            return
    raise AssertionError(f"{step} goes on for ever")


def pause(seconds: float) -> None:
    """Let real time pass while other processes run, as during a fault or between two questions.

    `tests/test_tidy.py` says which tests may call this.
    """
    select.select([], [], [], seconds)


async def turn() -> None:
    """Let the running event loop turn once."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
