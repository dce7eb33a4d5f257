"""While a log directory is missing, a replica in it is removed from the broker, then assigned to
the broker again. It begins empty in another directory. When the first directory is present again,
its copy is void."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.storage import Storage
from ottla.log.storage.strays import put_strays_aside
from ottla.log.storage.void_copies import begin
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk

KEY = "events", 0
TOPIC_ID = bytes(range(16))


def open_storage(disk: FaultyDisk, *directories: str) -> Storage:
    return Storage.open(disk, FakeClock(), directories, clustered=True)


def append(storage: Storage, value: bytes) -> str:
    """Append to the partition; returns the log directory that it is in."""
    log = storage.get_or_create(*KEY, TOPIC_ID, LogConfig())
    log.append_bytes(batch(value), 0)
    log.flush()
    return storage.homes[KEY].path


def fail(storage: Storage, disk: FaultyDisk, directory: str) -> None:
    """Let a directory fail; the broker keeps running."""
    disk.failing, disk.errors = f"{directory}/", {"write": EIO, "sync": EIO, "name": EIO}
    storage.logs[KEY].fail("the disk is gone")


def given_back(disk: FaultyDisk, missed: bool) -> tuple[str, str]:
    """Let the directory of a replica fail, remove the replica, and assign it again; returns its
    former and its present directory. With `missed`, the broker is restarted without the former
    directory before the replica is assigned again."""
    storage = open_storage(disk, "/a", "/b")
    storage.started = True
    former = append(storage, b"former")
    storage.checkpoint([(KEY, 1)])
    fail(storage, disk, former)
    storage.delete(*KEY)                        # its other replicas are on other brokers
    if missed:
        disk.kill()
        storage = open_storage(disk, *{"/a", "/b"} - {former})
        storage.started = True
    present = append(storage, b"present")
    storage.checkpoint([(KEY, 1)])
    disk.errors = {}
    return former, present


@pytest.mark.parametrize("missed", [False, True], ids=["failed", "missing"])
@pytest.mark.parametrize("end", ["kill", "cut_power"])
@pytest.mark.parametrize("order", [1, -1])
def test_the_copy_that_was_begun_later_counts(missed: bool, end: str, order: int) -> None:
    disk = FaultyDisk()
    former, present = given_back(disk, missed)
    assert former != present
    getattr(disk, end)()
    storage = open_storage(disk, *["/a", "/b"][::order])
    assert values_of(storage.get_or_create(*KEY, TOPIC_ID, LogConfig())) == [b"present"]
    assert storage.homes[KEY].path == present
    [aside] = [name for name in disk.subdirectories(former) if name.startswith("events-0")]
    assert aside.endswith("-stray")
    storage.close()
    again = open_storage(disk, "/a", "/b")
    assert values_of(again.get_or_create(*KEY, TOPIC_ID, LogConfig())) == [b"present"]


def test_neither_copy_counts_once_the_replica_has_moved_again() -> None:
    disk = FaultyDisk()
    given_back(disk, False)
    disk.kill()
    storage = open_storage(disk, "/a", "/b")
    assert len(put_strays_aside(storage, ())) == 2


def test_a_partition_that_was_begun_without_a_directory_is_not_taken_for_hidden_in_it() -> None:
    """The partition has no records yet. For a partition that is found nowhere, a start assumes that
    it is in a directory that cannot be read."""
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    storage.started = True
    failing = append(storage, b"x")
    fail(storage, disk, failing)
    storage.get_or_create("empty", 0, TOPIC_ID, LogConfig())
    disk.kill()
    storage = open_storage(disk, *{"/a", "/b"} - {failing})
    assert storage.get_or_create("empty", 0, TOPIC_ID, LogConfig()).log_end_offset == 0


def test_copies_of_which_none_was_begun_without_the_other_are_still_refused() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    former = append(storage, b"x")
    other = "/b" if former == "/a" else "/a"
    disk.makedirs(f"{other}/events-0")
    disk.write_atomically(
        f"{other}/events-0/partition.metadata",
        disk.read_bytes(f"{former}/events-0/partition.metadata"),
    )
    disk.kill()
    with pytest.raises(StorageRefused, match="events-0 is in"):
        open_storage(disk, "/a", "/b")


def test_only_a_partition_that_begins_without_a_directory_has_one_before_its_first_record() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk, "/a", "/b")
    storage.get_or_create("before", 0, TOPIC_ID, LogConfig())
    storage.started = True
    storage.get_or_create("all", 0, TOPIC_ID, LogConfig())
    storage.fail(storage.directories[0], "the disk is gone")
    storage.get_or_create("without", 0, TOPIC_ID, LogConfig())
    assert [*disk.subdirectories("/a"), *disk.subdirectories("/b")] == ["without-0"]
    assert disk.read_bytes("/b/without-0/.ottla-begun-without").decode() == (
        storage.directories[0].directory_id)


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
def test_a_partition_that_begins_without_a_directory_is_there_after_a_power_cut(
    topic_id: bytes | None
) -> None:
    disk = FaultyDisk()
    home, away = open_storage(disk, "/a", "/b").directories
    begin(home, KEY, topic_id, [away])
    assert "/a/events-0" in disk.durable_names
    disk.cut_power()
    assert home.topic_id(KEY) == topic_id
    assert disk.read_bytes("/a/events-0/.ottla-begun-without").decode() == away.directory_id
