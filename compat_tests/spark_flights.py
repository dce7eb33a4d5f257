"""Flights in a topic, and the lines that a pipeline made of them."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.flights import LoadedTopic
from ottla.spark_interop.cluster import Cluster

FLIGHTS = 4_000


def committed_lines(broker: Broker, topic: str) -> list[tuple[int, int, bytes, bytes]]:
    """(partition, timestamp, key, value) as a stock consumer with read_committed gets them."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    partitions = list(Cluster(broker.bootstrap).partitions(topic))
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found, ended = [], set()
    while len(ended) < len(partitions):
        for message in consumer.consume(1000, 0.2):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                time_ms = message.timestamp()[1]
                found.append((message.partition(), time_ms, message.key(), message.value()))
    consumer.close()
    return found


def source_lines(loaded: LoadedTopic) -> list[tuple[int, int, bytes, bytes]]:
    return [(p, e.timestamp_ms, e.key, e.value) for p, es in loaded.events.items() for e in es]
