"""A start with log directories that cannot be used: they are reported, and the others serve."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.storage.known_directories import DIRECTORIES
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.storage import Hooks, Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch
from tests.log.faulty_disk import FaultyDisk, FaultyFile

Told = list[tuple[str, str]]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def start(disk: FaultyDisk, told: Told, *directories: str) -> Storage:
    hooks = Hooks(on_failure=lambda path, reason: told.append((path, reason)))
    return Storage.open(disk, FakeClock(), directories or ("/a", "/b"), hooks=hooks)


@pytest.mark.parametrize(("used", "kind", "path"), [
    (False, "name", "/b"), (False, "write", "/b/meta.properties"),
    (True, "name", "/b/.kafka_cleanshutdown"), (True, "write", "/b/.ottla-topic-ids"),
])
def test_a_directory_that_cannot_be_used_is_offline_and_leaves_the_others(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, used: bool, kind: str, path: str
) -> None:
    closed: list[str] = []
    told: Told = []
    if used:
        start(disk, told).close()
        disk.unlink("/b/.ottla-topic-ids")
    monkeypatch.setattr(FaultyFile, "close", lambda file: closed.append(file.path))
    disk.errors, disk.failing = {kind: EIO}, path
    storage = start(disk, told)
    assert [each.path for each in storage.directories] == ["/a", "/b"]
    a, b = storage.directories
    assert a.offline is None and b.offline is not None and "injected" in b.offline
    assert told == [("/b", b.offline)] and not b.known
    if path != "/b":
        assert "/b/.lock" in closed and "/a/.lock" not in closed, "another process may take it"
    assert storage.unclaimed() == [] and not storage.started
    with pytest.raises(StorageFailed, match=r"t-0 may be in a log directory.*/b could"):
        storage.get_or_create("t", 0, b"t" * 16, LogConfig())
    storage.started = True
    storage.get_or_create("t", 0, b"t" * 16, LogConfig()).append_bytes(batch(b"x"), 0)
    assert storage.homes["t", 0] is a


def test_a_start_without_a_directory_that_works_is_refused(disk: FaultyDisk) -> None:
    told: Told = []
    disk.errors = {"write": EIO}
    with pytest.raises(StorageRefused) as refused:
        start(disk, told)
    first, second = str(refused.value).split("; ")
    assert "/a could not be opened" in first and "/b could not be opened" in second
    assert told == []
    with pytest.raises(StorageRefused, match=r"log\.dirs is empty"):
        Storage.open(disk, FakeClock(), [])


def test_directories_that_cannot_be_remembered_are_told_and_serve(disk: FaultyDisk) -> None:
    told: Told = []
    disk.errors, disk.failing = {"write": EIO}, f"/a/{DIRECTORIES}"
    storage = start(disk, told)
    [(path, reason)] = told
    assert path == DIRECTORIES and reason.startswith("it could not be written: ")
    assert [each.offline for each in storage.directories] == [None, None]


def test_a_start_that_cannot_finish_a_move_is_refused(disk: FaultyDisk) -> None:
    told: Told = []
    start(disk, told).close()
    disk.write_atomically("/b/.ottla-move", b"0\nevents 0 events-0.1-future\n")
    disk.makedirs("/b/events-0.1-future")
    disk.errors, disk.failing = {"name": EIO}, "/b/events-0"
    with pytest.raises(StorageRefused, match="a move of a partition could not be finished: "):
        start(disk, told)


def test_new_directories_get_the_cluster_of_the_first_and_ids_of_their_own(
    disk: FaultyDisk
) -> None:
    storage = start(disk, [])
    a, b = storage.directories
    assert storage.cluster_id == a.cluster_id == b.cluster_id != ""
    assert a.directory_id != b.directory_id
    assert disk.read_bytes("/b/meta.properties").decode() == (
        f"version=1\ncluster.id={a.cluster_id}\nnode.id=0\ndirectory.id={b.directory_id}\n")


def test_a_new_directory_listed_first_joins_the_cluster_of_the_others(disk: FaultyDisk) -> None:
    known = start(disk, []).cluster_id
    disk.kill()
    storage = start(disk, [], "/c", "/a", "/b")
    assert {each.cluster_id for each in storage.directories} == {known}
    assert f"cluster.id={known}\n" in disk.read_bytes("/c/meta.properties").decode()


@pytest.mark.parametrize("name", ["meta.properties", DIRECTORIES])
def test_a_directory_with_a_bad_sector_in_a_file_about_it_is_offline(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(FaultyFile, "close", lambda file: closed.append(file.path))
    known, told = start(disk, []).cluster_id, Told()
    disk.unreadable.add(disk.inode(f"/a/{name}"))
    storage = start(disk, told)
    assert [each.offline is None for each in storage.directories] == [False, True]
    assert storage.cluster_id == known and [path for path, _ in told] == ["/a"]
    assert closed.count("/a/.lock") == 1 and "/b/.lock" not in closed


def test_a_start_goes_on_with_the_cluster_of_the_directories_that_work(disk: FaultyDisk) -> None:
    known = start(disk, []).cluster_id
    disk.kill()
    disk.errors, disk.failing = {"name": EIO}, "/c"
    storage = start(disk, [], "/c", "/a", "/b")
    assert storage.cluster_id == known and storage.directories[0].cluster_id == ""
