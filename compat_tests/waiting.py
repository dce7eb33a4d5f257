"""Waiting for what brokers, groups and programs are going to do, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS_MAX = 60.0
"""Much longer than anything takes, also where other tests keep the machine busy."""


def wait_until(true: Callable[[], object], what: str, seconds: float = SECONDS_MAX) -> float:
    """Return once a condition is true; returns how long that took."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - begun
