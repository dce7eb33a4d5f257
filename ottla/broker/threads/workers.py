"""Threads for work that would block the loop: decompressing, checking, compressing large batches.

The codecs release the interpreter lock, so the loop serves others meanwhile. A connection has one
batch here at a time, and its later frames wait: that keeps each producer's order, and bounds the
queue. Each thread holds one decompressed batch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

THREADS_MAX = 4
"""More would only need more memory: disk or network reach their limits before four cores do."""


class Workers:
    """A few threads, each started when there is work for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.threads = ThreadPoolExecutor(
            min(os.cpu_count() or 1, THREADS_MAX), thread_name_prefix="ottla-worker"
        )

    def run(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run `work` in a thread; the future belongs to the loop."""
        return self.loop.run_in_executor(self.threads, work)

    def close(self) -> None:
        """Wait for running work; queued work never starts."""
        self.threads.shutdown(wait=True, cancel_futures=True)
