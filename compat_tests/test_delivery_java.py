"""`examples/delivery/Delivery.java` consumes, transforms and produces with the Java client, while
program and broker are killed.

`tests/broker/crashes/test_delivery_semantics.py` tests the programs that use confluent-kafka.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker
from compat_tests.committed_reads import SECONDS, committed, consumer
from compat_tests.librdkafka_answers import answer_of
from compat_tests.requirements import JAVA_CLIENTS, java_client

ANSWER_SECONDS = 10
KILLS, RECORDS_A_KILL, PARTITIONS = 4, 400, 2


class Program:
    """Delivery.java with one delivery guarantee; it prints a line after each round."""

    def __init__(self, broker: Broker, directory: Path, semantics: str) -> None:
        self.source, self.sink = f"in-{semantics}", f"out-{semantics}"
        self._command = java_client(
            JAVA_CLIENTS[0], semantics, broker.bootstrap, self.source, self.sink,
            program="Delivery",
        )  # fmt: skip
        self._log = directory / "delivery.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the program unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def rounds(self, count: int) -> None:
        """Wait until the program has finished this number of rounds, or has ended."""
        assert self._process is not None and self._process.stdout is not None
        for _ in range(count):
            if not self._process.stdout.readline():
                break

    def kill(self) -> None:
        """Kill the program with kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def own_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    broker = new_broker("group.initial.rebalance.delay.ms=0")
    broker.start()
    yield broker
    broker.stop()


def fill(bootstrap: str, topic: str, first: int) -> None:
    """Produce RECORDS_A_KILL records to the source topic, numbered from `first` on."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + RECORDS_A_KILL):
        producer.produce(topic, b"record %d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def left(broker: Broker, program: Program, filled: int) -> int:
    """How many source records the program has not yet committed as read. If an open transaction
    delays the answer for too long, returns `filled`, the number of all records. A program that
    ended by itself leaves a transaction open, until the program is started again or the transaction
    times out."""
    reader = consumer(broker.bootstrap, f"{program.source}-to-{program.sink}")
    wanted = [TopicPartition(program.source, index) for index in range(PARTITIONS)]
    try:
        found = answer_of(lambda: reader.committed(wanted, ANSWER_SECONDS))
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        return filled
    finally:
        reader.close()
    return filled - sum(max(each.offset, 0) for each in found)


@pytest.mark.parametrize("semantics", ["at_most_once", "at_least_once", "exactly_once"])
def test_kills_of_program_and_broker_break_no_promise(
    own_broker: Broker, directory: Path, semantics: str
) -> None:
    chance = random.Random(semantics)
    program = Program(own_broker, directory, semantics)
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    topics = [NewTopic(name, PARTITIONS, -1) for name in (program.source, program.sink)]
    for created in admin.create_topics(topics).values():
        created.result(SECONDS)
    filled = 0
    try:
        for kill in range(KILLS):
            fill(own_broker.bootstrap, program.source, filled)
            filled += RECORDS_A_KILL
            program.start()
            program.rounds(chance.randrange(2, 12))
            if kill % 2:
                program.kill()
            else:
                own_broker.kill()
                own_broker.start()
        while left(own_broker, program, filled):
            program.start()  # as a service manager restarts a program that ended by itself
    finally:
        program.kill()
    written = Counter(committed(own_broker.bootstrap, program.sink, PARTITIONS))
    expected = Counter(b"RECORD %d" % number for number in range(filled))
    assert not written.keys() - expected.keys(), "a record that nobody sent"
    if semantics != "at_least_once":
        assert max(written.values()) == 1, "a record is written twice"
    if semantics != "at_most_once":
        assert not expected - written, "a record is lost"
