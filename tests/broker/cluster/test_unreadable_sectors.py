"""A leader whose disk cannot read what a client asks for hands over to a replica that has it, and
is repaired from that replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.log.partition.partition_log import PartitionLog
from ottla.replication.metadata import PartitionExtra, PartitionState
from ottla.wire.errors import ErrorCode
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.log.batches import values_of
from tests.log.faulty_disk import FaultyDisk

FIRST = f"/data/t-0/{0:020d}.log"
NOTHING = PartitionExtra()
SIZES = {"in the reply": 40, "copied": 20_000, "sent from the file": 300_000}


@pytest.fixture
def disks() -> dict[int, FaultyDisk]:
    return {node_id: FaultyDisk(node_id) for node_id in (1, 2, 3)}


def running(path: Path, disks: dict[int, FaultyDisk], min_isr: int) -> RunningCluster:
    return RunningCluster(
        path, 3, dict(disks), log_dirs="/data", min_insync_replicas=min_isr,
        ottla_log_scrub_bytes_per_second=0,
    )


@pytest.fixture
def cluster(tmp_path: Path, disks: dict[int, FaultyDisk]) -> Iterator[RunningCluster]:
    with running(tmp_path, disks, 2) as started:
        yield started


def state(cluster: RunningCluster) -> PartitionState:
    """The partition's state in the newest image of the running brokers."""
    images = [server.metadata_log.image for server in cluster.servers.values()]
    newest = max(images, key=lambda image: image.offset)
    return newest.topics["t"].partitions[0]


def log_of(cluster: RunningCluster, node_id: int) -> PartitionLog:
    found = cluster.servers[node_id].replicas.partition("t", 0)
    assert found is not None
    return found.log


def write(cluster: RunningCluster, value: bytes, acks: int = -1) -> None:
    with cluster.client(state(cluster).leader) as client:
        assert produce(client, "t", batch(value), acks=acks).error_code == 0


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
            assert size > 8192          # the broker had already begun the reply
    cluster.until(lambda: state(cluster).leader != leader, "another one leads")
    write(cluster, b"after")            # then the records before it are committed
    with cluster.client(state(cluster).leader) as client:
        assert values(fetch(client, "t")) == [b"a" * size, b"b" * size, b"after"]
    cluster.until(lambda: set(state(cluster).isr) == {1, 2, 3}, "it is in sync again")
    assert any(name.endswith(".quarantine") for name in disk.names)


def test_the_only_replica_goes_on_trying(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    """No other broker has the records, and the disk may recover."""
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


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_what_a_start_cannot_read_is_fetched_again(
    cluster: RunningCluster, disks: dict[int, FaultyDisk], clean: bool
) -> None:
    assert create(cluster, 1, "t", 1, 3) == 0
    write(cluster, b"a")
    node_id = next(n for n in (2, 3) if n != state(cluster).leader)
    cluster.until(lambda: log_of(cluster, node_id).log_end_offset == 1, "all have it")
    cluster.stop(node_id)
    disk = disks[node_id]
    disk.unreadable.add(disk.inode(FIRST))
    if not clean:
        disk.unlink("/data/.kafka_cleanshutdown")
    write(cluster, b"b")
    cluster.start(node_id)
    cluster.until(lambda: set(state(cluster).isr) == {1, 2, 3}, "it is in sync again")
    assert any(name.endswith(".quarantine") for name in disk.names)
    assert values_of(log_of(cluster, node_id)) == [b"a", b"b"]


def test_the_only_copy_is_offline_until_its_disk_reads_it_again(
    tmp_path: Path, disks: dict[int, FaultyDisk]
) -> None:
    """The log is not replaced. If it were served as an empty log, new records would get the old
    records' offsets."""
    with running(tmp_path, disks, 1) as cluster:
        assert create(cluster, 1, "t", 1, 2) == 0
        write(cluster, b"a")
        one, other = state(cluster).replicas
        cluster.until(lambda: log_of(cluster, other).log_end_offset == 1, "both have it")
        cluster.stop(other)
        write(cluster, b"b")
        assert state(cluster).isr == (one,)
        cluster.stop(one)
        disk = disks[one]
        disk.unreadable.add(disk.inode(FIRST))
        disk.unlink("/data/.kafka_cleanshutdown")
        cluster.start(one)
        cluster.until(lambda: (state(cluster).extra or NOTHING).offline == (one,), "it is reported")
        cluster.start(other)
        assert (state(cluster).leader, state(cluster).isr) == (-1, (one,))
        cluster.stop(one)
        disk.unreadable.clear()
        cluster.start(one)
        cluster.until(lambda: set(state(cluster).isr) == {one, other}, "both are in sync")
        for node_id in (one, other):
            assert values_of(log_of(cluster, node_id)) == [b"a", b"b"]
