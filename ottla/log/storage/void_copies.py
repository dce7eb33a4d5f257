"""Remembers which log directories were missing when a partition's log was begun.

While a log directory is missing or has failed, a replica in it may be removed from the broker and
assigned to the broker again. The new log then begins in another directory. Once the missing
directory works again, it still has the former copy. The file `.ottla-begun-without` beside the new
log shows that the former copy is void. The file has the ids of the directories that were missing,
one on each line.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.files.checkpoints import Partition
from ottla.log.files.names import PARTITION_METADATA, partition_metadata
from ottla.log.storage.log_directory import LogDirectory

BEGUN_WITHOUT = ".ottla-begun-without"


def begin(
    home: LogDirectory, key: Partition, topic_id: bytes | None, away: Iterable[LogDirectory]
) -> None:
    """Create a partition's directory, durably, while log directories are missing. Raises OSError.

    Without this directory, the next start would assume that the partition is in a missing log
    directory.
    """
    path = home.file(f"{key[0]}-{key[1]}")
    home.disk.makedirs(path)
    ids = sorted(each.directory_id for each in away if each.directory_id)
    # This file is written before the topic id: without an id, the directory does not count as a
    # copy.
    home.disk.write_atomically(f"{path}/{BEGUN_WITHOUT}", "\n".join(ids).encode())
    if topic_id is not None:
        metadata = partition_metadata(topic_id)
        home.disk.write_atomically(f"{path}/{PARTITION_METADATA}", metadata)
    home.disk.sync_directory(home.path)


def later(key: Partition, one: LogDirectory, other: LogDirectory) -> LogDirectory | None:
    """Of two log directories with a copy of a partition, the one whose copy was begun while the
    other was missing; None if that is not known. Raises OSError."""
    later_copies = [
        each for each, former in ((one, other), (other, one))
        if former.directory_id and former.directory_id in _away_at_begin(key, each)
    ]
    return later_copies[0] if len(later_copies) == 1 else None


def _away_at_begin(key: Partition, home: LogDirectory) -> list[str]:
    try:
        data = home.disk.read_bytes(home.file(f"{key[0]}-{key[1]}/{BEGUN_WITHOUT}"))
    except FileNotFoundError:
        return []
    return data.decode(errors="replace").split("\n")
