"""Waits, with a deadline, until brokers, groups or programs reach a state."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS_MAX = 60.0
"""Much longer than anything takes, even while other tests keep the machine busy."""


def wait_until(true: Callable[[], object], what: str, seconds: float = SECONDS_MAX) -> float:
    """Wait until a condition is true; returns the seconds that this took. Fails after `seconds`."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - begun
