"""The controller's decisions about brokers: which of them belong to the cluster."""

from __future__ import annotations

from ottla.replication.metadata import BrokerGone, Decision, MetadataImage
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError


class BrokerNotRegistered(ProtocolError):
    """The cluster has no broker of this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


def unregister_broker(image: MetadataImage, node_id: int, serving_id: int) -> Decision[None]:
    """Forget a broker that will not come back; the one that is asked, `serving_id`, is there."""
    if node_id not in image.brokers:
        raise BrokerNotRegistered(f"Broker ID {node_id} is not currently registered")
    if node_id == serving_id:
        raise InvalidRequest(
            f"Broker {node_id} is running, and would register again: ask another broker once it"
            " has stopped"
        )
    return Decision([BrokerGone(node_id)], None)
