"""A log directory of one of three brokers fails. Other brokers lead its partitions, the broker goes
on with its other directories, and a restart on a mended disk brings everything back in sync."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.http.server import all_metrics
from ottla.log.files.disk import Disk
from ottla.log.storage import run_record
from ottla.replication.metadata import PartitionState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.topics import metadata
from tests.log.faulty_disk import FaultyDisk

PARTITIONS = 6


@pytest.fixture
def disks() -> dict[int, FaultyDisk]:
    return {node_id: FaultyDisk(node_id) for node_id in (1, 2, 3)}


@pytest.fixture
def cluster(tmp_path: Path, disks: dict[int, Disk]) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 3, disks, log_dirs="/a,/b", min_insync_replicas=2) as running:
        yield running


def state(cluster: RunningCluster, node_id: int, index: int) -> PartitionState:
    return cluster.servers[node_id].metadata_log.image.topics["t"].partitions[index]


def in_directory(cluster: RunningCluster, node_id: int, path: str) -> list[int]:
    homes = cluster.servers[node_id].storage.homes
    return [n for n in range(PARTITIONS) if homes["t", n].path == path]


def fill(cluster: RunningCluster, value: bytes) -> None:
    """Produce one record with acks=all to each partition."""
    for index in range(PARTITIONS):
        with cluster.client(state(cluster, 1, index).leader) as client:
            assert produce(client, "t", batch(value), partition=index).error_code == 0


def fail(cluster: RunningCluster, disk: FaultyDisk, node_id: int, path: str) -> None:
    """Make a directory fail at a write to a partition that the broker leads there."""
    index = next(
        n for n in in_directory(cluster, node_id, path)
        if state(cluster, node_id, n).leader == node_id
    )
    with cluster.client(node_id) as client:
        disk.failing, disk.errors = f"{path}/", {"write": errno.EIO}
        code = produce(client, "t", batch(b"fails"), partition=index, acks=1).error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.errors = {}


def test_others_lead_what_was_in_a_failed_directory_and_the_broker_serves_the_rest(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    fill(cluster, b"before")
    fail(cluster, disks[2], 2, "/b")
    gone, kept = in_directory(cluster, 2, "/b"), in_directory(cluster, 2, "/a")
    assert gone and kept
    for node_id in (1, 2, 3):
        cluster.until(
            lambda n=node_id: all(
                2 not in state(cluster, n, i).isr and state(cluster, n, i).leader in (1, 3)
                for i in gone
            ),
            "other brokers' replicas lead",
        )
        assert all(2 in state(cluster, node_id, index).isr for index in kept)
        with cluster.client(node_id) as client:
            told = metadata(client, "t")
            assert all(told[i].offline_replicas == [2] and not told[i].error_code for i in gone)
            assert all(told[i].offline_replicas == [] for i in kept)
    with cluster.client(2) as client:
        described = client.call(DescribeLogDirsRequest(topics=None), 4).results
        assert {d.log_dir: d.error_code for d in described} == {
            "/a": 0, "/b": ErrorCode.KAFKA_STORAGE_ERROR
        }
    fill(cluster, b"after")                     # acks=all needs only two replicas in sync
    failure = cluster.servers[2].failure
    assert not failure.done()
    # The broker starts on the mended disk with the earlier records, fetches the later ones, and is
    # in sync again.
    cluster.stop(2)
    cluster.start(2)
    for node_id in (1, 2, 3):
        cluster.until(
            lambda n=node_id: all(
                set(state(cluster, n, i).isr) == {1, 2, 3} and state(cluster, n, i).extra is None
                for i in range(PARTITIONS)
            ),
            "all replicas are in sync again",
        )
    for index in range(PARTITIONS):
        logs = []
        for server in cluster.servers.values():
            partition = server.replicas.partition("t", index)
            assert partition is not None
            logs.append(partition.log.read_bytes(0, 1 << 20))
        assert logs[0] == logs[1] == logs[2] and b"before" in logs[0] and b"after" in logs[0]


def test_a_controller_whose_directory_fails_gives_away_what_it_led_there(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    node_id = cluster.controller
    fail(cluster, disks[node_id], node_id, "/a")
    gone = in_directory(cluster, node_id, "/a")
    cluster.until(
        lambda: all(
            state(cluster, node_id, i).leader not in (-1, node_id)
            and (extra := state(cluster, node_id, i).extra) and extra.offline == (node_id,)
            for i in gone
        ),
        "it decides that others lead",
    )
    assert cluster.controller == node_id


def test_an_only_copy_in_a_failed_directory_waits_for_it(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    assert create(cluster, 1, "t", PARTITIONS, 1) == 0
    fill(cluster, b"kept")
    homes = cluster.servers[3].storage.homes
    mine = [n for n in range(PARTITIONS) if state(cluster, 1, n).leader == 3]
    path = homes["t", mine[0]].path
    with cluster.client(3) as client:
        disks[3].failing, disks[3].errors = f"{path}/", {"write": errno.EIO}
        code = produce(client, "t", batch(b"x"), partition=mine[0], acks=1).error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
    disks[3].errors = {}
    cluster.until(lambda: state(cluster, 1, mine[0]).leader == -1, "it has no leader")
    assert state(cluster, 1, mine[0]).isr == (3,)
    with cluster.client(1) as client:
        assert metadata(client, "t")[mine[0]].offline_replicas == [3]
    cluster.stop(3)
    cluster.start(3)
    cluster.until(lambda: state(cluster, 1, mine[0]).leader == 3, "it leads again")
    with cluster.client(3) as client:
        assert values(fetch(client, "t", partition=mine[0])) == [b"kept"]


def test_a_broker_with_a_failed_directory_names_coordinators_on_other_brokers(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    ask = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(40)])
    with cluster.client(2) as client:
        client.call(ask, 4)
        fail(cluster, disks[2], 2, "/b")
        image = cluster.servers[2].metadata_log
        cluster.until(
            lambda: any(s.extra for s in image.image.topics["__consumer_offsets"].partitions)
            and all(s.leader >= 0 for s in image.image.topics["__consumer_offsets"].partitions),
            "others coordinate",
        )
        answers = client.call(ask, 4).coordinators
        assert {each.error_code for each in answers} == {0}


def test_a_broker_whose_last_directory_fails_ends_once_the_others_know(
    tmp_path: Path, disks: dict[int, FaultyDisk]
) -> None:
    """The run record cannot be removed from a failed disk, and says that only the process died.
    Without the broker's report the controller would trust the next start's logs, although the disk
    has lost records."""
    with RunningCluster(tmp_path, 3, disks, log_dirs="/a", min_insync_replicas=2) as cluster:
        assert create(cluster, 1, "t", PARTITIONS, 3) == 0
        fill(cluster, b"before")
        index = next(n for n in range(PARTITIONS) if state(cluster, 2, n).leader == 2)
        failing = dict.fromkeys(("write", "name"), errno.EIO)
        with cluster.client(2) as client:
            disks[2].failing, disks[2].errors = "/a/", failing
            code = produce(client, "t", batch(b"fails"), partition=index, acks=1).error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
        failure = cluster.servers[2].failure
        cluster.until(failure.done, "the broker ends")
        assert "the last log directory has failed" in failure.result()
        image = cluster.servers[2].metadata_log.image
        for partition in image.topics["t"].partitions:
            assert 2 not in partition.isr and partition.leader in (1, 3)
            assert partition.extra is not None and partition.extra.offline == (2,)
        assert disks[2].exists("/a/ottla-run")
        cluster.stop(2)
        disks[2].errors = {}
        cluster.start(2)
        cluster.until(
            lambda: all(len(state(cluster, 1, n).isr) == 3 for n in range(PARTITIONS)), "it is back"
        )
        assert all(state(cluster, 1, n).extra is None for n in range(PARTITIONS))


def test_a_new_session_does_not_vouch_for_a_directory_that_has_failed(
    cluster: RunningCluster, disks: dict[int, FaultyDisk]
) -> None:
    """If a broker is killed before the controller has heard of the failure, its next start judges
    the directory by the run record alone."""
    assert create(cluster, 1, "t", PARTITIONS, 3) == 0
    fill(cluster, b"before")
    fail(cluster, disks[2], 2, "/b")
    cluster.until(lambda: not disks[2].exists("/b/ottla-run"), "the record is gone")
    server = cluster.servers[2]
    before = server.metadata_log.image.brokers[2].epoch
    cluster.expire(2)
    cluster.until(
        lambda: (b := server.metadata_log.image.brokers.get(2)) and b.epoch > before,
        "it is registered again",
    )
    record = run_record.read(disks[2], "/a")
    assert record is not None and record.epoch > before
    assert not disks[2].exists("/b/ottla-run")


def test_a_directory_may_be_asked_for_before_the_replica_is_there(
    cluster: RunningCluster,
) -> None:
    """kafka-reassign-partitions moves a replica to a broker and into a directory with one plan. It
    retries the move into the directory after REPLICA_NOT_AVAILABLE, but fails after other codes."""
    assert create(cluster, 1, "t", 1, 1) == 0
    cluster.until(lambda: all("t" in s.metadata_log.image.topics
                              for s in cluster.servers.values()), "all know the topic")
    others = {1, 2, 3} - {state(cluster, 1, 0).leader}
    for node_id, topic, index, code in (
        *((node, "t", 0, ErrorCode.REPLICA_NOT_AVAILABLE) for node in others),
        (1, "t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, "nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        wanted = AlterReplicaLogDirsRequest.Dir(path="/a", topics=[
            AlterReplicaLogDirsRequest.Dir.Topic(name=topic, partitions=[index])
        ])
        with cluster.client(node_id) as client:
            answer = client.call(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
        assert answer.results[0].partitions[0].error_code == code


def test_replicas_in_a_failed_directory_are_taken_off_the_leaders_only_where_they_lead(
    tmp_path: Path, disks: dict[int, FaultyDisk]
) -> None:
    settings: dict[str, object] = {"log.dirs": "/a,/b", "ottla.http.listener": "127.0.0.1:0"}
    with RunningCluster(tmp_path, 3, dict(disks), **settings) as cluster:
        assert create(cluster, 1, "t", PARTITIONS, 3) == 0
        fill(cluster, b"before")
        fail(cluster, disks[2], 2, "/b")
        gone = in_directory(cluster, 2, "/b")
        cluster.until(
            lambda: all(state(cluster, 2, index).leader != 2 for index in gone), "others lead"
        )
        server = cluster.servers[2]
        led = [index for index in range(PARTITIONS) if state(cluster, 2, index).leader == 2]
        assert led and server.http is not None
        monitor = server.http.monitor

        async def metrics() -> str:
            return "".join(all_metrics(monitor))

        found = cluster.run(metrics())
        assert f"\nkafka_server_replicamanager_leadercount {len(led)}\n" in found
        assert f"\nkafka_server_replicamanager_offlinereplicacount {len(gone)}\n" in found
