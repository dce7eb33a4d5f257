"""The processor's time that work takes, for promises such as "grows with the length only".

Such a test compares with a bound that is ten times what the work takes and a tenth of what the
fault took. Even so one measurement is not enough: Python's garbage collector walks everything that
ten thousand tests left behind, and other processes empty the caches. So the least of some counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIES_MAX = 5


def least_seconds(work: Callable[[], object], enough: float) -> float:
    """The least time that `work` took; it is not tried again once it took at most `enough`."""
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
