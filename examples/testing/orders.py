"""The program under test: adds up the orders of each customer."""

from __future__ import annotations

import json
from collections import Counter

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def place(
    bootstrap_servers: str, topic: str, orders: list[tuple[str, int]], once: bool = False
) -> None:
    """Send orders, each a customer and an amount. With `once`, no order is stored twice."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": once})
    for customer, amount in orders:
        producer.produce(topic, key=customer, value=json.dumps(amount))
    producer.flush()


def totals(bootstrap_servers: str, topic: str, count: int) -> Counter[str]:
    """The sum of each customer's orders, in the first `count` orders of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "totals"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    found: Counter[str] = Counter()
    try:
        while count:
            order = consumer.poll()
            if order.error() is None:
                found[order.key().decode()] += json.loads(order.value())
                count -= 1
    finally:
        consumer.close()
    return found
