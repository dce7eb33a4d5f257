"""The disk of one of three brokers is full. Other in-sync replicas lead, and the broker's replicas
are in sync again once there is space."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.upkeep import housekeeping
from ottla.log.files.disk import Disk
from ottla.replication.metadata import BrokerLeaving, Decision, PartitionState
from ottla.wire.errors import ErrorCode
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.log.faulty_disk import FaultyDisk

PARTITIONS = 6


@pytest.fixture
def disks() -> dict[int, FaultyDisk]:
    return {node_id: FaultyDisk(node_id) for node_id in (1, 2, 3)}


@pytest.fixture
def cluster(
    tmp_path: Path, disks: dict[int, Disk], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningCluster]:
    monkeypatch.setattr(housekeeping, "SPACE_SECONDS", 0.05)
    settings = {"log_dirs": "/a,/b", "min_insync_replicas": 2, "log_retention_ms": -1}
    with RunningCluster(tmp_path, 3, disks, **settings) as running:
        yield running


def state(cluster: RunningCluster, index: int) -> PartitionState:
    return cluster.servers[1].metadata_log.image.topics["t"].partitions[index]


def in_directory(cluster: RunningCluster, node_id: int, path: str) -> list[int]:
    homes = cluster.servers[node_id].storage.homes
    return [n for n in range(PARTITIONS) if homes["t", n].path == path]


def fill(cluster: RunningCluster, value: bytes) -> None:
    """Produce one record with acks=all to each partition."""
    for index in range(PARTITIONS):
        with cluster.client(state(cluster, index).leader) as client:
            assert produce(client, "t", batch(value), partition=index).error_code == 0


def is_full(disk: FaultyDisk, path: str) -> None:
    disk.failing, disk.errors = f"{path}/", {"write": errno.ENOSPC}


def in_sync(cluster: RunningCluster, node_id: int, indexes: list[int]) -> bool:
    states = [state(cluster, index) for index in indexes]
    return all(node_id in each.isr and each.extra is None for each in states)


def counts(cluster: RunningCluster, name: str) -> list[bool]:
    """For each partition, whether broker 2 is in sync."""
    topic = cluster.servers[1].metadata_log.image.topics[name]
    return [2 in each.isr for each in topic.partitions]


def test_others_lead_what_is_in_a_full_directory_until_it_has_space(
    cluster: RunningCluster, disks: dict[int, FaultyDisk], caplog: pytest.LogCaptureFixture
) -> None:
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    fill(cluster, b"before")
    full, roomy = in_directory(cluster, 2, "/b"), in_directory(cluster, 2, "/a")
    led = next(n for n in full if state(cluster, n).leader == 2)
    with caplog.at_level(logging.WARNING, "ottla.space"):
        is_full(disks[2], "/b")
        with cluster.client(2) as client:
            code = produce(client, "t", batch(b"x"), partition=led, acks=1).error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
        cluster.until(
            lambda: all(state(cluster, n).leader in (1, 3) for n in full)
            and not any(2 in state(cluster, n).isr for n in full),
            "other replicas lead, also what the broker only followed",
        )
        assert in_sync(cluster, 2, roomy), "the other directory takes writes"
        fill(cluster, b"meanwhile")
        directories = cluster.servers[2].storage.directories
        assert {each.path: each.state for each in directories} == {"/a": "ok", "/b": "full"}
        disks[2].errors = {}
        cluster.until(lambda: in_sync(cluster, 2, full), "it is in sync again")
    said = [
        record.getMessage().split(":")[0] for record in caplog.records
        if record.name == "ottla.space"
    ]
    assert said == [
        "log directory /b is full, writes are refused until it has space",
        "log directory /b has space again and accepts writes",
    ]
    fill(cluster, b"after")
    for index in range(PARTITIONS):
        with cluster.client(state(cluster, index).leader) as client:
            found = values(fetch(client, "t", partition=index))
            assert found == [b"before", b"meanwhile", b"after"]


def test_a_follower_with_a_full_disk_holds_nobody_up(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    """Without the follower's report, the leader would wait for it for replica.lag.time.max.ms."""
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    fill(cluster, b"before")
    followed = next(
        n for n in in_directory(cluster, 2, "/b") if state(cluster, n).leader != 2
    )
    is_full(disks[2], "/b")
    with cluster.client(state(cluster, followed).leader) as client:
        assert produce(client, "t", batch(b"x"), partition=followed).error_code == 0
    assert 2 not in state(cluster, followed).isr
    disks[2].errors = {}
    cluster.until(lambda: in_sync(cluster, 2, [followed]), "it is in sync again")


