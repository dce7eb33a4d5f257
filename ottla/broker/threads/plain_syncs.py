"""Runs flush tasks that need nothing but syncs of a few files, in a thread without Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ottla.broker.threads.sync_thread import FILES_MAX, SyncThread
from ottla.log.files.disk import File
from ottla.log.files.flush import FlushTask


class PlainSyncs:
    """Syncs the files of a group of tasks, one group at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = SyncThread()
        self.tasks: list[FlushTask] = []
        self.done: Callable[[], None] = _nothing
        loop.add_reader(self.thread.fd, self._ended)

    def begin(self, tasks: list[FlushTask], done: Callable[[], None]) -> bool:
        """Begin to sync. At the end, set the failure of each task and call `done` on the loop.

        Returns False and begins nothing if the tasks need more than syncs of a few files.
        """
        files = plain_files(tasks)
        if files is None:
            return False
        self.tasks, self.done = tasks, done
        self.thread.begin(files)
        return True

    def _ended(self) -> None:
        # Release the tasks: an open file of a deleted topic would keep its space on the disk.
        tasks, done = self.tasks, self.done
        self.tasks, self.done = [], _nothing
        failures = self.thread.end()
        if failures:
            for task in tasks:
                task.error = next((failures[f] for f in task.files if f in failures), None)
        done()

    def close(self) -> None:
        """End the thread after its current syncs."""
        self.loop.remove_reader(self.thread.fd)
        self.thread.close()


def _nothing() -> None:
    pass


def plain_files(tasks: Iterable[FlushTask]) -> list[File] | None:
    """The files of these tasks; None if the tasks need more than syncs of a few files."""
    files: list[File] = []
    for task in tasks:
        if task.directories or task.epochs is not None or not task.files:
            return None
        files += task.files
    return files if len(files) <= FILES_MAX and all(type(f) is File for f in files) else None
