"""One log directory: to which broker it belongs, and which entries of its checkpoints still
apply."""

from __future__ import annotations

import pytest

from ottla.log.files import checkpoints, closed_logs, topic_ids
from ottla.log.files.closed_logs import ClosedLog
from ottla.log.files.names import partition_metadata
from ottla.log.storage.log_directory import (
    CLEAN_MARKER,
    META,
    TORN_ID,
    LogDirectory,
    StorageRefused,
)
from tests.log.faulty_disk import FaultyDisk

T, U = b"t" * 16, b"u" * 16


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.makedirs("/d")
    return disk


def meta(disk: FaultyDisk, text: bytes) -> LogDirectory:
    disk.write_atomically(f"/d/{META}", text)
    return LogDirectory(disk, "/d/")


OURS = b"version=1\ncluster.id=c\nnode.id=3\ndirectory.id=x\n"


def test_a_directory_is_identified_once(disk: FaultyDisk) -> None:
    directory = meta(disk, OURS)
    operations = disk.operations
    directory.identify(3, "c")
    assert (directory.path, directory.cluster_id, directory.directory_id) == ("/d", "c", "x")
    assert disk.operations == operations, "what is written already is not written again"
    directory.identify(3, None)
    for node_id, cluster_id in ((4, "c"), (3, "other")):
        with pytest.raises(StorageRefused, match="this broker has"):
            directory.identify(node_id, cluster_id)
    with pytest.raises(StorageRefused, match="belongs to a standalone broker"):
        directory.identify(3, "c", clustered=True)


def test_a_new_directory_gets_its_ids(disk: FaultyDisk) -> None:
    directory = LogDirectory(disk, "/d")
    directory.identify(3, None)
    assert directory.cluster_id and directory.directory_id != directory.cluster_id
    assert checkpoints.decode_properties(disk.read_bytes(f"/d/{META}")) == {
        "version": "1", "node.id": "3", "cluster.id": directory.cluster_id,
        "directory.id": directory.directory_id,
    }
    other = LogDirectory(disk, "/e")
    other.identify(3, "c", clustered=True)
    assert other.cluster_id == "c"
    assert other.known_ids()["ottla.metadata"] == "zookeeper"
    other.identify(3, "c", clustered=True)


def test_files_of_older_brokers_are_understood(disk: FaultyDisk) -> None:
    directory = meta(disk, b"version=0\nbroker.id=3\ncluster.id=c\n")
    directory.identify(3, "c")
    assert directory.known_ids() == {
        "version": "1", "cluster.id": "c", "node.id": "3", "directory.id": directory.directory_id}
    directory = meta(disk, b"broker.id=3\ncluster.id=c\n")
    with pytest.raises(StorageRefused, match=r"says node.id=3, but this broker has node.id=4"):
        directory.identify(4, "c")


@pytest.mark.parametrize("text", [
    b"", b"version=1\ncluster.id=c\n", b"version=1\nnode.id=3\n", b"\xff",
    b"version=2\ncluster.id=c\nnode.id=3\n", b"version=1\ncluster.id=\nnode.id=3\n",
])
def test_a_damaged_file_makes_no_new_cluster(disk: FaultyDisk, text: bytes) -> None:
    with pytest.raises(StorageRefused, match="is damaged"):
        meta(disk, text).identify(3, None)


def test_a_directory_in_another_state_says_so(disk: FaultyDisk) -> None:
    directory = LogDirectory(disk, "/d")
    assert (directory.state, directory.known) == ("ok", True)
    directory.space.refusal = "no room"
    assert directory.state == "full"
    directory.offline = "the disk is gone"
    assert directory.state == "the disk is gone"
    missing = LogDirectory.unusable(disk, "/m/", OSError("why"))
    assert missing.state == "log directory /m could not be opened: why" and not missing.known
    missing.close()


