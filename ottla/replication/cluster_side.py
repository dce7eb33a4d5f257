"""The interface through which partitions with several replicas use the rest of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.partition import Partition


class ClusterSide(Protocol):
    """The calls that partitions make. None of them blocks or raises."""

    lag_ms: int
    """replica.lag.time.max.ms."""

    def follow(self, image: MetadataImage) -> None:
        """Use this image for all later calls."""

    def broker_epoch_of(self, node_id: int) -> int:
        """A broker's registered epoch; -1 if it is not registered, or is shutting down."""

    def isr_due(self, partition: Partition) -> None:
        """A follower may join the in-sync set: send the set from `Partition.propose_isr` to the
        controller."""

    def flush(self, partition: Partition) -> None:
        """Flush this partition's log. If this broker leads it, acknowledgements wait for the flush;
        if it follows, its next fetch waits."""

    def synced(self, partition: Partition) -> None:
        """A flush of a followed partition has ended."""

    def start_moved(self, partition: Partition) -> None:
        """Retention has moved the log start of a followed partition."""

    def keep_start(self, partition: Partition) -> None:
        """A followed partition has moved its log start as its leader did: write the log start into
        a checkpoint, then call `Partition.start_kept`. Until this is done, `keep_start` is called
        again for each fetch reply from the leader."""

    def doubted(self, partition: Partition, offset: int) -> None:
        """A follower has requested the records at `offset` for several seconds without progress:
        check whether these records are damaged."""
