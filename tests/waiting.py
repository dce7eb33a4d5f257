"""Waiting for what happens elsewhere, with a deadline: on a broker's loop, in another process.

A test whose clock and disk are its own does not need this: it advances them.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

WAIT_SECONDS_MAX = 60.0
STEPS_MAX = 1_000_000


def until(true: Callable[[], object], what: str, seconds: float = WAIT_SECONDS_MAX) -> None:
    """Return as soon as the condition holds; fail with what was waited for at the deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        os.sched_yield()


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
