"""The broker is killed under a group that reads and commits: the members continue, and no committed
offset goes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.group_members import PARTITIONS, PROTOCOLS, Member, members, produce, wait_for
from compat_tests.librdkafka_answers import answer_of

KILLS, BATCH = 3, 200


class Committer(Member):
    """A member that commits each record, and remembers the acknowledged offsets."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.acknowledged: dict[int, int] = {}

    def run(self) -> None:
        from confluent_kafka import KafkaException

        self.consumer.subscribe([self.topic])
        while not self.leaves.is_set():
            message = self.consumer.poll(0.1)
            self.assignments.append({p.partition for p in self.consumer.assignment()})
            if message is None or message.error() is not None:
                continue
            self.read.append((message.partition(), message.offset()))
            try:
                self.consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue  # the record is read again, or the next commit covers it
            self.acknowledged[message.partition()] = message.offset() + 1
        self.consumer.close()


@pytest.mark.parametrize("protocol", ["eager", "kip848"])
def test_a_group_survives_kill_9_with_every_acknowledged_commit(
    new_broker: Callable[..., Broker], protocol: str
) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    broker = new_broker()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("k", PARTITIONS, -1)], operation_timeout=60)["k"].result(60)
    one = Committer(broker, "k", "k", **PROTOCOLS[protocol])
    two = Committer(broker, "k", "k", **PROTOCOLS[protocol])
    with members(one, two):
        wait_for(lambda: len(one.owned) == len(two.owned) == 2)
        for kill in range(KILLS):
            producing = threading.Thread(target=produce, args=(broker, "k", BATCH))
            before = len(one.read) + len(two.read)
            producing.start()
            wait_for(lambda before=before: len(one.read) + len(two.read) > before + 20)
            broker.kill()
            told = {**one.acknowledged}
            for partition, offset in two.acknowledged.items():
                told[partition] = max(offset, told.get(partition, 0))
            broker.start()
            observer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "k"})
            wanted = [TopicPartition("k", partition) for partition in told]
            for found in answer_of(partial(observer.committed, wanted, timeout=60)):
                assert found.offset >= told[found.partition], (kill, found, told)
            observer.close()
            producing.join(60)
        wait_for(lambda: {*one.read, *two.read} >= everything(broker))
    broker.stop()


def everything(broker: Broker) -> set[tuple[int, int]]:
    """Partition and offset of every record."""
    from confluent_kafka import Consumer, TopicPartition

    probe = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "probe"})
    ends = {
        p: answer_of(partial(probe.get_watermark_offsets, TopicPartition("k", p), timeout=60))[1]
        for p in range(PARTITIONS)
    }
    probe.close()
    return {(partition, offset) for partition, end in ends.items() for offset in range(end)}
