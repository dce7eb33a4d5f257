"""Quotas set by Kafka's own tool limit the rates of the stock clients that they name, and do not
slow other clients."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker
from compat_tests.kafka_tools import kafka_tool
from ottla.client.connection import Connection
from ottla.client.errors import ClientError
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    ListOffsetsRequest,
)
from tests.broker.produce_fetch import batch, produce_request

RATE = 2_000_000
WINDOW_SECONDS = 10
"""A client that has sent nothing for a while may send at once all that its quota allows in this
time, and in the second that has begun."""
LOWEST, HIGHEST = 0.75, 1.05
"""Bounds of what has passed, as a share of what had to pass and of what may have passed by then. If
a client sends as fast as possible, both Ottla and Apache Kafka serve it in bursts, about eleven
seconds apart; a busy machine draws the bursts out."""
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d):(\d{3})")
Point = tuple[float, float]
"""A time, and the bytes that had passed by then."""
SIZE = 10_000
WINDOWS = 4
MESSAGES = WINDOWS * WINDOW_SECONDS * RATE // SIZE
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
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def assert_kept(points: list[Point]) -> None:
    """A client that sends as fast as possible got its quota, and no more, at every time."""
    begin = next(at for at, size in points if size > 0)
    most = max(
        size / (at - begin + WINDOW_SECONDS + 1) / RATE for at, size in points if at >= begin
    )
    least = min(
        size / (until - begin) / RATE
        for (_, size), (until, _) in pairwise(points)
        if until >= begin + WINDOW_SECONDS
    )
    print(f"at least {least:.3f} and at most {most:.3f} of the quota")
    assert least > LOWEST and most < HIGHEST, points
    assert points[-1][0] > begin + 2 * WINDOW_SECONDS


def produce_all(broker: Broker, topic: str, client_id: str, beside: Any = None) -> list[Point]:
    """Produce all messages, and call `beside` about every second. Returns a point for each
    acknowledged message."""
    failures: list[KafkaError] = []
    points: list[Point] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if not points:
            points.append((time.monotonic(), 0.0))
        points.append((time.monotonic(), SIZE * len(points)))
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap, "client.id": client_id, "acks": 1,
            "batch.size": 100_000, "max.in.flight.requests.per.connection": 1, "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        }
    )  # fmt: skip
    for number in range(MESSAGES):
        producer.produce(topic, os.urandom(SIZE), callback=delivered)
        producer.poll(0)
        if beside is not None and number % (MESSAGES // 10) == 0:
            beside()
    while producer.flush(1) > 0:
        if beside is not None:
            beside()
    assert failures == []
    return points


def produced(broker: Broker) -> tuple[list[Point], list[float]]:
    """The points of a limited librdkafka producer, and the delays of an unlimited one meanwhile."""
    topic = create(broker, "produced")
    modest = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "modest", "acks": 1})
    delays: list[float] = []

    def ask() -> None:
        began = time.monotonic()
        modest.produce(topic, b"modest")
        assert modest.flush(60) == 0
        delays.append(time.monotonic() - began)

    return produce_all(broker, topic, "greedy", beside=ask), delays


def consumed(broker: Broker, topic: str) -> list[Point]:
    """The points of a limited librdkafka consumer, one for each message."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "client.id": "reader", "group.id": "reader",
            "auto.offset.reset": "earliest", "max.partition.fetch.bytes": 500_000,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    points: list[Point] = []
    while len(points) <= MESSAGES:
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None
            if not points:
                points.append((time.monotonic(), 0.0))
            points.append((time.monotonic(), SIZE * len(points)))
    consumer.close()
    return points