def test_what_came_into_a_full_directory_is_copied_once_there_is_space(
    cluster: RunningCluster, disks: dict[int, FaultyDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic came between two measurements of the free space, and the second one found space."""
    monkeypatch.setattr(housekeeping, "SPACE_SECONDS", 1000.0)      # only the test measures
    cluster.stop(2)
    server = cluster.start(2)
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    cluster.until(lambda: all(counts(cluster, "t")), "it follows")
    disks[2].errors = {"write": errno.ENOSPC}
    for index in range(PARTITIONS):
        with cluster.client(state(cluster, index).leader) as client:
            produce(client, "t", batch(b"x"), partition=index, acks=1)
    cluster.until(lambda: all(each.space.full for each in server.storage.directories), "full")
    disks[2].free, disks[2].errors = 1 << 20, {}            # some space, but not plenty
    assert create(cluster, 1, "new", PARTITIONS, 3) == 0
    cluster.until(lambda: not any(counts(cluster, "new")), "its replicas do not count")
    disks[2].free = 1 << 40
    assert server.housekeeping is not None
    cluster.run(server.housekeeping.work.space.look())
    cluster.until(lambda: all(counts(cluster, "t") + counts(cluster, "new")), "all are in sync")


def test_a_directory_that_is_full_before_the_broker_measures_is_noticed(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker copies records and serves clients before its periodic measurements begin."""
    monkeypatch.setattr(housekeeping, "SPACE_SECONDS", 1000.0)      # it never measures
    server = cluster.servers[2]
    [full, _] = server.storage.directories

    async def refused() -> None:
        before = server.housekeeping
        assert before is not None
        before.close()
        server.storage.refuse(full, OSError(errno.ENOSPC, "no space left on device"))
        server.housekeeping = housekeeping.Housekeeping(
            before.work, server.config, 60.0, server.directory_full, cluster.loop)

    cluster.run(refused())
    told = f"log directory {full.path} is full, writes are refused"
    cluster.until(lambda: told in caplog.text, "it is noticed")


def test_the_only_copy_stays_where_it_is_and_each_write_is_tried(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    assert create(cluster, 1, "t", PARTITIONS, 1) == 0
    fill(cluster, b"before")
    mine = next(n for n in range(PARTITIONS) if state(cluster, n).leader == 3)
    path = cluster.servers[3].storage.homes["t", mine].path
    with cluster.client(3) as client:
        is_full(disks[3], path)
        code = produce(client, "t", batch(b"x"), partition=mine, acks=1).error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        home = cluster.servers[3].storage.homes["t", mine]
        cluster.until(lambda: home.space.full, "it is full")
        assert values(fetch(client, "t", partition=mine)) == [b"before"]
        disks[3].free, disks[3].errors = 1 << 20, {}        # some space, but not plenty
        assert produce(client, "t", batch(b"y"), partition=mine).error_code == 0
        assert home.space.full and state(cluster, mine).leader == 3


def test_nothing_is_handed_to_a_broker_that_is_shutting_down(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    """That broker may not lead, so the partition would have no leader until it is back."""
    assert create(cluster, 1, "t", PARTITIONS, 2) == 0
    decide = cluster.servers[cluster.controller].metadata_log.decide
    led = next(n for n in range(PARTITIONS) if state(cluster, n).leader == 1)
    [other] = set(state(cluster, led).replicas) - {1}
    cluster.run(decide(lambda image: Decision([BrokerLeaving(other)], None)))
    server = cluster.servers[1]
    home = server.storage.homes["t", led]
    is_full(disks[1], home.path)
    with cluster.client(1) as client:
        produce(client, "t", batch(b"x"), partition=led, acks=1)
    cluster.until(lambda: home.space.full, "it is full")
    assert server.housekeeping is not None
    for _ in range(3):
        cluster.run(server.housekeeping.work.space.look())
        with cluster.client(1) as client:
            code = produce(client, "t", batch(b"x"), partition=led, acks=1).error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert state(cluster, led).leader == 1
    disks[1].errors = {}
    with cluster.client(1) as client:
        assert produce(client, "t", batch(b"y"), partition=led, acks=1).error_code == 0
