"""Directories of partitions that belong to no topic, for example after a crash during a deletion.

A start renames them to a name that ends in `-stray`, as Kafka does. The opening of a log does the
same if it finds another topic's directory under the partition's name. Housekeeping removes stray
directories later, so that an operator can still restore them.

    events-0.0000018bcfe568000000000000000001-stray
             when, ms since 1970, hex  number
"""

import re
from collections.abc import Container, Mapping

from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk
from ottla.log.files.names import COPIED_GAPS, EPOCHS, PARTITION_METADATA
from ottla.log.storage.storage import Storage
from ottla.log.storage.void_copies import BEGUN_WITHOUT

STRAY = "-stray"
NAMES = map(re.escape, (PARTITION_METADATA, EPOCHS, COPIED_GAPS, BEGUN_WITHOUT))
FILES = re.compile(rf"\d{{20}}\..+|({'|'.join(NAMES)})(\.tmp)?")


def put_strays_aside(storage: Storage, wanted: Container[Partition]) -> list[str]:
    """Renames the directory of every partition that is not in `wanted`; returns the new paths.

    A directory that contains other files than a partition's is left alone. Raises OSError.
    """
    aside, gone, changed = list[str](), list[Partition](), set[str]()
    for key in storage.unclaimed():
        rivals = storage.rivals.get(key, [])
        for home in (storage.homes[key], *rivals):
            path = home.file(f"{key[0]}-{key[1]}")
            if key in wanted or home.offline is not None or not is_partition(storage.disk, path):
                continue
            target = home.file(storage.deletions.unique_name(f"{key[0]}-{key[1]}", "stray"))
            storage.disk.rename(path, target)
            aside.append(target)
            changed.add(home.path)
            storage.deletions.add_stray(target)
            if storage.homes[key] is home:
                gone.append(key)
            else:
                rivals.remove(home)
        if not rivals:
            storage.rivals.pop(key, None)
    for key in gone:
        storage.forget(key)
    for path in changed:
        storage.disk.sync_directory(path)
    return aside


def forget_other_topics(storage: Storage, topics: Mapping[str, bytes]) -> None:
    """Removes all topics but `topics` from the checkpoints in memory. After a crash, entries of a
    deleted topic may remain. A new topic of the same name would apply them to its own log, which
    would then seem to lack records."""
    for directory in storage.directories:
        others = {
            topic for topic, topic_id in directory.topic_ids.items()
            if topic_id is not None and topics.get(topic) != topic_id
        }
        if others:
            directory.forget_topics(others)


def is_partition(disk: Disk, path: str) -> bool:
    """Whether a directory holds a partition's files and nothing else."""
    return all(FILES.fullmatch(name) for name in disk.listdir(path))


def expire_strays(storage: Storage, retention_ms: int) -> None:
    """Schedules the removal of stray directories, `retention_ms` after their renaming; -1 keeps
    them for ever."""
    storage.deletions.keep_stray(retention_ms)
    if retention_ms < 0:
        return
    for directory in storage.directories:
        if directory.offline is None:
            for name in storage.disk.subdirectories(directory.path):
                if name.endswith(STRAY):
                    path = directory.file(name)
                    at = put_aside_ms(name) or storage.disk.modified_ms(path)
                    left_ms = at + retention_ms - storage.clock.now_ms()
                    # A clock that is set back does not prolong the retention.
                    storage.deletions.add(path, min(left_ms, retention_ms))


def put_aside_ms(name: str) -> int | None:
    """When a directory was renamed; None if Kafka did it, with a random id."""
    unique = name.removesuffix(STRAY).rpartition(".")[2]
    # Larger numbers would be a time in the far future: they are Kafka's random ids.
    ours = re.fullmatch(r"0{5}[0-9a-f]{11}[0-9a-f]{16}", unique)
    return int(unique[:16], 16) if ours else None
