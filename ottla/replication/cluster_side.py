"""What a partition with several replicas needs from the broker around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.partition import Partition


class ClusterSide(Protocol):
    """The cluster as one of its partitions sees it. Nothing here blocks or raises."""

    lag_ms: int
    """replica.lag.time.max.ms."""

    def follow(self, image: MetadataImage) -> None:
        """What is asked from here on is about this image."""

    def broker_epoch_of(self, node_id: int) -> int:
        """The epoch that a broker is registered under; -1 if it is not, or is about to leave."""

    def isr_due(self, partition: Partition) -> None:
        """Some follower may join the in-sync set: ask for it with `Partition.propose_isr`."""

    def flush(self, partition: Partition) -> None:
        """Acknowledgements wait for this partition's flush."""
