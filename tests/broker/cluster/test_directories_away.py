"""A broker starts with other log directories than in its last run, because a disk is new, or was
missing at an earlier start. No directory has outdated data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cluster.last_run import FoundLogs, judge
from ottla.log.storage import run_record
from ottla.log.storage.log_directory import META
from ottla.replication.metadata import NO_LEADER, BrokerImage, PartitionState
from ottla.replication.registration import Registration, decode, encode
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.log.faulty_disk import FaultyDisk

PARTITIONS = 4


def state(cluster: RunningCluster, index: int = 0) -> PartitionState:
    server = cluster.servers[max(cluster.servers)]
    found = server.metadata_log.image.topics["t"].partitions[index]
    assert isinstance(found, PartitionState)
    return found


def two_directories(cluster: RunningCluster) -> str:
    return f"{cluster.directory / 'a'},{cluster.directory / 'b'}"


def directory_id(path: Path) -> str:
    lines = (path / META).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)["directory.id"]


def filled(cluster: RunningCluster) -> set[int]:
    """Create a topic on broker 1 with a record in each partition; returns the partitions that are
    in directory b."""
    assert create(cluster, 1, "t", PARTITIONS, 1) == 0
    with cluster.client(1) as client:
        for index in range(PARTITIONS):
            assert produce(client, "t", batch(b"%d" % index), partition=index).error_code == 0
    there = {int(each.name[2:]) for each in (cluster.directory / "b").glob("t-*")}
    assert there and len(there) < PARTITIONS
    return there


def restart(cluster: RunningCluster, node_id: int, **overrides: Any) -> None:
    cluster.stop(node_id)
    cluster.start(node_id, **overrides)


def test_one_more_disk_takes_no_trust_from_logs_without_records(tmp_path: Path) -> None:
    """A log's files are created with its first record, so an empty log is in no directory."""
    with RunningCluster(tmp_path, 1) as cluster:
        assert create(cluster, 1, "t", PARTITIONS, 1) == 0
        former = cluster.directory / "broker-1"
        restart(cluster, 1, log_dirs=f"{former},{tmp_path / 'new'}")
        cluster.until(lambda: leaders(cluster.servers[1], "t") == [1] * PARTITIONS, "all are led")


def test_an_only_copy_is_led_again_once_its_disk_is_mounted_again(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 0) as cluster:
        cluster.start(1, log_dirs=two_directories(cluster))
        there = filled(cluster)
        cluster.stop(1)
        (tmp_path / "b").rename(tmp_path / "unmounted")
        for _ in range(2):
            cluster.start(1, log_dirs=two_directories(cluster))
            server = cluster.servers[1]
            cluster.until(
                lambda s=server: {n for n, leader in enumerate(leaders(s, "t"))
                                  if leader == NO_LEADER} == there, "those in it are not led")
            cluster.stop(1)
        assert not (tmp_path / "b" / run_record.RUN).exists(), "no run was on it"
        (tmp_path / "b").rename(tmp_path / "mount point")
        (tmp_path / "unmounted").rename(tmp_path / "b")
        server = cluster.start(1, log_dirs=two_directories(cluster))
        cluster.until(lambda: leaders(server, "t") == [1] * PARTITIONS, "all are led")
        with cluster.client(1) as client:
            for index in range(PARTITIONS):
                assert values(fetch(client, "t", partition=index)) == [b"%d" % index]


def test_a_disk_that_is_given_up_after_a_start_without_it_is_not_led_from_anew(
    tmp_path: Path,
) -> None:
    with RunningCluster(tmp_path, 0) as cluster:
        cluster.start(1, log_dirs=two_directories(cluster))
        there = filled(cluster)
        given_up = directory_id(tmp_path / "b")
        cluster.stop(1)
        (tmp_path / "b").rename(tmp_path / "lost")
        cluster.start(1, log_dirs=tmp_path / "a")
        restart(cluster, 1, log_dirs=tmp_path / "a", ottla_forget_directories=given_up)
        for index in range(PARTITIONS):
            leader, extra = state(cluster, index).leader, state(cluster, index).extra
            assert leader == (NO_LEADER if index in there else 1)
            assert (extra is not None and extra.lost == (1,)) == (index in there)


