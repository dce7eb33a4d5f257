"""Checks that the partitions of a broker match its metadata image, after the broker has applied the
image to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from ottla.broker.server import Server
    from ottla.replication.metadata import MetadataImage, PartitionState, TopicImage
    from ottla.replication.partition import Partition


def applied(server: Server) -> MetadataImage | None:
    """The image that the broker has applied to all its partitions. None while the broker applies an
    image, and None if this process is not registered in the image."""
    metadata = server.metadata_log
    if metadata.shower is not None or metadata.unseen:
        return None
    return metadata.image if server.replicas.takes_part(metadata.image) else None


def check_applied(server: Server, image: MetadataImage) -> None:
    """Check that the partitions that exist, and their settings, leaders and in-sync sets, match the
    image. Partitions whose disk has failed are left out."""
    replicas, node_id = server.replicas, server.replicas.node_id
    for partition in replicas:
        if partition.topic not in image.topics and partition.log.offline is None:
            raise Violation(f"broker {node_id} serves partition {partition!r} of a deleted topic")
    for topic in image.topics.values():
        config = replicas.log_config(image, topic.name)
        for index, state in enumerate(topic.partitions):
            own = replicas.partition(topic.name, index)
            if own is None:
                if node_id in state.replicas:
                    raise Violation(
                        f"broker {node_id} has no replica of partition {topic.name}-{index}, though"
                        f" the image says: {state}"
                    )
            elif own.log.offline is None and (topic.name, index) not in replicas.offline:
                if own.log.config != config:
                    raise Violation(
                        f"partition {own!r} of broker {node_id} has other settings than its topic:"
                        f" {own.log.config}, not {config}"
                    )
                _check_role(own, node_id, image, topic, state)


def _check_role(
    own: Partition, node_id: int, image: MetadataImage, topic: TopicImage, state: PartitionState
) -> None:
    epoch = image.leader_epoch(topic, state)
    if own.topic_id != topic.topic_id:
        raise Violation(
            f"partition {own!r} of broker {node_id} belongs to another topic of the same name"
        )
    if own.leader_epoch > epoch:
        return                  # possible after ZooKeeper was restored from a backup
    if (own.leader_id, own.leader_epoch) != (state.leader, epoch):
        raise Violation(
            f"partition {own!r} of broker {node_id} has leader {own.leader_id} in epoch"
            f" {own.leader_epoch}, not as the image says: {state}"
        )
    if not own.role.replicated:
        return
    if own.partition_epoch == state.partition_epoch and own.isr != state.isr:
        raise Violation(
            f"partition {own!r} of broker {node_id} has the in-sync set {own.isr}, not as the image"
            f" says: {state}"
        )
    least = min(own.log.config.min_insync_replicas, len(own.replicas))
    if own.led_here and own.role.under_min_isr != (len(own.isr) < least):
        raise Violation(
            f"partition {own!r} of broker {node_id} does not know whether its in-sync set {own.isr}"
            f" is large enough: it needs {least} replicas"
        )
