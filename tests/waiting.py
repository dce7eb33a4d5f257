"""Waiting for what happens elsewhere, with a deadline: on a broker's loop, in another process.

A test whose clock and disk are its own does not need this: it advances them.
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
    """Return what is found as soon as that is true; fail with what was waited for at the deadline.

    Another process needs the processor too: `between` are seconds from one look to the next.
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
    """Repeat a step that returns whether there may be more to do, until there is not."""
    for _ in range(STEPS_MAX):
        if not step():
            return
    raise AssertionError(f"{step} goes on for ever")


def pause(seconds: float) -> None:
    """Let real time pass, for processes of their own: the length of a fault, or between questions.

    `tests/test_tidy.py` names the tests that may.
    """
    select.select([], [], [], seconds)


async def turn() -> None:
    """Let the running event loop turn once."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
