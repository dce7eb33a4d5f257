"""Threads for work that would block the loop: decompressing, checking, compressing large batches.

The codecs release the interpreter lock, so the loop serves other connections at the same time. A
connection has one batch here at a time, and its later frames wait: that keeps each producer's
order, and bounds the queue. Each thread holds one decompressed batch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ottla.log.files.index_file import RebuildNeeded

if TYPE_CHECKING:
    from ottla.log.partition.index_rebuilds import IndexRebuild
    from ottla.log.partition.reread import Reread

    Rebuild = IndexRebuild | Reread

Result = TypeVar("Result")

THREADS_MAX = 4
"""More threads would only need more memory: disk or network reach their limits before four cores
do."""


class Workers:
    """A few threads, each started when there is work for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.closed = loop, False
        self.renewing: dict[Rebuild, list[asyncio.Future[None]]] = {}
        self.threads = ThreadPoolExecutor(
            min(os.cpu_count() or 1, THREADS_MAX), thread_name_prefix="ottla-worker"
        )
        self.apart = ThreadPoolExecutor(1, thread_name_prefix="ottla-rebuild")

    def run(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run `work` in a thread; the future belongs to the loop."""
        return self.loop.run_in_executor(self.threads, work)

    def renew(self, rebuild: Rebuild) -> asyncio.Future[None]:
        """Rebuild a segment's indexes, or read a log again. A thread of its own runs one rebuild
        after the other, since reading a segment may take a second. The future is done once the
        rebuild has ended; a rebuild that has failed has an `error`."""
        over: asyncio.Future[None] = self.loop.create_future()
        waiting = self.renewing.get(rebuild)
        if waiting is not None:
            waiting.append(over)
            return over
        self.renewing[rebuild] = [over]
        self._go_on(rebuild)
        return over

    def _go_on(self, rebuild: Rebuild) -> None:
        rebuild.advance()
        if not rebuild.over and not self.closed:
            work = self.loop.run_in_executor(self.apart, rebuild.run)
            work.add_done_callback(lambda _: self._go_on(rebuild))
            return
        for over in self.renewing.pop(rebuild):
            if not over.done():
                over.set_result(None)

    async def after_rebuilds(self, ask: Callable[..., Result]) -> Result:
        """The result of `ask(patient=True)`, which uses a log; whenever `ask` needs a rebuild, it
        is called again after the rebuild. Raises OSError, ProtocolError."""
        before: Rebuild | None = None
        while True:
            try:
                return ask(patient=True)
            except RebuildNeeded as needed:
                needed.rebuild.check_new(before)
                before = needed.rebuild
                await self.renew(before)

    def close(self) -> None:
        """Wait for running work; queued work never starts."""
        self.closed = True
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.apart.shutdown(wait=True, cancel_futures=True)
