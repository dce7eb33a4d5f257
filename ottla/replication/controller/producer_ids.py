"""The controller's decisions about producer ids."""

from __future__ import annotations

from ottla.replication.controller.brokers import StaleBrokerEpoch
from ottla.replication.metadata import Decision, MetadataImage, ProducerIdsTaken
from ottla.wire.errors import ErrorCode, ProtocolError

PRODUCER_IDS_PER_BLOCK = 1000
PRODUCER_ID_MAX = 2**63 - 1


class BackupBeingAdopted(ProtocolError):
    """The metadata come from a backup, and the producer ids that were allocated after the backup
    are not known yet."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def take_producer_ids(image: MetadataImage) -> Decision[range]:
    """Allocate a block of producer ids; no id is ever allocated twice."""
    if image.adopting is not None:
        raise BackupBeingAdopted(
            "ZooKeeper was restored from a backup: no producer ids are allocated until brokers"
            f" {list(image.adopting.awaited)} have reported which ids their logs already use"
        )
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
        raise ProtocolError(
            "all producer ids of the cluster are used up", ErrorCode.UNKNOWN_SERVER_ERROR)
    block = range(first, first + PRODUCER_IDS_PER_BLOCK)
    return Decision([ProducerIdsTaken(block.stop)], block)


def allocate_producer_ids(
    image: MetadataImage, node_id: int, broker_epoch: int
) -> Decision[range]:
    """Allocate a block of producer ids for another broker. Raises StaleBrokerEpoch if the broker is
    not registered under `broker_epoch`."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != broker_epoch:
        known = "it is not registered" if broker is None else f"its epoch is {broker.epoch}"
        raise StaleBrokerEpoch(
            f"broker {node_id} has sent broker epoch {broker_epoch}, but {known}"
        )
    return take_producer_ids(image)
