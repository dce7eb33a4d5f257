"""A broker for scenarios, and clients that keep groups and transactions open during a scenario."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from ottla.client.cluster import ClusterClient
from tests.broker.running import RunningBroker
from tests.tools.kafka_names.scenario import Place

OVERRIDES = {
    "node_id": "0",             # the id of the broker in the recorded output
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
}


RECORDS = 2
"""The topic of a joining member needs this many records: the member commits after them."""


class Stage:
    """Performs the actions of lines that begin with @: members of groups, open transactions."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.members: dict[str, tuple[threading.Event, threading.Thread]] = {}
        self.producers: list[Any] = []

    def act(self, words: list[str]) -> None:
        """`join GROUP TOPIC`, `join-new GROUP TOPIC`, `leave GROUP`, `transaction ID TOPIC`."""
        match words:
            case ["join", group, topic]:
                self._join(group, topic, {})
            case ["join-new", group, topic]:
                self._join(group, topic, {"group.protocol": "consumer"})
            case ["leave", group]:
                self._leave(group)
            case ["transaction", transactional_id, topic]:
                self._begin(transactional_id, topic)
            case _:
                raise ValueError(f"nothing to do for {words}")

    def _join(self, group: str, topic: str, more: dict[str, Any]) -> None:
        joined, leave = threading.Event(), threading.Event()

        def work() -> None:
            settings = {
                "bootstrap.servers": self.address,
                "group.id": group,
                "client.id": "worker",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **more,
            }
            consumer = Consumer(settings)
            consumer.subscribe([topic])
            seen = 0
            try:
                while not leave.is_set():
                    if consumer.poll(0.1) is not None:
                        seen += 1
                    if seen == RECORDS and not joined.is_set():
                        consumer.commit(asynchronous=False)
                        joined.set()
            finally:
                consumer.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert joined.wait(30), f"{group} did not get its records"
        self.members[group] = (leave, thread)

    def _leave(self, group: str) -> None:
        leave, thread = self.members.pop(group)
        leave.set()
        thread.join(30)

    def _begin(self, transactional_id: str, topic: str) -> None:
        producer = Producer(
            {"bootstrap.servers": self.address, "transactional.id": transactional_id}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"in doubt")
        producer.flush(30)
        self.producers.append(producer)

    def close(self) -> None:
        """Let all members leave."""
        for group in list(self.members):
            self._leave(group)
        self.producers.clear()


def stage_broker(directory: Path) -> RunningBroker:
    """A broker with the settings with which the answers were recorded."""
    return RunningBroker(directory / "data", **OVERRIDES)


def place_of(address: str, directory: Path, data: Path) -> Place:
    """Returns the Place of a scenario that runs with this broker."""
    with ClusterClient(address) as cluster:
        cluster.refresh()
        return Place(address, cluster.cluster_id or "", directory, data)
