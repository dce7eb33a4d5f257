"""The thread in which upkeep runs calls that block in the kernel, one call after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class UpkeepThread:
    """One thread, from the first `run` to `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-housekeeping")

    async def run(self, work: Callable[[], None]) -> None:
        """Run work that may block."""
        await self.loop.run_in_executor(self.thread, work)

    def close(self) -> None:
        """Return once the work that has begun is done."""
        self.thread.shutdown(wait=True)
