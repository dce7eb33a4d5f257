"""Transactions of stock clients are committed, aborted and fenced; the broker is killed under them.

confluent-kafka (librdkafka) and kafka-python add partitions to a transaction with separate
requests. With the Java client 4.x, the broker adds them (KIP-890).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.committed_reads import SECONDS, committed, consumer
from compat_tests.requirements import JAVA_CLIENTS, java_client


def producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    """An initialised transactional producer."""
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "reconnect.backoff.max.ms": 200,
            **settings,
        }
    )
    made.init_transactions(SECONDS)
    return made


def end_offsets(bootstrap: str, topic: str, partitions: int, isolation: Any) -> list[int]:
    """The end offsets of the partitions for consumers with this isolation level."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    found = admin.list_offsets(asked, isolation_level=isolation)
    return [found[each].result(SECONDS).offset for each in asked]


def test_confluent_kafka_sees_what_was_committed_and_nothing_else(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("ck", partitions=2)
    writer = producer(broker.bootstrap, topic)
    for number in range(6):
        writer.begin_transaction()
        word = b"aborted" if number % 3 == 2 else b"committed"
        for index in range(10):
            writer.produce(topic, word, partition=index % 2)
        writer.flush(SECONDS)
        if number % 3 == 2:
            writer.abort_transaction(SECONDS)
        else:
            writer.commit_transaction(SECONDS)
        expected = 10 * (number + 1 - (number + 1) // 3)
        # An acknowledged commit is visible immediately.
        assert committed(broker.bootstrap, topic, 2) == [b"committed"] * expected


def test_confluent_kafka_fences_a_zombie(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic("zombie")
    zombie = producer(broker.bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(SECONDS)
    fresh = producer(broker.bootstrap, topic)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(SECONDS)
    assert refused.value.args[0].fatal()
    fresh.begin_transaction()
    fresh.produce(topic, b"fresh")
    fresh.commit_transaction(SECONDS)
    assert committed(broker.bootstrap, topic) == [b"fresh"]


def test_confluent_kafka_commits_offsets_with_what_it_made_of_the_records(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    source, sink = new_topic("source"), new_topic("sink")
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        plain.produce(source, b"%d" % number)
    plain.flush(SECONDS)
    reader, writer = consumer(broker.bootstrap, sink), producer(broker.bootstrap, sink)
    reader.subscribe([source])
    read = 0
    for commit in (False, True):
        writer.begin_transaction()
        read = 0
        while read < 100:
            message = reader.poll(SECONDS)
            assert message is not None, f"only {read} of 100 records"
            if not message.error():
                writer.produce(sink, message.value())
                read += 1
        position = reader.position(reader.assignment())
        writer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), SECONDS)
        if commit:
            writer.commit_transaction(SECONDS)
        else:
            writer.abort_transaction(SECONDS)
            assert reader.committed(reader.assignment(), SECONDS)[0].offset < 0
            reader.seek(TopicPartition(source, 0, 0))
    assert reader.committed(reader.assignment(), SECONDS)[0].offset == 100
    reader.close()
    assert committed(broker.bootstrap, sink) == [b"%d" % number for number in range(100)]


def test_kafka_python_commits_aborts_and_is_fenced(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    from kafka import KafkaProducer
    from kafka import TopicPartition as Where
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    topic = new_topic("kafka-python", partitions=2)

    def made() -> Any:
        started = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        started.init_transactions()
        return started

    writer = made()
    for word in (b"committed", b"aborted", b"committed"):
        writer.begin_transaction()
        for index in range(4):
            writer.send(topic, word, partition=index % 2)
        offsets = {Where(topic, 0): OffsetAndMetadata(len(word), "", -1)}
        writer.send_offsets_to_transaction(offsets, "group-" + topic)
        if word == b"aborted":
            writer.abort_transaction()
        else:
            writer.commit_transaction()
    assert committed(broker.bootstrap, topic, 2) == [b"committed"] * 8
    reader = consumer(broker.bootstrap, "group-" + topic)
    assert reader.committed([TopicPartition(topic, 0)], SECONDS)[0].offset == len(b"committed")
    reader.close()
    writer.begin_transaction()
    writer.send(topic, b"zombie", partition=0).get(SECONDS)
    fresh = made()
    with pytest.raises(KafkaError):
        writer.commit_transaction()
    fresh.begin_transaction()
    fresh.send(topic, b"committed", partition=0)
    fresh.commit_transaction()
    assert committed(broker.bootstrap, topic, 2) == [b"committed"] * 9
    for each in (writer, fresh):
        each.close(timeout=1)


@pytest.mark.parametrize("version", JAVA_CLIENTS)
def test_the_java_client_commits_aborts_describes_and_is_fenced(
    broker: Broker, new_topic: Callable[..., str], version: str
) -> None:
    topic = new_topic("java-transactions", partitions=2)
    command = java_client(version, "facts", broker.bootstrap, topic, program="TransactionClient")
    printed = readers.output_of(command).decode()
    assert dict(line.split("\t") for line in printed.splitlines()) == {
        "committed": "16",
        "all": "16",
        "state": "Ongoing",
        "partitions": f"[{topic}-0]",
        "listed": "true",
        "open": "true",
        "zombie": "ProducerFencedException",
        "after": "17",
    }


class Transfers(threading.Thread):
    """Commits one transaction after the other, each with a record in every partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(name=name)
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.acknowledged: list[bytes] = []
        self.failure: BaseException | None = None
        self.stopping = False

    def run(self) -> None:
        try:
            number = 0
            while not self.stopping:
                writer = producer(
                    self.bootstrap, self.name, **{"transaction.timeout.ms": 20_000}
                )
                number = self.transfer(writer, number)
        except BaseException as error:
            self.failure = error

    def transfer(self, writer: Producer, number: int) -> int:
        """Commit transactions until one can be neither committed nor aborted; return the number of
        the next transaction."""
        while not self.stopping:
            value = b"%s-%d" % (self.name.encode(), number)
            number += 1
            try:
                writer.begin_transaction()
                for index in range(self.partitions):
                    writer.produce(self.topic, value, partition=index)
                writer.commit_transaction(SECONDS)
                self.acknowledged.append(value)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    try:
                        writer.abort_transaction(SECONDS)
                        continue
                    except KafkaException:
                        pass
                break
        return number


def test_kills_of_the_broker_tear_no_transaction_and_lose_no_commit(
    new_broker: Callable[..., Broker], directory: Path
) -> None:
    broker, partitions, topic = new_broker(), 3, "transfers"
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result(SECONDS)
    transfers = [Transfers(broker.bootstrap, topic, partitions, f"t{n}") for n in range(3)]
    for each in transfers:
        each.start()
    try:
        for kill in range(5):
            wait_for(partial(has_acknowledged, transfers, 100 * (kill + 1) + 17 * kill), transfers)
            broker.kill()
            told = [value for each in transfers for value in list(each.acknowledged)]
            broker.start()
            wait_for(partial(all_visible, broker.bootstrap, topic, partitions, told), transfers)
    finally:
        for each in transfers:
            each.stopping = True
        for each in transfers:
            each.join()
    assert not [each.failure for each in transfers if each.failure is not None]
    # Every transaction ends, also those whose producers have disappeared.
    wait_for(
        lambda: end_offsets(broker.bootstrap, topic, partitions, IsolationLevel.READ_COMMITTED)
        == end_offsets(broker.bootstrap, topic, partitions, IsolationLevel.READ_UNCOMMITTED),
        transfers,
    )
    seen = Counter(committed(broker.bootstrap, topic, partitions))
    assert set(seen.values()) == {partitions}, "a transaction is torn or doubled"
    assert not {value for each in transfers for value in each.acknowledged} - seen.keys()
    broker.stop()


def has_acknowledged(transfers: list[Transfers], count: int) -> bool:
    """Whether all threads together have at least `count` acknowledged transactions."""
    return sum(len(each.acknowledged) for each in transfers) >= count


def all_visible(bootstrap: str, topic: str, partitions: int, told: list[bytes]) -> bool:
    """Whether the records of these transactions are visible in every partition."""
    seen = Counter(committed(bootstrap, topic, partitions))
    return all(seen[value] == partitions for value in told)


def wait_for(condition: Callable[[], bool], transfers: list[Transfers]) -> None:
    """Wait until a condition is true; raise AssertionError if a thread fails, or after SECONDS."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        failed = [each.failure for each in transfers if each.failure is not None]
        assert not failed, failed
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.02)