def produced_by_java(broker: Broker) -> list[Point]:
    """The points of a limited Java producer, measured by the end offset of its topic."""
    topic, count = create(broker, "perf"), WINDOWS * WINDOW_SECONDS * RATE // 1000
    host, _, port = broker.bootstrap.rpartition(":")
    written: list[Point] = []
    with ThreadPoolExecutor(1) as pool, Connection((host, int(port)), client_id="watch") as watch:
        running = pool.submit(
            kafka_tool, broker, "producer-perf", "--topic", topic, "--num-records", str(count),
            "--record-size", "1000", "--throughput", "-1", "--producer-props",
            f"bootstrap.servers={broker.bootstrap}", "client.id=java-producer", "acks=1",
        )  # fmt: skip
        while not running.done():
            written.append((time.monotonic(), offset(watch, topic) * 1000))
            time.sleep(0.05)
        running.result()
    return written


def consumed_by_java(broker: Broker, topic: str) -> list[Point]:
    """The points of a limited Java consumer, as kafka-consumer-perf-test prints them."""
    return reported(kafka_tool(
        broker, "consumer-perf", "--bootstrap-server", "{}", "--topic", topic, "--num-records",
        str(MESSAGES), "--command-property", "client.id=java-consumer", "--show-detailed-stats",
        "--reporting-interval", "50", "--timeout", "60000",
    ))  # fmt: skip


class Limited(NamedTuple):
    """The results of four clients that run at the same time, each with a quota of its own."""

    producer: Future[tuple[list[Point], list[float]]]
    consumer: Future[list[Point]]
    java_producer: Future[list[Point]]
    java_consumer: Future[list[Point]]


@pytest.fixture(scope="module")
def limited(broker: Broker) -> Iterator[Limited]:
    topic = create(broker, "consumed")
    produce_all(broker, topic, "unlimited")
    for writer in ("greedy", "java-producer"):
        set_quota(broker, writer, producer_byte_rate=RATE)
    for reader in ("reader", "java-consumer"):
        set_quota(broker, reader, consumer_byte_rate=RATE)
    with ThreadPoolExecutor(4) as pool:
        yield Limited(
            pool.submit(produced, broker),
            pool.submit(consumed, broker, topic),
            pool.submit(produced_by_java, broker),
            pool.submit(consumed_by_java, broker, topic),
        )


