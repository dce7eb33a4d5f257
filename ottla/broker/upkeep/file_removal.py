"""Removes deleted files and directories once their delay is over."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.log.storage.deletions import remove_directory

if TYPE_CHECKING:
    from ottla.broker.threads.slices import InThread
    from ottla.log.files.disk import Disk
    from ottla.log.storage.storage import Storage

log = logging.getLogger("ottla.housekeeping")

AGAIN_MS = 60_000
"""The delay of another attempt to remove files."""


def unlink_all(disk: Disk, paths: list[str]) -> None:
    """Delete files; runs in a thread, since the file system may be slow with large files."""
    for path in paths:
        disk.unlink(path)


class FileRemoval:
    """Removes what a storage has deleted. `in_thread` runs blocking calls beside the loop."""

    def __init__(self, storage: Storage, in_thread: InThread) -> None:
        self.storage, self.in_thread = storage, in_thread
        self.removing = asyncio.Lock()

    async def remove_deleted(self) -> None:
        """Delete files that are due. A failed removal is tried again later."""
        # Two runs at once would both remove the directories in `deletions.in_place`, whose names
        # may be used again in between.
        async with self.removing:
            await self._remove_deleted()

    async def make_room(self) -> None:
        """Remove the deleted files of full directories now, without the delay."""
        full = [each.path for each in self.storage.directories if each.space.full]
        for path in full:
            self.storage.deletions.hasten(path)
        if full:
            await self.remove_deleted()

    async def _remove_deleted(self) -> None:
        storage, disk = self.storage, self.storage.disk
        files = storage.deletions.due_files()
        try:
            await self.in_thread(partial(unlink_all, disk, files))
        except OSError as error:
            log.error(
                "files of deleted data could not be removed; the next try is in 60 s: %s", error)
            storage.deletions.add_files(files, AGAIN_MS)
        for path in storage.deletions.take_unsynced():
            await self.in_thread(partial(disk.sync_directory, path))
        for path in storage.deletions.due():
            if not await self._removed(path):
                storage.deletions.add(path, AGAIN_MS)
        for key, path in list(storage.deletions.in_place.items()):
            if await self._removed(path):
                storage.deletions.removed_in_place(key)
        if storage.reserve is not None and storage.reserve.fill():
            await self.in_thread(storage.reserve.sync)

    async def _removed(self, path: str) -> bool:
        """Remove a partition's directory; returns whether it is gone."""
        try:
            await self.in_thread(partial(remove_directory, self.storage.disk, path))
        except OSError as error:
            log.error("%s could not be removed: %s", path, error)
            return False
        return True
