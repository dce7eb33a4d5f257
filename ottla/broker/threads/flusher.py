"""Group flush: a thread syncs the disk, and one sync serves all appends that are waiting when it
starts.

While a flush runs, further batches are appended. The next flush covers them all: it acknowledges as
many batches as arrived during the previous flush, instead of one batch.

A small group of files is synced in a thread without Python (`plain_syncs`). A large group, or a
group that needs more than syncs of files, is flushed in a thread that runs Python.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os.path import dirname

from ottla.broker.threads.plain_syncs import PlainSyncs
from ottla.broker.threads.slices import InThread
from ottla.broker.threads.unawaited import retrieve_error
from ottla.log.files.flush import LOGS_ONE_BY_ONE_MAX, FlushTask, run_all
from ottla.replication.partition import Partition
from ottla.wire.errors import StorageFailed

log = logging.getLogger("ottla.flusher")

AGAIN_SECONDS = 0.1
"""The delay of another attempt after a full disk or a lack of descriptors prevented a flush."""


class Flusher:
    """Flushes the partitions with waiting acknowledgements, one group at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: dict[Partition, None] = {}
        self.running = False
        self.scheduled = False
        self.flushes, self.seconds, self.began = 0, 0.0, 0.0    # of groups, for metrics
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-flush")
        self.syncs = PlainSyncs(loop)

    def want(self, partition: Partition) -> None:
        """Flush `partition` soon, in one group with the others wanted in this turn of the loop."""
        self.waiting[partition] = None
        if not self.running and not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self._start)

    def _start(self) -> None:
        self.scheduled = False
        group, self.waiting = self.waiting, {}
        tasks = []
        together = len(group) > LOGS_ONE_BY_ONE_MAX
        for partition in group:
            try:
                task = partition.log.begin_flush(together)
            except StorageFailed:
                self._refused(partition)
                continue
            if task is None:
                self._done(partition, partition.log.recovery_point)
            else:
                tasks.append((partition, task))
        if not tasks:
            return
        self.running = True
        self.flushes += 1
        self.began = self.loop.time()
        if self.syncs.begin([task for _, task in tasks], partial(self._finish, tasks, None)):
            return
        by_directory: dict[str, list[FlushTask]] = {}
        for partition, task in tasks:
            by_directory.setdefault(dirname(partition.log.directory), []).append(task)
        future = self.loop.run_in_executor(self.thread, _sync, by_directory)
        future.add_done_callback(lambda done: self._finish(tasks, done.exception()))

    def _finish(
        self, tasks: list[tuple[Partition, FlushTask]], failure: BaseException | None
    ) -> None:
        self.running = False
        self.seconds += self.loop.time() - self.began
        for partition, task in tasks:
            if failure is not None and task.error is None:
                task.error = OSError(f"the flush ended with {failure!r}")
            try:
                partition.log.end_flush(task)
            except StorageFailed:
                self._refused(partition)
                continue
            self._done(partition, partition.log.recovery_point)
        if self.waiting and not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self._start)

    async def flush_apart(self, partition: Partition, in_thread: InThread) -> None:
        """Flush a partition for which no acknowledgement waits, separately from the groups."""
        try:
            await self._flush_beside(partition, in_thread)
        except StorageFailed as error:
            if partition.log.offline is None:       # a deleted topic's log is offline
                log.error("%r could not be flushed: %s", partition, error)
            self._refused(partition)

    async def make_durable(self, partition: Partition) -> None:
        """Return once everything that the partition's log holds now is on the medium.

        Raises StorageFailed. If the caller is cancelled, the flush still runs to its end: later
        flushes wait for it.
        """
        end = partition.log.log_end_offset
        while partition.log.recovery_point < end:
            # While an earlier flush runs in another thread, this flush may end without moving the
            # recovery point.
            task = self.loop.create_task(self._flush_beside(partition, self._in_thread))
            task.add_done_callback(retrieve_error)
            await asyncio.shield(task)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await self.loop.run_in_executor(self.thread, work)

    async def _flush_beside(self, partition: Partition, in_thread: InThread) -> None:
        task = partition.log.begin_flush()
        if task is not None:
            try:
                await in_thread(task.run)
            except Exception as error:
                # Later flushes wait for the end of this flush, successful or not.
                task.error = OSError(f"the flush ended with {error!r}")
            partition.log.end_flush(task)
        if partition.flushed(partition.log.recovery_point):
            self.want(partition)            # an acknowledgement waits by now

    def _refused(self, partition: Partition) -> None:
        """Handle a failed flush: give up if the topic was deleted or its directory has failed;
        otherwise try again later."""
        if partition.log.offline is not None:
            partition.give_up()
        else:
            self.loop.call_later(AGAIN_SECONDS, self.want, partition)

    def _done(self, partition: Partition, offset: int) -> None:
        # While another flush of this log still runs, the end of that flush requests the next one.
        if partition.flushed(offset) and not partition.log.flushing:
            self.waiting[partition] = None

    def close(self) -> None:
        """Wait for the current flush; the storage flushes everything else when it closes."""
        self.syncs.close()
        self.thread.shutdown(wait=True)


def _sync(by_directory: dict[str, list[FlushTask]]) -> None:
    """Runs in the flush thread; makes only kernel calls. Each task keeps its own failure."""
    for directory, tasks in by_directory.items():
        run_all(tasks[0].disk, directory, tasks)