def test_what_was_not_finished_is_deleted(disk: FaultyDisk) -> None:
    names = ["t-0", "t-0.1f-delete", "u-1.2f-future", "v-0.3f-stray", "plain", "w-12"]
    for name in names:
        disk.makedirs(f"/d/{name}")
    directory = LogDirectory(disk, "/d")
    assert directory.partitions == {("t", 0), ("w", 12)}
    assert sorted(directory.deleted()) == ["/d/t-0.1f-delete", "/d/u-1.2f-future"]


@pytest.mark.parametrize(("recovery", "watermark", "start", "expected"), [
    (9, 7, 0, 7), (7, 9, 0, 7), (7, 7, 6, 7), (7, 7, 7, 0), (7, 0, 0, 0), (0, 7, 0, 0),
])
def test_what_was_durable_and_committed_cannot_be_lost(
    disk: FaultyDisk, recovery: int, watermark: int, start: int, expected: int
) -> None:
    directory, key = LogDirectory(disk, "/d"), ("t", 0)
    assert directory.written_upto(key) == 0
    directory.recovery_points[key], directory.high_watermarks[key] = recovery, watermark
    directory.log_starts[key] = start
    assert directory.written_upto(key) == expected


def with_checkpoints(disk: FaultyDisk, ids: dict[str, bytes | None] | None) -> LogDirectory:
    offsets = {("t", 0): 5, ("u", 0): 6}
    disk.write_atomically(f"/d/{checkpoints.RECOVERY_POINTS}", checkpoints.encode_offsets(offsets))
    disk.write_atomically(f"/d/{checkpoints.LOG_STARTS}", checkpoints.encode_offsets(offsets))
    if ids is not None:
        disk.write_atomically(f"/d/{topic_ids.TOPIC_IDS}", topic_ids.encode(ids))
    return LogDirectory(disk, "/d")


def test_entries_of_topics_that_were_not_noted_do_not_count(disk: FaultyDisk) -> None:
    directory = with_checkpoints(disk, {"t": T})
    assert directory.recovery_points == directory.log_starts == {("t", 0): 5}
    assert directory.topic_ids == {"t": T}
    operations = disk.operations
    directory.remember_topics()
    assert disk.operations == operations


def test_checkpoints_of_kafka_are_of_the_topics_in_the_directories(disk: FaultyDisk) -> None:
    disk.makedirs("/d/t-0")
    disk.write_atomically("/d/t-0/partition.metadata", partition_metadata(T))
    directory = with_checkpoints(disk, None)
    assert directory.topic_ids == {"t": T, "u": None} and len(directory.recovery_points) == 2
    directory.remember_topics()
    assert topic_ids.decode(disk.read_bytes(f"/d/{topic_ids.TOPIC_IDS}")) == {"t": T, "u": None}
    assert directory.written_ids == {"t": T, "u": None}


def test_a_topic_claims_the_entries_that_may_be_its_own(disk: FaultyDisk) -> None:
    directory = with_checkpoints(disk, {"t": T, "u": None})
    directory.claim("t", None)
    directory.claim("t", T)
    assert directory.topic_ids["t"] == T and ("t", 0) in directory.recovery_points
    directory.claim("u", U)
    assert directory.topic_ids["u"] == U and ("u", 0) in directory.recovery_points
    directory.claim("t", U)
    assert directory.topic_ids["t"] == U
    assert ("t", 0) not in directory.recovery_points and ("t", 0) not in directory.log_starts
    directory.claim("v", None)
    assert directory.topic_ids["v"] is None
    directory.forget_topics({"u"})
    assert directory.recovery_points == {} and directory.topic_ids.keys() == {"t", "v"}


