"""Quotas that Kafka's own tool sets hold stock clients to their rates, and nobody else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker
from compat_tests.test_kafka_tools import kafka_tool

pytestmark = pytest.mark.timeout(180)

RATE = 2_000_000
WINDOW_SECONDS = 10
"""A client that comes with an empty window sends what its quota allows of that time at once."""
SIZE = 10_000
MESSAGES = 2 * WINDOW_SECONDS * RATE // SIZE
NewBroker = Callable[..., Broker]


@pytest.fixture(scope="module")
def broker(new_broker: NewBroker) -> Iterator[Broker]:
    started = new_broker()
    started.start()
    yield started
    started.stop()


def set_quota(broker: Broker, client_id: str, **limits: float) -> None:
    values = ",".join(f"{key}={value}" for key, value in limits.items())
    kafka_tool(
        broker, "configs", "--bootstrap-server", "{}", "--alter", "--entity-type", "clients",
        "--entity-name", client_id, "--add-config", values,
    )  # fmt: skip


def create(broker: Broker, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def produce_all(broker: Broker, topic: str, client_id: str, beside: Any = None) -> float:
    """Produce all messages, and call `beside` every second or so; returns the seconds it took."""
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap, "client.id": client_id, "acks": 1,
            "batch.size": 100_000, "max.in.flight.requests.per.connection": 1, "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        }
    )  # fmt: skip
    began = time.monotonic()
    for number in range(MESSAGES):
        producer.produce(
            topic, os.urandom(SIZE),
            callback=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
        if beside is not None and number % (MESSAGES // 10) == 0:
            beside()
    while producer.flush(1) > 0:
        if beside is not None:
            beside()
    took = time.monotonic() - began
    assert failures == []
    return took


def test_a_producer_keeps_its_byte_rate_and_slows_nobody_else(broker: Broker) -> None:
    topic = create(broker, "produced")
    set_quota(broker, "greedy", producer_byte_rate=RATE)
    modest = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "modest", "acks": 1})
    delays: list[float] = []

    def ask() -> None:
        began = time.monotonic()
        modest.produce(topic, b"modest")
        assert modest.flush(10) == 0
        delays.append(time.monotonic() - began)

    took = produce_all(broker, topic, "greedy", beside=ask)
    rate = (MESSAGES * SIZE - WINDOW_SECONDS * RATE) / took
    print(f"{rate:.0f} bytes a second, {took:.1f} s, modest {sorted(delays)[len(delays) // 2]:.4f}")
    assert rate == pytest.approx(RATE, rel=0.15)
    assert sorted(delays)[len(delays) // 2] < 0.25


def test_a_consumer_keeps_its_byte_rate(broker: Broker) -> None:
    topic = create(broker, "consumed")
    produce_all(broker, topic, "unlimited")
    set_quota(broker, "reader", consumer_byte_rate=RATE)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "client.id": "reader", "group.id": "reader",
            "auto.offset.reset": "earliest", "max.partition.fetch.bytes": 500_000,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    read, began = 0, 0.0
    while read < MESSAGES:
        for message in consumer.consume(1000, 1.0):
            began = began or time.monotonic()
            assert message.error() is None
            read += 1
    took = time.monotonic() - began
    consumer.close()
    rate = (MESSAGES * SIZE - WINDOW_SECONDS * RATE) / took
    print(f"{rate:.0f} bytes a second, {took:.1f} s")
    assert rate == pytest.approx(RATE, rel=0.15)


def test_mutations_beyond_the_quota_are_refused_until_it_recovers(broker: Broker) -> None:
    set_quota(broker, "builder", controller_mutation_rate=1)
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "builder"}
    AdminClient(settings).create_topics([NewTopic("many", 15, 1)])["many"].result(30)
    refused = AdminClient(settings).create_topics([NewTopic("more", 1, 1)], request_timeout=30)
    with pytest.raises(KafkaException) as failure:
        refused["more"].result(60)
    assert failure.value.args[0].code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
    print(failure.value)
    # A dry run is counted as well.
    dry = AdminClient(settings).create_topics([NewTopic("dry", 1, 1)], validate_only=True)
    with pytest.raises(KafkaException) as failure:
        dry["dry"].result(60)
    assert failure.value.args[0].code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
