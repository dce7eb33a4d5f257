"""The controller's decisions beside those about topics and settings, which have their own files."""

from __future__ import annotations

from ottla.replication.metadata import Decision, MetadataImage, ProducerIdsTaken
from ottla.wire.errors import ErrorCode, ProtocolError

PRODUCER_IDS_PER_BLOCK = 1000
PRODUCER_ID_MAX = 2**63 - 1


def take_producer_ids(image: MetadataImage) -> Decision[range]:
    """Hand out a block of producer ids that nobody had before and nobody will get again."""
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
        raise ProtocolError("producer ids are used up", ErrorCode.UNKNOWN_SERVER_ERROR)
    block = range(first, first + PRODUCER_IDS_PER_BLOCK)
    return Decision([ProducerIdsTaken(block.stop)], block)