@pytest.mark.parametrize(("text", "topic_id"), [
    (partition_metadata(T), T), (b"", TORN_ID), (b"version: 0\n", TORN_ID), (b"\xff", TORN_ID),
    (b"topic_id: AAAA\n", TORN_ID), (b"topic_id: A\n", TORN_ID), (None, None),
])
def test_the_id_in_a_partitions_directory_is_whole_or_torn_or_missing(
    disk: FaultyDisk, text: bytes | None, topic_id: bytes | None
) -> None:
    disk.makedirs("/d/t-0")
    if text is not None:
        disk.write_atomically("/d/t-0/partition.metadata", text)
    directory = LogDirectory(disk, "/d")
    assert directory.topic_id(("t", 0)) == topic_id
    for wanted, fits in ((T, True), (U, topic_id != T), (None, True)):
        assert directory.is_of(("t", 0), wanted) is fits
    directory.written_ids = {"t": U}
    assert directory.is_of(("t", 0), U) is (topic_id != T)
    assert directory.is_of(("t", 0), T) is (topic_id != TORN_ID)


def test_the_state_of_closed_logs_counts_after_a_clean_stop_that_nobody_touched(
    disk: FaultyDisk,
) -> None:
    closed = {("t", 0): ClosedLog(T, 0, 5, 0, 1, 9, 1), ("u", 0): ClosedLog(U, 0, 7, 0, 1, 9, 1),
              ("gone", 0): ClosedLog(T, 0, 5, 0, 1, 9, 1)}
    for name in ("t-0", "u-0"):
        disk.makedirs(f"/d/{name}")
    disk.write_atomically(f"/d/{closed_logs.CLOSED_LOGS}", closed_logs.encode(closed))
    assert with_checkpoints(disk, {"t": T, "u": U}).closed == {}
    disk.write_atomically(f"/d/{CLEAN_MARKER}", b"")
    directory = LogDirectory(disk, "/d")
    assert directory.clean and directory.closed == {("t", 0): closed["t", 0]}
    directory.remove_marker()
    assert not disk.exists(f"/d/{CLEAN_MARKER}")
    assert not disk.exists(f"/d/{closed_logs.CLOSED_LOGS}")
    disk.cut_power()
    assert not LogDirectory(disk, "/d").clean
    directory.forget(("t", 0))
    assert directory.closed == {} and directory.partitions == {("u", 0)}
    assert directory.recovery_points == {("u", 0): 6}


def test_a_directory_that_cannot_be_opened_has_nothing_and_is_not_full(disk: FaultyDisk) -> None:
    away = LogDirectory.unusable(disk, "/away/", OSError("it is not mounted"))
    assert away.path == "/away" and not away.clean and not away.space.full and not away.known
    assert away.state == "log directory /away could not be opened: it is not mounted"
    assert not any(away.checkpointed()) and away.deleted() == []
    away.close()


def test_the_mark_of_a_clean_stop_does_not_come_back_after_a_power_cut(disk: FaultyDisk) -> None:
    for name in (CLEAN_MARKER, closed_logs.CLOSED_LOGS):
        disk.write_atomically(f"/d/{name}", b"")
    directory = LogDirectory(disk, "/d")
    assert directory.clean
    directory.remove_marker()
    disk.cut_power()
    assert not {CLEAN_MARKER, closed_logs.CLOSED_LOGS} & {*disk.listdir("/d")}


@pytest.mark.parametrize(("point", "mark", "start", "upto"), [
    (1, 1, None, 1), (None, 1, None, 0), (1, None, None, 0), (None, None, None, 0),
    (5, 7, 4, 5), (7, 5, 4, 5), (5, 5, 5, 0), (5, 5, 6, 0), (1, 1, 0, 1),
])
def test_records_are_safe_up_to_where_they_are_durable_and_committed(
    disk: FaultyDisk, point: int | None, mark: int | None, start: int | None, upto: int
) -> None:
    directory, key = LogDirectory(disk, "/d"), ("t", 0)
    for known, offset in (
        (directory.recovery_points, point), (directory.high_watermarks, mark),
        (directory.log_starts, start),
    ):
        if offset is not None:
            known[key] = offset
    assert directory.written_upto(key) == upto
