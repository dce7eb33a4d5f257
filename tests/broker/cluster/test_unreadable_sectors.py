"""A leader whose disk refuses to read what a client asks for hands over to a replica that has it,
and is repaired from that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.replication.metadata import PartitionState
from ottla.wire.errors import ErrorCode
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.log.faulty_disk import FaultyDisk

FIRST = f"/data/t-0/{0:020d}.log"
SIZES = {"in the reply": 40, "copied": 20_000, "sent from the file": 300_000}


@pytest.fixture
def disks() -> dict[int, FaultyDisk]:
    return {node_id: FaultyDisk(node_id) for node_id in (1, 2, 3)}


@pytest.fixture
def cluster(tmp_path: Path, disks: dict[int, FaultyDisk]) -> Iterator[RunningCluster]:
    with RunningCluster(
        tmp_path, 3, dict(disks), log_dirs="/data", min_insync_replicas=2,
        ottla_log_scrub_bytes_per_second=0,
    ) as running:
        yield running


def state(cluster: RunningCluster) -> PartitionState:
    return cluster.servers[1].metadata_log.image.topics["t"].partitions[0]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_what_the_leader_cannot_read_is_served_by_another_and_fetched_again(
    cluster: RunningCluster, disks: dict[int, FaultyDisk], size: int
) -> None:
    assert create(cluster, 1, "t", 1, 3) == 0
    leader = state(cluster).leader
    with cluster.client(leader) as client:
        for value in (b"a", b"b"):
            assert produce(client, "t", batch(value * size)).error_code == 0
    disk = disks[leader]
    disk.unreadable.add(disk.inode(FIRST))
    with cluster.client(leader) as client:
        try:
            assert fetch(client, "t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        except EOFError:
            assert size > 8192          # the reply was begun already
    cluster.until(lambda: state(cluster).leader != leader, "another one leads")
    with cluster.client(state(cluster).leader) as client:
        assert values(fetch(client, "t")) == [b"a" * size, b"b" * size]
        assert produce(client, "t", batch(b"after")).error_code == 0
    cluster.until(lambda: set(state(cluster).isr) == {1, 2, 3}, "it is in sync again")
    assert any(name.endswith(".quarantine") for name in disk.names)


def test_the_only_replica_goes_on_trying(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    """Nobody else has the records, and the disk may recover."""
    assert create(cluster, 1, "t", 1, 1) == 0
    leader = state(cluster).leader
    disk = disks[leader]
    with cluster.client(leader) as client:
        assert produce(client, "t", batch(b"a"), acks=1).error_code == 0
        disk.unreadable.add(disk.inode(FIRST))
        for _ in range(3):
            assert fetch(client, "t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.unreadable.clear()
        assert values(fetch(client, "t")) == [b"a"]
        assert produce(client, "t", batch(b"b"), acks=1).error_code == 0
