"""A broker starts with a log directory that its last run did not have, such as a disk that was not
mounted then. The directory's data are older than the other brokers expect."""

from __future__ import annotations

from pathlib import Path

from ottla.log.storage import run_record
from ottla.log.storage.log_directory import META
from ottla.replication.metadata import NO_LEADER, PartitionState
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values


def state(cluster: RunningCluster) -> PartitionState:
    found = cluster.servers[max(cluster.servers)].metadata_log.image.topics["t"].partitions[0]
    assert isinstance(found, PartitionState)
    return found


def led(cluster: RunningCluster, *nodes: int) -> None:
    cluster.until(lambda: set(state(cluster).isr) == {*nodes} and state(cluster).leader in nodes,
                  f"{nodes} are in sync")


def written(cluster: RunningCluster, value: bytes) -> None:
    with cluster.client(state(cluster).leader) as client:
        assert produce(client, "t", batch(value)).error_code == 0


def restart_without_its_id(cluster: RunningCluster, *missing: str) -> None:
    """Restart the broker without the directory.id in its directory, which then gets another id, and
    without the files `missing`."""
    cluster.stop(1)
    directory = cluster.directory / "broker-1"
    lines = (directory / META).read_text().splitlines()
    kept = [each for each in lines if not each.startswith("directory.id")]
    (directory / META).write_text("\n".join(kept) + "\n")
    for name in missing:
        (directory / name).unlink()
    cluster.start(1)


def test_an_only_copy_is_not_led_from_an_older_disk(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        assert create(cluster, 1, "t", 1, 2) == 0
        led(cluster, 1, 2)
        written(cluster, b"old")
        cluster.stop(1)
        cluster.start(1, log_dirs=tmp_path / "not mounted")
        led(cluster, 1, 2)
        cluster.stop(2)
        led(cluster, 1)
        written(cluster, b"acknowledged")
        cluster.stop(1)
        cluster.start(1)
        cluster.start(2)
        cluster.until(lambda: len(cluster.servers[2].metadata_log.image.brokers) == 2, "both")
        cluster.leap(10)
        assert state(cluster).leader == NO_LEADER, "it has not what was acknowledged last"
        extra = state(cluster).extra
        assert extra is not None and extra.lost == (1,)


def test_a_replica_on_an_older_disk_follows_those_that_went_on(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        assert create(cluster, 1, "t", 1, 2) == 0
        led(cluster, 1, 2)
        written(cluster, b"old")
        cluster.stop(1)
        cluster.start(1, log_dirs=tmp_path / "not mounted")
        led(cluster, 1, 2)
        written(cluster, b"newer")
        cluster.stop(1)
        cluster.start(1)
        led(cluster, 1, 2)
        partition = cluster.servers[1].replicas.partition("t", 0)
        assert partition is not None and partition.log.log_end_offset == 2


def test_a_directory_whose_meta_properties_was_made_anew_is_known_by_its_run(
    tmp_path: Path,
) -> None:
    """The message about a damaged meta.properties says to copy another directory's file without its
    directory.id. The directory then gets another id."""
    with RunningCluster(tmp_path, 1) as cluster:
        assert create(cluster, 1, "t", 1, 1) == 0
        led(cluster, 1)
        written(cluster, b"kept")
        restart_without_its_id(cluster)
        led(cluster, 1)
        with cluster.client(1) as client:
            assert values(fetch(client, "t")) == [b"kept"]
        restart_without_its_id(cluster, run_record.RUN)
        assert state(cluster).leader == NO_LEADER, "nobody knows of what time it is"
