"""Threads for what would hold up the loop: large batches to decompress, check and compress.

The codecs let go of the interpreter lock, so the loop serves others meanwhile. A connection has one
batch here at a time, and its frames wait behind it: that keeps each producer's order, and bounds
what is queued. Each thread holds one decompressed batch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

THREADS_MAX = 4
"""More would only multiply the memory: the disk or the network ends before four cores do."""


class Workers:
    """A few threads, each begun when there is work for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.threads = ThreadPoolExecutor(
            min(os.cpu_count() or 1, THREADS_MAX), thread_name_prefix="ottla-worker"
        )

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Have a thread do `work`; the future is the loop's."""
        return self.loop.run_in_executor(self.threads, work)

    def close(self) -> None:
        """Wait for what runs; what has not begun never does."""
        self.threads.shutdown(wait=True, cancel_futures=True)
