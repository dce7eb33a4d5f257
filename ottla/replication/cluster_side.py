"""What a partition with several replicas needs from the broker around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.partition import Partition


class ClusterSide(Protocol):
    """What partitions ask of the cluster. Nothing here blocks or raises."""

    lag_ms: int
    """replica.lag.time.max.ms."""

    def follow(self, image: MetadataImage) -> None:
        """Answer all later calls from this image."""

    def broker_epoch_of(self, node_id: int) -> int:
        """A broker's registered epoch; -1 if it is not registered or about to leave."""

    def isr_due(self, partition: Partition) -> None:
        """A follower may join the in-sync set: request it with `Partition.propose_isr`."""

    def flush(self, partition: Partition) -> None:
        """Flush this partition: acknowledgements or its next fetch wait for it."""

    def synced(self, partition: Partition) -> None:
        """A flush of a followed partition has ended."""

    def start_moved(self, partition: Partition) -> None:
        """Retention has moved the log start of a followed partition."""

    def keep_start(self, partition: Partition) -> None:
        """The leader of a followed partition has moved its log start: write it into a checkpoint,
        then call `Partition.start_kept`. This is called again until that has happened."""

    def doubted(self, partition: Partition, offset: int) -> None:
        """A follower has asked for the same records for seconds: check the bytes that it is
        sent."""
