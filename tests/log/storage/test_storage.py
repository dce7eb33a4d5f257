"""All logs of a broker: they are reopened after a stop and deleted in two steps, and their
directories are locked and identified."""

import itertools
from errno import EMFILE, ENOSPC
from pathlib import Path

import pytest

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.storage import Hooks, Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig()


class CountingDisk(Disk):
    """A disk whose random ids are predictable."""

    def __init__(self) -> None:
        self.ids = itertools.count()

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"


def open_storage(*directories: Path, node_id: int = 0, **options: object) -> Storage:
    return Storage.open(
        CountingDisk(),
        FakeClock(),
        [str(directory) for directory in directories],
        node_id=node_id,
        **options,  # type: ignore[arg-type]
    )


def test_logs_and_ids_are_found_again_after_a_clean_stop(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    log = storage.get_or_create("events", 3, TOPIC_ID, CONFIG)
    log.append_bytes(batch(b"a", b"b"), 5)
    storage.get_or_create("idle", 0, TOPIC_ID, CONFIG)
    storage.close([(("events", 3), 2)])
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "idle-0").exists()
    again = open_storage(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert again.cluster_id == "id-0"
    assert again.placement.high_watermarks == {("events", 3): 2}
    assert again.unclaimed() == [("events", 3)]
    log = again.get_or_create("events", 3, TOPIC_ID, CONFIG)
    assert (values_of(log), log.recovery_point, log.latest_epoch) == ([b"a", b"b"], 2, 5)


def test_logs_are_recovered_after_a_stop_that_was_not_clean(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    log.append_bytes(batch(b"a"), 0)
    log.append_bytes(batch(b"b"), 0)
    storage.directories[0].lock.close()
    path = tmp_path / "events-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    log = open_storage(tmp_path).get_or_create("events", 0, TOPIC_ID, CONFIG)
    assert values_of(log) == [b"a"]


def test_the_files_of_a_directory_are_kafkas(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, cluster_id="the-cluster")
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    log.append_bytes(batch(bytes(5000)), 4)
    log.append_bytes(batch(b"b"), 6)
    storage.close([(("events", 0), 2)])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        ".kafka_cleanshutdown",
        ".lock",
        ".ottla-closed-logs",
        ".ottla-directories",
        ".ottla-topic-ids",
        "events-0",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nevents 0 2\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nevents 0 0\n"
    assert (tmp_path / "meta.properties").read_text() == (
        "version=1\ncluster.id=the-cluster\nnode.id=0\ndirectory.id=id-0\n"
    )
    partition = tmp_path / "events-0"
    assert {path.name for path in partition.iterdir()} == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n2\n4 0\n6 1\n"
    assert (partition / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    )


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    first = open_storage(tmp_path)
    with pytest.raises(StorageRefused, match=r"is in use by another process.*\.lock"):
        open_storage(tmp_path)
    first.close()
    open_storage(tmp_path)


def test_a_directory_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    open_storage(tmp_path, cluster_id="one").close()
    with pytest.raises(StorageRefused, match=r"says node\.id=0, but this broker has node\.id=7"):
        open_storage(tmp_path, node_id=7)
    with pytest.raises(StorageRefused, match=r"says cluster\.id=one, .* cluster\.id=two"):
        open_storage(tmp_path, cluster_id="two")
    assert open_storage(tmp_path, cluster_id="one").directories[0].clean


def test_a_deleted_log_is_renamed_at_once_and_removed_when_due(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    log.append_bytes(batch(b"a"), 0)
    held = log.slice(0, 100)
    storage.delete("events", 0)
    (renamed,) = tmp_path.glob("events-0*")
    assert renamed.name.endswith("-delete")
    with pytest.raises(StorageFailed, match="its topic was deleted"):
        log.append_bytes(batch(b"b"), 0)
    fresh = storage.get_or_create("events", 0, bytes(16), CONFIG)
    assert fresh.append_bytes(batch(b"new"), 0) == 0
    storage.deletions.remove()
    assert renamed.exists()
    assert isinstance(storage.clock, FakeClock)
    storage.clock.advance(60_000)
    storage.deletions.remove()
    assert not renamed.exists()
    assert len(held.read()) == held.size
    assert values_of(fresh) == [b"new"]


def test_a_clean_stop_removes_the_files_that_wait_for_their_removal(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    log.append_bytes(batch(b"a"), 0)
    left = [f"{tmp_path}/events-0/{base:020d}.log.deleted" for base in range(2)]
    Path(left[0]).touch()
    storage.deletions.add_files(left, CONFIG.file_delete_delay_ms)      # the second is gone already
    storage.close()
    assert not list(tmp_path.glob("events-0/*.deleted"))


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.get_or_create("events", 0, TOPIC_ID, CONFIG).append_bytes(batch(b"a"), 0)
    storage.delete("events", 0)
    storage.directories[0].lock.close()
    again = open_storage(tmp_path)
    again.deletions.remove()
    assert not list(tmp_path.glob("events-0*"))


def test_a_directory_of_an_older_topic_of_that_name_is_put_aside(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.get_or_create("events", 0, TOPIC_ID, CONFIG).append_bytes(batch(b"old"), 0)
    storage.close()
    storage = open_storage(tmp_path)
    log = storage.get_or_create("events", 0, bytes(16), CONFIG)
    assert log.log_end_offset == 0
    assert [path.name[-6:] for path in tmp_path.glob("events-0.*")] == ["-stray"]


def test_partitions_spread_over_the_directories(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "a", tmp_path / "b")
    for partition in range(6):
        log = storage.get_or_create("events", partition, TOPIC_ID, CONFIG)
        log.append_bytes(batch(b"x"), 0)
    storage.close()
    for name in "ab":
        assert len(list((tmp_path / name).glob("events-*"))) == 3
    again = open_storage(tmp_path / "b", tmp_path / "a")
    assert len(again.unclaimed()) == 6


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        storage = open_storage(tmp_path / name, cluster_id="one")
        storage.get_or_create("events", 0, TOPIC_ID, CONFIG).append_bytes(batch(b"x"), 0)
        storage.close()
    with pytest.raises(StorageRefused, match=r"events-0 is in .*b and in .*a"):
        open_storage(tmp_path / "a", tmp_path / "b", cluster_id="one")


def test_a_failed_log_takes_its_directory_offline_and_no_other(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    storage = open_storage(
        tmp_path / "a", tmp_path / "b", hooks=Hooks(on_failure=lambda *reason: told.append(reason))
    )
    logs = [storage.get_or_create("events", at, TOPIC_ID, CONFIG) for at in range(4)]
    for log in logs:
        log.append_bytes(batch(b"x"), 0)
    logs[0].fail("the disk is gone")
    assert told == [(str(tmp_path / "a"), "the disk is gone")]
    with pytest.raises(StorageFailed, match="the disk is gone"):
        logs[2].append_bytes(batch(b"y"), 0)
    assert logs[1].append_bytes(batch(b"y"), 0) == 1
    assert storage.get_or_create("more", 0, TOPIC_ID, CONFIG).directory.startswith(
        str(tmp_path / "b")
    )
    storage.close()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_the_loop_hears_once_that_a_directory_is_full(tmp_path: Path) -> None:
    heard: list[str] = []
    storage = open_storage(tmp_path, hooks=Hooks(on_full=lambda: heard.append("full")))
    [directory] = storage.directories
    storage.refuse(directory, OSError(EMFILE, "too many open files"))
    assert heard == [] and not directory.space.full
    storage.refuse(directory, OSError(ENOSPC, "no space"))
    storage.refuse(directory, OSError(ENOSPC, "no space"))
    assert heard == ["full"] and directory.space.full


def test_no_log_is_created_where_every_directory_is_offline(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "a", tmp_path / "b")
    storage.fail(storage.directories[0], "a disk died")
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    assert log.directory.startswith(str(tmp_path / "b"))
    storage.fail(storage.directories[1], "a disk died")
    with pytest.raises(StorageFailed, match="every log directory is offline"):
        storage.get_or_create("events", 1, TOPIC_ID, CONFIG)
    with pytest.raises(StorageFailed, match="a disk died"):
        log.append_bytes(batch(b"x"), 0)


def test_a_directory_fails_once(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    storage = open_storage(
        tmp_path, hooks=Hooks(on_failure=lambda *reason: told.append(reason)))
    storage.fail(storage.directories[0], "a disk died")
    storage.fail(storage.directories[0], "and again")
    assert told == [(str(tmp_path), "a disk died")]
    assert storage.directories[0].offline == f"log directory {tmp_path} is offline: a disk died"
