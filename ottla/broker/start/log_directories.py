"""Opens the log directories of a broker that starts."""

from __future__ import annotations

import logging
import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.settings.declaration import entries_of
from ottla.log.files.checkpoints import Partition, partition_of
from ottla.log.storage.known_directories import DIRECTORIES
from ottla.log.storage.log_directory import META, StorageRefused
from ottla.log.storage.storage import Hooks, Storage
from ottla.replication.standalone import TOPIC
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig
    from ottla.log.files.clock import Clock
    from ottla.log.files.disk import Disk
    from ottla.replication.metadata import MetadataImage

log = logging.getLogger("ottla.server")

MIN_OPEN_SEGMENTS = 10


def open_storage(
    config: BrokerConfig, disk: Disk, clock: Clock, hooks: Hooks, cluster_id: str | None = None
) -> Storage:
    """Open the directories that the settings name. `cluster_id` is the id of the broker's cluster,
    None for a standalone broker. Raises StorageRefused."""
    return Storage.open(
        disk,
        clock,
        [str(path) for path in config.log_directories()],
        node_id=config.node_id,
        cluster_id=cluster_id,
        clustered=cluster_id is not None,
        open_segments_max=open_segments_max(
            config.ottla_open_segments_max, config.declared["ottla.open.segments.max"].default),
        forgotten=entries_of(config.ottla_forget_directories),
        hooks=hooks,
    )


def open_segments_max(wanted: int, usual: int) -> int:
    """The limit on segments with open files: `wanted`, or less if `ulimit -n` is too low for it. A
    lower limit is logged as a warning, unless `wanted` is only the setting's default, `usual`."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = max(MIN_OPEN_SEGMENTS, descriptors // 4)
    if wanted > allowed:
        log.log(
            logging.DEBUG if wanted == usual else logging.WARNING,
            "ottla.open.segments.max=%d is reduced to %d: the process may have only %d files open"
            " (ulimit -n)", wanted, allowed, descriptors,
        )
    return min(wanted, allowed)


def refuse_foreign_logs(config: BrokerConfig, disk: Disk) -> None:
    """Refuse to start on log directories that Apache Kafka wrote, before anything in them is
    changed: Kafka may still need them, and `ottla log import` reads them. Raises StorageRefused."""
    found: list[Partition] = []
    foreign = False
    for path in map(str, config.log_directories()):
        try:
            names = disk.subdirectories(path)
            has_owner = disk.exists(f"{path}/{META}") and not disk.exists(f"{path}/{DIRECTORIES}")
        except OSError:                 # a new directory, or one that `Storage.open` reports
            continue
        partitions = [key for name in names if (key := partition_of(name)) is not None]
        foreign = foreign or (has_owner and bool(partitions))
        found += partitions
    if foreign and (TOPIC, 0) not in found:
        raise _without_metadata(found)


def refuse_logs_without_metadata(storage: Storage, image: MetadataImage) -> None:
    """Refuse to start a new cluster where records of an older one exist. Raises StorageRefused."""
    unknown = storage.unclaimed()
    if unknown and image.offset == 0:
        raise _without_metadata(unknown)


def _without_metadata(unknown: Sequence[Partition]) -> StorageRefused:
    topic, index = min(unknown)
    return StorageRefused(
        f"log.dirs has {counted(len(unknown), 'partition')} ({topic}-{index} among them)"
        " without metadata. Is a log directory missing or not mounted? To begin with an"
        " empty broker, move these partitions away."
    )