def test_a_producer_keeps_its_byte_rate_and_slows_nobody_else(limited: Limited) -> None:
    points, delays = limited.producer.result()
    print(f"modest: {sorted(delays)[len(delays) // 2]:.4f} s")
    assert_kept(points)
    assert sorted(delays)[len(delays) // 2] < 1.0


def test_a_consumer_keeps_its_byte_rate(limited: Limited) -> None:
    assert_kept(limited.consumer.result())


def test_javas_producer_and_consumer_keep_their_byte_rates(limited: Limited) -> None:
    assert_kept(limited.java_producer.result())
    assert_kept(limited.java_consumer.result())


def reported(printed: str) -> list[Point]:
    """The points that kafka-consumer-perf-test printed. At intervals, this tool prints a line with
    the time, the thread and the megabytes so far."""
    found: list[Point] = []
    for line in printed.splitlines():
        time_of_day, _, rest = line.partition(", ")
        if (stamp := STAMP.fullmatch(time_of_day)) is not None:
            at = datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S").timestamp() + int(stamp[2]) / 1e3
            found.append((at, float(rest.split(", ")[1]) * 2**20))
    return found


def offset(client: Connection, topic: str) -> int:
    """The end offset of a topic's only partition."""
    asked = ListOffsetsRequest.Topic
    request = ListOffsetsRequest(replica_id=-1, topics=[
        asked(name=topic, partitions=[asked.Partition(partition_index=0, timestamp=-1)])
    ])  # fmt: skip
    return int(client.call(request, 5).topics[0].partitions[0].offset)


LEVELS: list[dict[str, str | None]] = [
    {"user": "ANONYMOUS", "client-id": "c"}, {"user": "ANONYMOUS", "client-id": None},
    {"user": "ANONYMOUS"}, {"user": None, "client-id": "c"}, {"user": None, "client-id": None},
    {"user": None}, {"client-id": "c"}, {"client-id": None},
]  # fmt: skip
"""The entities that a quota may be for, the strongest first. None stands for the default entity."""
LITTLE, PLENTY = 1.0, 1e9


def alter(client: Connection, level: dict[str, str | None], value: float | None) -> None:
    made = AlterClientQuotasRequest.Entry
    entity = [made.Entity(entity_type=kind, entity_name=name) for kind, name in level.items()]
    change = made.Op(key="producer_byte_rate", value=value or 0, remove=value is None)
    answer = client.call(AlterClientQuotasRequest(entries=[made(entity=entity, ops=[change])]), 1)
    assert answer.entries[0].error_code == 0, answer


def is_throttled(address: tuple[str, int], topic: str, client_id: str) -> bool:
    with Connection(address, client_id=client_id) as client:
        return bool(client.call(produce_request(topic, batch(b"x" * 100)), 8).throttle_time_ms)


@pytest.mark.parametrize("weaker", range(1, len(LEVELS)))
def test_the_more_specific_quota_counts(broker: Broker, weaker: int) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    address, topic = (host, int(port)), create(broker, f"levels-{weaker}")
    for stronger in range(weaker):
        for strong, weak in ((LITTLE, PLENTY), (PLENTY, LITTLE)):
            client_id = f"c{weaker}{stronger}{strong:.0f}"
            levels = [
                {kind: client_id if name == "c" else name for kind, name in LEVELS[at].items()}
                for at in (stronger, weaker)
            ]
            with Connection(address, client_id="admin") as admin:
                alter(admin, levels[0], strong)
                alter(admin, levels[1], weak)
                deadline = time.monotonic() + 60
                while is_throttled(address, topic, client_id) != (strong == LITTLE):
                    assert time.monotonic() < deadline, (levels, strong, weak)
                for level in levels:
                    alter(admin, level, None)


def connected(address: tuple[str, int]) -> bool:
    try:
        with Connection(
            address, client_id="many", connect_seconds=60, request_seconds=60
        ) as client:
            return bool(client.call(ApiVersionsRequest(), 0).api_keys)
    except ClientError:
        return False


def test_an_address_that_connects_too_often_is_closed(new_broker: NewBroker) -> None:
    """The broker serves as many connections as the window allows. It delays further connections,
    and then closes them."""
    broker = new_broker()
    broker.start()
    host, _, port = broker.bootstrap.rpartition(":")
    kafka_tool(
        broker, "configs", "--bootstrap-server", "{}", "--alter", "--entity-type", "ips",
        "--entity-name", "127.0.0.1", "--add-config", "connection_creation_rate=1",
    )  # fmt: skip
    served, begun = 0, time.monotonic()
    for _ in range(WINDOW_SECONDS + 10):
        if not connected((host, int(port))):
            break
        served += 1
    seconds = time.monotonic() - begun
    print(f"{served} connections were served in {seconds:.1f} s")
    broker.stop()
    assert WINDOW_SECONDS - 3 <= served <= WINDOW_SECONDS + 3 + seconds


def create_topics(client: Connection, name: str, partitions: int, dry: bool = False) -> Any:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=dry)
    return client.call(request, 7)


def test_mutations_beyond_the_quota_are_refused_and_dry_runs_count(broker: Broker) -> None:
    set_quota(broker, "builder", controller_mutation_rate=1)
    host, _, port = broker.bootstrap.rpartition(":")
    address = host, int(port)
    for dry in (True, False):
        with Connection(address, client_id="builder") as client:
            made = create_topics(client, f"many-{dry}", 25 if dry else 1, dry)
        answer = made.topics[0].error_code, made.topics[0].error_message
        if dry:
            assert (*answer, made.throttle_time_ms) == (0, None, 0)
        else:
            assert answer == (89, None)
            assert 5_000 < made.throttle_time_ms <= 14_000
