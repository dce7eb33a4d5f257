"""The cluster around one partition, controlled by a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock

TOPIC_ID = b"\x07" * 16
LAG_MS = 30_000


class FakeClusterSide:
    """A ClusterSide that gets broker epochs from a dictionary and records most calls."""

    def __init__(self, lag_ms: int = LAG_MS) -> None:
        self.lag_ms = lag_ms
        self.broker_epochs = {1: 101, 2: 102, 3: 103}
        self.due: list[Partition] = []
        self.flushes: list[Partition] = []
        self.doubts: list[int] = []

    def follow(self, image: MetadataImage) -> None:
        self.broker_epochs = {node: broker.epoch for node, broker in image.brokers.items()}

    def broker_epoch_of(self, node_id: int) -> int:
        return self.broker_epochs.get(node_id, -1)

    def isr_due(self, partition: Partition) -> None:
        self.due.append(partition)

    def flush(self, partition: Partition) -> None:
        self.flushes.append(partition)

    def synced(self, partition: Partition) -> None:
        """Nobody fetches here."""

    def start_moved(self, partition: Partition) -> None:
        """Nobody fetches here."""

    def keep_start(self, partition: Partition) -> None:
        partition.start_kept(partition.log.log_start_offset)

    def doubted(self, partition: Partition, offset: int) -> None:
        self.doubts.append(offset)


def make_partition(
    path: Path, clock: FakeClock, cluster: FakeClusterSide, *, flush: bool = True,
    high_watermark: int = -1, disk: Disk | None = None, **config: Any,
) -> Partition:
    """A partition of a cluster over the log in `path`."""
    log = PartitionLog.open(disk or Disk(), clock, str(path / "t-0"), LogConfig(**config))
    return Partition("t", 0, TOPIC_ID, log, flush, None, cluster, high_watermark)


def batch(value: bytes = b"v") -> bytes:
    """A batch of one record."""
    return build_batch([Record(offset=0, timestamp=1, key=None, value=value)])
