"""Checkpoints of a running broker: gathered in slices on the loop, written by a thread.

One writer runs at a time, so that no older state replaces a newer one. A log start is written
before a response to a client contains it; requests that arrive during a write share the next write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import in_slices
from ottla.log.files.checkpoints import Partition as PartitionKey
from ottla.log.storage.checkpoint_task import (
    CheckpointTask,
    directory_steps,
    log_start_steps,
)
from ottla.log.storage.log_directory import LogDirectory
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.checkpoints")


def high_watermarks(replicas: Replicas) -> Iterable[tuple[PartitionKey, int]]:
    """The content of replication-offset-checkpoint."""
    for partition in replicas:
        # Between two steps, the partition's topic may have been created again. For a log that is
        # damaged or could not be opened, the file keeps the previous high watermark, which shows
        # the next start what the log lacks.
        current = replicas.partition(partition.topic, partition.index) is partition
        if current and partition.log.offline is None:
            yield (partition.topic, partition.index), partition.high_watermark


class Checkpoints:
    """Writes the checkpoints of one broker, until `close`."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop) -> None:
        self.storage, self.loop = storage, loop
        self.writer = asyncio.Lock()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-checkpoints")
        self.moved: set[PartitionKey] = set()
        self.next: asyncio.Task[set[str]] | None = None

    async def write(self, high_watermarks: Iterable[tuple[PartitionKey, int]] = ()) -> None:
        """Write the files of every directory. Raises StorageFailed, as `end_checkpoint` does."""
        task = CheckpointTask(self.storage.disk)
        await self._write(task, self.storage.checkpoint_steps(task, high_watermarks))

    async def write_of(self, directory: LogDirectory) -> None:
        """Write the files of one directory, even if other directories fail."""
        task = CheckpointTask(self.storage.disk)
        await self._write(task, directory_steps(self.storage, task, directory))

    async def _write(self, task: CheckpointTask, steps: Iterator[None]) -> None:
        async with self.writer:
            await in_slices(steps)
            await self.loop.run_in_executor(self.thread, task.run)
            self.storage.end_checkpoint(task)

    async def log_starts(self, moved: Collection[PartitionKey]) -> set[PartitionKey]:
        """Write the log starts of these partitions; returns the partitions whose log start was not
        written."""
        if not moved:
            return set()
        self.moved.update(moved)
        if self.next is None:
            if self.writer.locked():
                reached("a log start waits for a write under way")
            self.next = self.loop.create_task(self._write_log_starts())
        # A client that disconnects must not cancel the write for other clients.
        written, homes = await asyncio.shield(self.next), self.storage.homes
        return {key for key in moved if key not in homes or homes[key].path not in written}

    async def _write_log_starts(self) -> set[str]:
        """Write the log starts in `moved`; returns the paths of the directories where this
        succeeded."""
        async with self.writer:
            self.next = None            # later requests wait for the next write
            moved, self.moved, homes = self.moved, set(), self.storage.homes
            paths = {homes[key].path for key in moved if key in homes}
            task = CheckpointTask(self.storage.disk)
            await in_slices(log_start_steps(self.storage, task, paths))
            await self.loop.run_in_executor(self.thread, task.run)
            try:
                self.storage.end_checkpoint(task)
            except StorageFailed as error:
                log.error("%s", error)
        failed = {directory.path for directory, _ in task.failures}
        return {directory.path for directory, _, _ in task.files} - failed

    def close(self) -> None:
        """Wait for the current write; the storage's own close writes the last checkpoint."""
        self.thread.shutdown(wait=True)
