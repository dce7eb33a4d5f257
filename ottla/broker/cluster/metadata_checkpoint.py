"""`ottla-metadata-checkpoint` in each log directory names the last entry of the metadata log that
this broker has certainly read.

At its start, a broker refuses a ZooKeeper that does not have this entry. To accept a restored
backup, an operator removes the file from every log directory (`ottla cluster accept-backup`).
Without these files, the broker accepts the metadata in ZooKeeper, and reports the highest producer
id and leader epoch in its logs (`held_by_logs`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ottla.log.files.disk import Disk
from ottla.replication.cluster_store import ClusterStore, Mark
from ottla.replication.records import GARBAGE

log = logging.getLogger("ottla.member")

NO_TRANSACTION = -1
"""The `czxid` of a mark whose entry this broker has read and ZooKeeper has lost."""
MARK = "ottla-metadata-checkpoint"


def write_mark(disk: Disk, directory: str, mark: Mark) -> None:
    """Write a directory's mark. Raises OSError."""
    data = json.dumps({"version": 1, "entry": mark.entry, "czxid": mark.czxid}).encode()
    disk.write_atomically(f"{directory}/{MARK}", data)


def mark_in(disk: Disk, directory: str) -> Mark | None:
    """A directory's mark, None if it is damaged. Raises OSError."""
    try:
        body = json.loads(disk.read_bytes(f"{directory}/{MARK}"))
        return Mark(int(body["entry"]), int(body["czxid"]))
    except GARBAGE:
        return None


def furthest_mark(disk: Disk, directories: Iterable[str]) -> Mark | None:
    """The mark with the highest entry in the log directories; unreadable marks are ignored."""
    offsets = []
    for path in directories:
        with suppress(OSError):
            offsets.append(mark_in(disk, path))
    marks = [mark for mark in offsets if mark is not None]
    return max(marks, key=lambda mark: mark.entry, default=None)


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove a directory's mark, durably. Raises OSError."""
    disk.unlink(f"{directory}/{MARK}")
    disk.sync_directory(directory)


class ReadMarks:
    """The mark of one broker, the same in all of its log directories."""

    def __init__(self, disk: Disk, directories: Sequence[str], store: ClusterStore) -> None:
        self.disk, self.directories, self.store = disk, directories, store
        self.mark: Mark | None = None
        """The newest mark, found or written; None if there is none."""

    async def check(self) -> None:
        """Raise GoneBack if this broker's mark shows that ZooKeeper has gone back in time."""
        if self.mark is None:
            self.mark = furthest_mark(self.disk, self.directories)
        if self.mark is not None:
            await self.store.check_mark(self.mark)

    async def remember(self, entry: int) -> None:
        """Record that this broker has read up to an entry. Raises CoordinationError."""
        mark = await self.store.mark(entry)
        if mark is not None and mark != self.mark:
            self._write(mark)

    def remember_lost(self, entry: int) -> None:
        """Record that this broker has read an entry that ZooKeeper no longer has.

        ZooKeeper was then restored from a backup. Without the new mark, the broker might accept the
        backup at its next start, because the former mark may be older than the backup."""
        self._write(Mark(entry, NO_TRANSACTION))

    def _write(self, mark: Mark) -> None:
        self.mark = mark
        for path in self.directories:
            try:
                write_mark(self.disk, path, mark)
            except OSError as error:
                log.warning("%s/%s could not be written, so the next start may not notice that"
                            " ZooKeeper was restored from a backup: %s", path, MARK, error)
