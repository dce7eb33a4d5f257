"""Members of groups in threads of their own: confluent-kafka consumers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from compat_tests.brokers import Broker
from compat_tests.waiting import wait_until

RECORDS = 400


PARTITIONS = 4


# With `--kills`, a coordinator lives for less than 30 s. If a member's LeaveGroup was lost, each
# new coordinator waits a whole session timeout before it removes the member.
SESSION_MS = 10_000
PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": SESSION_MS,
    },
    "kip848": {"group.protocol": "consumer"},
}


class Member(threading.Thread):
    """A confluent-kafka consumer in a thread of its own, and what it has read and been assigned."""

    def __init__(self, broker: Broker, topic: str, group: str, **settings: Any) -> None:
        from confluent_kafka import Consumer

        super().__init__(daemon=True)
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap, "group.id": group,
                "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings,
            }
        )
        self.topic = topic
        self.read: list[tuple[int, int]] = []
        self.assignments: list[set[int]] = []
        self.failure: Exception | None = None
        self.leaves = threading.Event()

    def run(self) -> None:
        try:
            self.consumer.subscribe([self.topic])
            while not self.leaves.is_set():
                message = self.consumer.poll(0.1)
                given = {partition.partition for partition in self.consumer.assignment()}
                if not self.assignments or given != self.assignments[-1]:
                    self.assignments.append(given)
                if message is not None:
                    assert message.error() is None, message.error()
                    self.read.append((message.partition(), message.offset()))
                    self.consumer.commit(message, asynchronous=False)
            self.consumer.close()
        except Exception as error:
            self.failure = error

    @property
    def owned(self) -> set[int]:
        """The partitions that the member has now. Raises the exception that ended its thread."""
        if self.failure is not None:
            raise self.failure
        return self.assignments[-1] if self.assignments else set()

    def leave(self) -> None:
        self.leaves.set()
        self.join(120)
        assert self.failure is None, self.failure


def produce(broker: Broker, topic: str, count: int = RECORDS) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def wait_for(what: Callable[[], bool], seconds: float = 120) -> None:
    wait_until(what, "what the members of a group should do", seconds)


@contextmanager
def members(*started: Member) -> Iterator[None]:
    for member in started:
        member.start()
    yield
    for member in started:
        if member.is_alive():
            member.leave()
