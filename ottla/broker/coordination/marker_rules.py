"""Which markers and batches a partition refuses because of its latest transaction marker."""

from __future__ import annotations

from ottla.groups.records import Producer
from ottla.groups.transactions.markers import TransactionMarker
from ottla.groups.transactions.transitions import EPOCH_PER_TRANSACTION
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode, InvalidProducerEpoch, ProtocolError
from ottla.wire.marks import reached


def later_marker(
    partition: Partition, producer: Producer, coordinator_epoch: int
) -> ProtocolError | None:
    """Return an error if a coordinator with a later epoch has written a marker into the partition,
    otherwise None. The error is for a batch that the coordinator with `coordinator_epoch` has
    permitted.

    The marker has ended a transaction. The earlier coordinator may still consider the transaction
    open, and a late batch would begin another transaction.
    """
    state = partition.log.producers.get(producer.producer_id)
    if state is None or state.coordinator_epoch <= coordinator_epoch:
        return None
    reached("a batch met the marker of a later coordinator")
    return ProtocolError(
        f"a newer transaction coordinator, with epoch {state.coordinator_epoch}, has written a"
        f" marker into {partition!r}; send the batch again", ErrorCode.NOT_ENOUGH_REPLICAS,
    )


def refuse_late(partition: Partition, marker: TransactionMarker) -> None:
    """Raise InvalidProducerEpoch if the producer's next transaction is already open in the
    partition. The marker has the same epoch as that transaction and would end it (KIP-890)."""
    state = partition.log.producers.get(marker.producer_id)
    if (
        marker.version >= EPOCH_PER_TRANSACTION
        and state is not None
        and state.transaction_start >= 0
        and state.epoch == marker.epoch
    ):
        reached("a late marker met the next transaction")
        raise InvalidProducerEpoch(
            "the marker belongs to an earlier transaction: a later one with the same producer epoch"
            f" {marker.epoch} is open in {partition!r}"
        )