def test_a_copy_on_a_disk_that_was_away_is_better_than_one_that_left_the_in_sync_set(
    tmp_path: Path,
) -> None:
    """Broker 1 lacks the last records, so it must not lead while the disk is away or afterwards."""
    with RunningCluster(tmp_path, 1) as cluster:
        cluster.start(2, log_dirs=two_directories(cluster))
        assert create(cluster, 1, "t", PARTITIONS, 2) == 0
        cluster.until(lambda: {len(state(cluster, n).isr) for n in range(4)} == {2}, "in sync")
        cluster.stop(1)
        with cluster.client(2) as client:
            for index in range(PARTITIONS):
                assert produce(client, "t", batch(b"%d" % index), partition=index).error_code == 0
        there = {int(each.name[2:]) for each in (tmp_path / "b").glob("t-*")}
        assert there and len(there) < PARTITIONS
        cluster.stop(2)
        (tmp_path / "b").rename(tmp_path / "unmounted")
        cluster.start(2, log_dirs=tmp_path / "a")
        cluster.start(1)
        for _ in range(2):
            for _ in range(10):
                cluster.leap(1)
                assert all(state(cluster, index).leader != 1 for index in there)
            cluster.until(
                lambda: {state(cluster, index).leader for index in there} == {NO_LEADER}, "offline")
            restart(cluster, 2, log_dirs=tmp_path / "a")
        cluster.stop(2)
        (tmp_path / "unmounted").rename(tmp_path / "b")
        server = cluster.start(2, log_dirs=two_directories(cluster))

        def led() -> bool:
            cluster.leap(1)
            return NO_LEADER not in leaders(server, "t")

        cluster.until(led, "all are led")
        assert {state(cluster, index).leader for index in there} == {2}


def test_a_disk_that_is_newer_than_a_restored_zookeeper_is_not_of_an_earlier_time(
    tmp_path: Path,
) -> None:
    found = FoundLogs({"new": "/new"}, homes={"t-0": "/new"})
    known = BrokerImage(1, 7, (), None, "former", ("old",))
    disk = FaultyDisk()
    disk.makedirs("/new")
    run_record.write(disk, "/new", run_record.RunRecord(9, disk.boot_id(), "true", clean=True))
    assert judge(disk, found, known, adopts=False).lost == ("t-0",)
    last = judge(disk, found, known, adopts=True)
    assert (last.stop, last.lost) == (run_record.MACHINE, ()), "the longest log leads"


def test_a_directory_with_another_id_has_lost_nothing(tmp_path: Path) -> None:
    """The former id is treated as that of a missing directory until the operator gives it up."""
    with RunningCluster(tmp_path, 1) as cluster:
        assert create(cluster, 1, "t", PARTITIONS, 1) == 0
        cluster.stop(1)
        meta = cluster.directory / "broker-1" / META
        former = directory_id(meta.parent)
        meta.write_text(meta.read_text().replace(f"directory.id={former}\n", ""))
        cluster.start(1)
        restart(cluster, 1, ottla_forget_directories=former)
        cluster.until(lambda: leaders(cluster.servers[1], "t") == [1] * PARTITIONS, "all are led")


def test_the_loss_of_a_large_disk_takes_no_trust_from_the_others() -> None:
    """The lost disk has thousands of partitions. An only copy on another disk is still served."""
    disk, known = FaultyDisk(), BrokerImage(1, 7, (), None, "former", ("lost", "here"))
    disk.makedirs("/here")
    run_record.write(disk, "/here", run_record.RunRecord(7, disk.boot_id(), "true", clean=True))
    lost = [f"a-topic-with-quite-a-name-{n // 10}-{n % 10}" for n in range(5000)]
    last = judge(disk, FoundLogs({"here": "/here"}, missing=lost), known, adopts=False)
    assert (last.stop, last.lost) == (run_record.CLEAN, tuple(lost))
    registration = Registration(1, "i", (), ("here",), None, last.stop, {}, last.lost)
    assert decode(1, encode(registration)) == registration
    many = [f"{'t' * 245}{n}-0" for n in range(5000)]
    last = judge(disk, FoundLogs({"here": "/here"}, missing=many), known, adopts=False)
    assert (last.stop, last.lost) == (run_record.LOST, ()), "the names do not fit into a node"


@pytest.mark.parametrize("reported", [True, False])
def test_a_directory_that_failed_before_the_last_run_takes_no_trust_from_the_others(
    reported: bool,
) -> None:
    """The failed directory has no run record. If its failure was reported, the metadata already
    list its logs as offline, so no other log is doubted."""
    disk, known = FaultyDisk(), BrokerImage(1, 7, (), None, "former", ("here",))
    for path in ("/here", "/mended"):
        disk.makedirs(path)
    record = run_record.RunRecord(7, disk.boot_id(), "true", clean=True, away=("mended",))
    run_record.write(disk, "/here", record)
    found = FoundLogs(
        {"here": "/here", "mended": "/mended"}, homes={"t-0": "/here", "t-1": "/mended"},
        offline={"t-1"} if reported else (),
    )
    last = judge(disk, found, known, adopts=False)
    assert (last.stop, last.lost) == (
        run_record.CLEAN if reported else run_record.MACHINE, ())
