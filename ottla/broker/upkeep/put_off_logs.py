"""Logs that could not be opened at the start because of a full disk or a lack of descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.metadata import MetadataImage
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.coordination.coordinators import Coordinators
    from ottla.replication.replicas import Replicas


async def reopen_logs(
    replicas: Replicas, metadata: Metadata, coordinators: Coordinators
) -> None:
    """Open the logs that can be opened by now, and load the groups and transactions in them."""
    image = metadata.image
    if replicas.put_off and replicas.open_again(image):
        reached("partitions were opened again after a lack of room")
        coordinators.follow(MetadataImage.empty(), image, image.topics.keys())
