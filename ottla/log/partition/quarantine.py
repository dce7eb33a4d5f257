"""Puts the damaged end of a log aside, so that a replica can fetch its records from the leader.

No record is deleted: the damaged segment and all later segments are renamed to `.quarantine` files.
These stay in the directory until an operator removes them. If a crash interrupts this, the next
start either finds the same damage, or finds a log that ends before the damaged segment.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ottla.log.files.disk import Disk
from ottla.log.files.names import offset_in
from ottla.wire.errors import StorageFailed
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.log.partition.partition_log import PartitionLog

EVERYTHING = -1
REBUILT = (".index", ".timeindex", ".txnindex", ".damaged")
"""A segment's files with these suffixes are deleted, not renamed: the indexes are rebuilt, and the
`.damaged` file is outdated."""


def put_aside(log: PartitionLog) -> tuple[int, list[str]]:
    """Rename the damaged segment of a log and all later segments.

    Returns the base offset of the damaged segment, and the new paths. If compaction has cleaned
    that segment, all segments are renamed, and EVERYTHING is returned as the base offset. Suppose
    the damaged segment had a tombstone for a record of an earlier segment, and the other replicas
    no longer have this tombstone. If the earlier segment stayed, its record would no longer count
    as deleted. Raises StorageFailed; the caller may try again.
    """
    assert log.damage is not None, "the log is not damaged"
    damaged = log.damage.path.rpartition("/")[2]
    base = offset_in(damaged) if damaged.endswith(".log") else EVERYTHING
    if base < log.first_dirty_offset:
        reached("damage in compacted segments puts the whole log aside")
        base = EVERYTHING
    try:
        return base, _rename(log.disk, log.directory, base)
    except OSError as error:
        raise StorageFailed(
            f"the damaged segments of {log.directory} could not be renamed: {error}") from error


def put_all_aside(disk: Disk, directory: str) -> list[str]:
    """Rename all segments of a log that the disk refuses to read. Returns the new paths. Raises
    OSError."""
    return _rename(disk, directory, EVERYTHING)


def _rename(disk: Disk, directory: str, base: int) -> list[str]:
    files = [name for name in disk.listdir(directory) if name.partition(".")[0].isdigit()]
    moved = []
    # The last segment is renamed first: an interruption leaves a shorter log without holes.
    for name in sorted((n for n in files if n.endswith(".log")), key=offset_in, reverse=True):
        if offset_in(name) >= base:
            path = f"{directory}/{name}"
            moved.append(_free_name(disk, path.removesuffix(".log")))
            disk.rename(path, moved[-1])
    for name in files:
        of_later = name.endswith(".snapshot") and offset_in(name) > base
        if of_later or (name.endswith(REBUILT) and offset_in(name) >= base):
            disk.unlink(f"{directory}/{name}")
    disk.sync_directory(directory)
    return moved


def _free_name(disk: Disk, stem: str) -> str:
    """A path that no earlier `.quarantine` file has."""
    names = (f"{stem}.{number}.quarantine" for number in count())
    return next(name for name in names if not disk.exists(name))
