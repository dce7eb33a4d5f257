"""Which brokers and log directories a cluster refuses, and which wait for a former session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.cluster_store import CLUSTER_ID
from ottla.replication.coordination import Create, Delete
from tests.broker.cluster.running_cluster import (
    RunningCluster,
    create,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        yield running



def test_of_two_brokers_with_one_id_the_second_is_refused(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    with pytest.raises(StorageRefused, match=r"node\.id=2 is registered"):
        cluster.start(
            2, log_dirs=tmp_path / "other", listeners="PLAINTEXT://127.0.0.1:0",
            initial_broker_registration_timeout_ms=1,
        )
    assert sorted(cluster.servers[1].metadata_log.image.brokers) == [1, 2, 3]


def test_a_broker_with_an_empty_disk_waits_for_the_end_of_its_former_session(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's former process was killed, and its session has not timed out yet."""
    assert create(cluster, 1, "t", 3, 3) == 0
    former = cluster.servers.pop(2)
    incarnation = former.session.incarnation if former.session is not None else ""

    async def stopped_without_a_word() -> None:
        former.session.coordination.stop = nothing       # type: ignore[union-attr,method-assign]
        await former.stop()

    async def nothing() -> None:
        """Leave the session open."""

    async def expires_later() -> None:
        session_id = cluster.sessions[2].session_id
        cluster.loop.call_later(1.5, cluster.zookeeper.expire, session_id)

    cluster.run(stopped_without_a_word())
    cluster.run(expires_later())
    again = cluster.start(2, log_dirs=tmp_path / "empty disk")
    assert again.metadata_log.image.brokers[2].incarnation != incarnation
    told = [each for each in caplog.messages if "its session with ZooKeeper ends soon" in each]
    assert len(told) == 1 and "node.id=2 is registered" in told[0]
    cluster.until(
        lambda: all(
            set(state.isr) == {1, 2, 3}
            for state in cluster.servers[1].metadata_log.image.topics["t"].partitions
        ),
        "it has copied everything",
    )


def test_a_directory_of_another_cluster_or_of_a_broker_alone_is_refused(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "a", 1) as first:
        first.stop(1)
        with RunningCluster(tmp_path / "b", 1) as second:
            with pytest.raises(StorageRefused, match="belongs to the cluster"):
                second.start(2, log_dirs=tmp_path / "a" / "broker-1")
            with pytest.raises(StorageRefused, match=r"node\.id=1, but this broker has node\.id=2"):
                first.start(2, log_dirs=tmp_path / "a" / "broker-1")
            with pytest.raises(StorageRefused, match="belongs to a broker of a cluster"):
                first.start(1, zookeeper_connect="")
        alone = first.start(3, zookeeper_connect="", log_dirs=tmp_path / "alone")
        first.run(alone.stop())
        del first.servers[3], first.sessions[3]
        with pytest.raises(StorageRefused, match="alone"):
            first.start(3, log_dirs=tmp_path / "alone")
        first.start(1)


def test_a_zookeeper_that_lost_its_data_or_is_kafkas_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    with RunningCluster(tmp_path, 1) as cluster:
        cluster.stop(1)
        cluster.zookeeper.multi(0, [Delete(CLUSTER_ID)])
        with pytest.raises(StorageRefused, match="is empty"):
            cluster.start(1)
        assert CLUSTER_ID not in cluster.zookeeper.nodes
        cluster.zookeeper.multi(0, [Create("/brokers/topics")])
        with pytest.raises(StorageRefused, match="Apache Kafka"):
            cluster.start(2)
        assert not cluster.zookeeper.sessions, "no session is left behind"


def test_a_zookeeper_that_was_restored_from_a_backup_is_refused(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        backup, zxid = dict(cluster.zookeeper.nodes), cluster.zookeeper.zxid
        assert create(cluster, 1, "t", 1, 2) == 0
        cluster.stop(2)
        cluster.stop(1)
        newest = dict(cluster.zookeeper.nodes), cluster.zookeeper.zxid
        ephemeral = {path for path, node in backup.items() if node.stat.owner}
        cluster.zookeeper.nodes = {p: n for p, n in backup.items() if p not in ephemeral}
        cluster.zookeeper.zxid = zxid
        with pytest.raises(StorageRefused, match="restored from a backup"):
            cluster.start(1)
        cluster.zookeeper.nodes, cluster.zookeeper.zxid = newest
        cluster.start(1)
        assert "t" in cluster.servers[1].metadata_log.image.topics
