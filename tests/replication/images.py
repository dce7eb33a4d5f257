"""Images for tests of decisions: some brokers, some topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from ottla.replication.controller.topics import NewTopic, TopicDefaults, create_topics
from ottla.replication.metadata import BrokerImage, BrokerRegistered, Endpoint, MetadataImage


def numbered_ids() -> Callable[[], bytes]:
    """A function that returns topic ids that are easy to tell apart: 256, 512, …"""
    numbers: Iterator[int] = count(256, 256)
    return lambda: next(numbers).to_bytes(16, "big")


def brokers(*node_ids: int) -> MetadataImage:
    """A cluster of these brokers without topics."""
    return MetadataImage.empty("cluster").apply(
        BrokerRegistered(BrokerImage(node_id, 1, (Endpoint("PLAINTEXT", "h", 9092 + node_id),)))
        for node_id in node_ids
    )


def with_topics(image: MetadataImage, **partitions: int) -> MetadataImage:
    """`image` with a topic for each keyword, whose value is the number of partitions."""
    decision = create_topics(
        image,
        [NewTopic(name, number, 1) for name, number in partitions.items()],
        TopicDefaults(),
        numbered_ids(),
    )
    assert all(answer.error is None for answer in decision.result)
    return image.apply(decision.records)
