"""`ottla-metadata-checkpoint` in each log directory: an entry of the metadata log that this broker
has read.

At its start a broker refuses a ZooKeeper that does not have this entry. Without the file it takes
what ZooKeeper has, and reports what its logs have (`held_by_logs`), which is how an operator
accepts a restored backup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from ottla.log.files.disk import Disk
from ottla.replication.cluster_store import Mark
from ottla.replication.records import GARBAGE

MARK = "ottla-metadata-checkpoint"


def write_mark(disk: Disk, directory: str, mark: Mark) -> None:
    """Write a directory's mark. Raises OSError."""
    data = json.dumps({"version": 1, "entry": mark.entry, "czxid": mark.czxid}).encode()
    disk.write_atomically(f"{directory}/{MARK}", data)


def mark_in(disk: Disk, directory: str) -> Mark | None:
    """A directory's mark, None where it is damaged. Raises OSError."""
    try:
        body = json.loads(disk.read_bytes(f"{directory}/{MARK}"))
        return Mark(int(body["entry"]), int(body["czxid"]))
    except GARBAGE:
        return None


def furthest_mark(disk: Disk, directories: Iterable[str]) -> Mark | None:
    """The furthest mark in the log directories; those that cannot be read are ignored."""
    found = []
    for path in directories:
        with suppress(OSError):
            found.append(mark_in(disk, path))
    marks = [mark for mark in found if mark is not None]
    return max(marks, key=lambda mark: mark.entry, default=None)


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove a directory's mark, durably. Raises OSError."""
    disk.unlink(f"{directory}/{MARK}")
    disk.sync_directory(directory)
