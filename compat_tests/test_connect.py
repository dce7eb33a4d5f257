"""Kafka Connect with two distributed workers, one of which is killed; MirrorMaker 2 between two
brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from compat_tests.brokers import Broker
from compat_tests.connect_worker import (
    Worker,
    committed_values,
    properties,
)
from compat_tests.jvms import JavaProgram, maven_jars

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
LINES_A_ROUND = 5_000
READ_HERE = 3_000


@pytest.fixture
def other_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker that allows short sessions."""
    broker = new_broker(
        "group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=0"
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def workers(other_broker: Broker, tmp_path: Path) -> Iterator[list[Worker]]:
    """Two workers of one cluster."""
    started = [Worker(tmp_path / f"worker-{n}", other_broker.bootstrap) for n in range(2)]
    for worker in started:
        worker.program.start()
    yield started
    for worker in started:
        worker.program.kill()


def lines_of(first: int) -> list[str]:
    """LINES_A_ROUND lines that contain their numbers, from `first` on."""
    return [f"line {number}" for number in range(first, first + LINES_A_ROUND)]


def append(path: Path, lines: list[str]) -> None:
    """Add lines to a file."""
    with path.open("a") as file:
        file.writelines(f"{text}\n" for text in lines)


def test_the_tasks_of_a_killed_worker_move_and_its_source_writes_every_line_once(
    other_broker: Broker, workers: list[Worker], tmp_path: Path
) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    append(source, lines_of(0))
    workers[0].connect(
        "source",
        **{
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(source),
            "topic": "lines",
            "tasks.max": "1",
            "batch.size": "100",
            "exactly.once.support": "required",
        },
    )
    workers[1].connect(
        "sink",
        **{
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(sink),
            "topics": "lines",
            "tasks.max": "1",
        },
    )

    def in_sink(lines: list[str]) -> bool:
        for worker in workers:
            worker.restart_overtaken("source")
        return sink.exists() and set(lines) <= set(sink.read_text().splitlines())

    workers[0].program.wait_until(lambda: in_sink(lines_of(0)[:100]), "the first lines in the sink")
    workers[1].program.wait_until(
        lambda: any(worker.runs("source") for worker in workers), "the source's task"
    )
    survivor, killed = sorted(workers, key=lambda worker: worker.runs("source"))
    append(source, lines_of(LINES_A_ROUND))
    killed.program.kill()
    append(source, lines_of(2 * LINES_A_ROUND))
    everything = [line for number in range(3) for line in lines_of(number * LINES_A_ROUND)]
    survivor.program.wait_until(lambda: in_sink(everything), "every line in the sink")
    assert survivor.runs("source") and survivor.runs("sink")
    assert committed_values(other_broker.bootstrap, "lines") == everything


def test_mirror_maker_copies_records_settings_and_the_offsets_of_groups(
    broker: Broker, other_broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic("mirrored", retention_ms="123456789")
    group = f"group-of-{topic}"
    send(broker.bootstrap, topic, lines_of(0))
    commit(broker.bootstrap, group, topic, READ_HERE)
    ones = ("replication", "offset-syncs.topic.replication", "checkpoints.topic.replication",
            "heartbeats.topic.replication", "config.storage.replication",
            "offset.storage.replication", "status.storage.replication")  # fmt: skip
    settings: dict[str, object] = {f"{name}.factor": 1 for name in ones}
    settings |= {
        "clusters": "here,there",
        "here.bootstrap.servers": broker.bootstrap,
        "there.bootstrap.servers": other_broker.bootstrap,
        "here->there.enabled": "true",
        "here->there.topics": topic,
        "here->there.groups": group,
        "there->here.enabled": "false",
        "emit.checkpoints.interval.seconds": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "refresh.topics.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2,
        "offset.flush.interval.ms": 500,
        "plugin.discovery": "service_load",
    }
    file = properties(tmp_path / "mirror.properties", settings)
    mirror = JavaProgram(
        tmp_path / "mirror", MIRROR_MAKER, str(file), libraries=maven_jars("connect")
    )
    mirror.start()
    try:
        copy = f"here.{topic}"
        there = other_broker.bootstrap
        mirror.wait_until(lambda: copied(there, copy) == LINES_A_ROUND, "all records there")
        assert committed_values(there, copy) == lines_of(0)
        assert setting(there, copy, "retention.ms") == "123456789"
        mirror.wait_until(lambda: committed(there, group, copy) > 0, "the group's offset there")
        # The group continues on the copy: it misses no record, and also gets records that are
        # produced to the source from now on.
        begin = committed(there, group, copy)
        assert begin <= READ_HERE
        send(broker.bootstrap, topic, lines_of(LINES_A_ROUND))
        everything = lines_of(0) + lines_of(LINES_A_ROUND)
        assert read_as_member(there, group, copy, len(everything) - begin) == everything[begin:]
    finally:
        mirror.kill()


def send(bootstrap: str, topic: str, values: list[str]) -> None:
    """Produce to partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def as_member(bootstrap: str, group: str) -> Consumer:
    """A consumer that commits and fetches offsets without joining."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group})


def read_as_member(bootstrap: str, group: str, topic: str, count: int) -> list[str]:
    """What a consumer of the group gets, from the committed offset on."""
    consumer = as_member(bootstrap, group)
    consumer.subscribe([topic])
    values: list[str] = []
    while len(values) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(values)} of {count} records, and no more within 30 s"
        assert message.error() is None, message.error()
        values.append(message.value().decode())
    consumer.close()
    return values


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0."""
    consumer = as_member(bootstrap, group)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The committed offset of partition 0, negative if there is none."""
    consumer = as_member(bootstrap, group)
    (at,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    consumer.close()
    return int(at.offset)


def copied(bootstrap: str, topic: str) -> int:
    """How many records partition 0 has; 0 if the topic does not exist."""
    consumer = as_member(bootstrap, "watcher")
    try:
        if topic not in consumer.list_topics(timeout=60).topics:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1])
    finally:
        consumer.close()


def setting(bootstrap: str, topic: str, name: str) -> str:
    """One setting of a topic."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_configs([resource])[resource].result(60)
    return str(described[name].value)
