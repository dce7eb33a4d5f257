"""Waiting for clusters and groups, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

FAIL_OVER_SECONDS_MAX = 20.0


def wait_until(
    true: Callable[[], object], what: str, seconds: float = FAIL_OVER_SECONDS_MAX
) -> float:
    """Return once a condition is true; returns how long that took."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - begun
