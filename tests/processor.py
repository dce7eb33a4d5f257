"""Measures the processor time of work, for promises such as "the time grows only with the length".

Such a test compares the time with a bound, for example ten times what the work takes and a tenth of
what the fault took. Even so, one measurement is not enough: Python's garbage collector walks
everything that ten thousand tests left behind, and other processes empty the caches. So the work is
measured several times, and the least time is used.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIES_MAX = 5


def least_seconds(work: Callable[[], object], enough: float) -> float:
    """The least time that `work` took, of several tries; a try of at most `enough` is the last."""
    least = float("inf")
    with without_collection():
        for _ in range(TRIES_MAX):
            began = time.process_time()
            work()
            least = min(least, time.process_time() - began)
            if least <= enough:
                break
    return least


@contextmanager
def without_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
