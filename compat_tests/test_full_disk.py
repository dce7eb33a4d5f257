"""The disk of one of three brokers is full: another replica leads, and stock producers continue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.requirements import zookeeper
from compat_tests.waiting import wait_until
from ottla.tools.cli.local_cluster import LocalCluster
from tests.broker.crashes.loop_disk import MemoryDisk

PARTITIONS = 3
DISK_BYTES = 64 << 20
RECORDS = 2000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers; broker 1 has a small disk of its own."""
    zookeeper()
    with MemoryDisk(tmp_path / "broker-1", DISK_BYTES), LocalCluster(tmp_path, 3) as running:
        yield running


def test_an_idempotent_producer_loses_nothing_while_a_leaders_disk_is_full(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(30)
    wait_until(lambda: 1 in leaders(admin), "broker 1 leads a partition")
    produce(cluster, 30)
    ballast = tmp_path / "broker-1" / "ballast"
    fill(ballast)
    failed = produce(cluster, RECORDS)
    assert failed == [], "all were delivered within the time-out"
    assert 1 not in leaders(admin)
    log = cluster.brokers[1].printed()
    assert log.count("is full, writes are refused") == 1
    ballast.unlink()
    wait_until(lambda: all(sorted(isr) == [1, 2, 3] for isr in in_sync(admin)), "it is back")
    assert cluster.brokers[1].printed().count("has space again") == 1


def produce(cluster: LocalCluster, records: int) -> list[KafkaError]:
    """Send records of 1 KB to all partitions; returns the errors."""
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True,
        "message.timeout.ms": 20_000,
    })
    for number in range(records):
        producer.produce("t", bytes(1000), partition=number % PARTITIONS, on_delivery=told)
        producer.poll(0)
    assert producer.flush(30) == 0
    return failed


def leaders(admin: AdminClient) -> list[int]:
    partitions = admin.list_topics("t", 10).topics["t"].partitions
    return [partitions[index].leader for index in range(PARTITIONS)]


def in_sync(admin: AdminClient) -> list[list[int]]:
    partitions = admin.list_topics("t", 10).topics["t"].partitions
    return [list(partitions[index].isrs) for index in range(PARTITIONS)]


def fill(path: Path) -> None:
    """Fill the disk with one file."""
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 16, 512):
            try:
                while ballast.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
