"""Groups of stock clients: members share partitions, join, leave, return, and stop polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.brokers import Broker
from compat_tests.group_members import (
    PARTITIONS,
    PROTOCOLS,
    RECORDS,
    Member,
    members,
    produce,
    wait_for,
)
from compat_tests.librdkafka_answers import answer_of

POLL_MS = 5_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_read_everything_once(
    broker: Broker, new_topic: Callable[..., str], protocol: str
) -> None:
    from confluent_kafka import TopicPartition

    topic = new_topic(f"groups-{protocol}", partitions=PARTITIONS)
    one = Member(broker, topic, topic, **PROTOCOLS[protocol])
    two = Member(broker, topic, topic, **PROTOCOLS[protocol])
    with members(one, two):
        wait_for(lambda: len(one.owned) == len(two.owned) == 2)
        assert one.owned | two.owned == set(range(PARTITIONS))
        produce(broker, topic)
        wait_for(lambda: len(one.read) + len(two.read) >= RECORDS)
        three = Member(broker, topic, topic, **PROTOCOLS[protocol])
        with members(three):
            wait_for(lambda: bool(three.owned))
        wait_for(lambda: len(one.owned) + len(two.owned) == PARTITIONS)
    read = one.read + two.read + three.read
    assert len(read) == len(set(read)) == RECORDS
    late = Member(broker, topic, topic, **PROTOCOLS[protocol]).consumer
    wanted = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = answer_of(lambda: late.committed(wanted, timeout=60))
    assert {p.offset for p in found} == {RECORDS // PARTITIONS}
    late.close()


def test_a_static_member_comes_back_without_a_rebalance(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("groups-static", partitions=PARTITIONS)
    settings = {"session.timeout.ms": 60_000}
    one = Member(broker, topic, topic, **settings, **{"group.instance.id": "one"})
    two = Member(broker, topic, topic, **settings, **{"group.instance.id": "two"})
    with members(one, two):
        wait_for(lambda: len(one.owned) == len(two.owned) == 2)
        changes = len(two.assignments)
        before = one.owned
        one.leave()
        again = Member(broker, topic, topic, **settings, **{"group.instance.id": "one"})
        with members(again):
            wait_for(lambda: len(again.owned) == 2)
            assert again.owned == before
            assert len(two.assignments) == changes


def test_a_silent_member_loses_its_partitions_to_the_others(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("groups-silent", partitions=PARTITIONS)
    settings = {"session.timeout.ms": 6000, "max.poll.interval.ms": 6000}
    one = Member(broker, topic, topic, **settings)
    two = Member(broker, topic, topic, **settings)
    with members(one):
        two.consumer.subscribe([topic])
        wait_for(lambda: two.consumer.poll(0.1) is None and len(two.consumer.assignment()) == 2)
        wait_for(lambda: one.owned == set(range(PARTITIONS)))
    two.consumer.close()


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_a_group_changes_its_protocol_under_its_members(
    broker: Broker, new_topic: Callable[..., str], protocol: str
) -> None:
    topic = new_topic(f"groups-upgrade-{protocol}", partitions=PARTITIONS)
    old = Member(broker, topic, topic, **PROTOCOLS[protocol])
    new = Member(broker, topic, topic, **PROTOCOLS["kip848"])
    back = Member(broker, topic, topic, **PROTOCOLS[protocol])
    with members(old):
        wait_for(lambda: len(old.owned) == PARTITIONS)
        with members(new):
            wait_for(lambda: len(old.owned) == len(new.owned) == 2)
            produce(broker, topic)
            wait_for(lambda: len(old.read) + len(new.read) >= RECORDS)
            old.leave()
            wait_for(lambda: len(new.owned) == PARTITIONS)
            back.start()
            wait_for(lambda: len(back.owned) == len(new.owned) == 2)
        wait_for(lambda: len(back.owned) == PARTITIONS)
        produce(broker, topic)
        wait_for(lambda: len(back.read) >= RECORDS)
        back.leave()
    read = old.read + new.read + back.read
    assert len(read) == len(set(read)) == 2 * RECORDS


def test_kafka_python_members_share_and_commit(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import RebalanceInProgressError

    topic = new_topic("groups-kafka-python", partitions=PARTITIONS)
    produce(broker, topic)
    made = [
        KafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=topic,
            auto_offset_reset="earliest", enable_auto_commit=False,
        )
        for _ in range(2)
    ]
    read: set[tuple[int, int]] = set()

    def poll(consumer: KafkaConsumer) -> None:
        for batch in consumer.poll(timeout_ms=POLL_MS).values():
            read.update((record.partition, record.offset) for record in batch)

    def poll_and_commit() -> bool:
        # Both consumers poll at the same time, because a joining member waits for the others.
        # Besides, if a member of kafka-python 3.0.12 rejoins during a poll because of new metadata,
        # it forgets an assignment that arrives after the end of that poll.
        with ThreadPoolExecutor() as threads:
            list(threads.map(poll, made))
        if len(read) < RECORDS or any(len(c.assignment()) != 2 for c in made):
            return False
        try:
            for consumer in made:
                consumer.commit()
        except RebalanceInProgressError:
            return False  # the other member was joining: try again
        return True

    wait_for(poll_and_commit)
    assert {made[0].committed(TopicPartition(topic, p)) for p in range(PARTITIONS)} == {100}
    for consumer in made:
        consumer.close()


def test_aiokafka_members_share_and_commit(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    from aiokafka import AIOKafkaConsumer

    topic = new_topic("groups-aiokafka", partitions=PARTITIONS)
    produce(broker, topic)

    async def read_all() -> None:
        made = [
            AIOKafkaConsumer(
                topic, bootstrap_servers=broker.bootstrap, group_id=topic,
                auto_offset_reset="earliest", enable_auto_commit=False,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(consumer.start() for consumer in made))
        read: set[tuple[int, int]] = set()
        async with asyncio.timeout(60):
            while len(read) < RECORDS or any(len(c.assignment()) != 2 for c in made):
                for consumer in made:
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        read.update((record.partition, record.offset) for record in batch)
        for consumer in made:
            await consumer.commit()
            for partition in consumer.assignment():
                assert await consumer.committed(partition) == RECORDS // PARTITIONS
            await consumer.stop()

    asyncio.run(read_all())
