"""Directories of partitions that belong to no topic: put aside at a start, removed after a time."""

from __future__ import annotations

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.log.storage.strays import (
    expire_strays,
    forget_other_topics,
    is_partition,
    put_aside_ms,
    put_strays_aside,
)
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk

ID, OTHER = b"t" * 16, b"u" * 16
CONFIG = LogConfig()


@pytest.fixture
def disk() -> FaultyDisk:
    """Two partitions of a topic in each of two directories, after a stop."""
    disk = FaultyDisk()
    storage = opened(disk)
    for number in range(4):
        storage.get_or_create("t", number, ID, CONFIG).append_bytes(batch(b"%d" % number), 0)
    storage.close()
    return disk


def opened(disk: FaultyDisk) -> Storage:
    return Storage.open(disk, FakeClock(), ["/a", "/b"])


def keys(*numbers: int) -> set[tuple[str, int]]:
    return {("t", number) for number in numbers}


def test_a_directory_that_no_topic_has_is_put_aside(disk: FaultyDisk) -> None:
    storage = opened(disk)
    storage.deletions.keep_stray(0)
    aside = put_strays_aside(storage, keys(0, 1, 3))
    [path] = aside
    assert path.startswith("/a/t-2.") and path.endswith("-stray") and disk.exists(path)
    assert not disk.exists("/a/t-2") and storage.homes.keys() == keys(0, 1, 3)
    a, b = storage.directories
    assert (a.partitions, b.partitions) == (keys(0), keys(1, 3))
    assert ("t", 2) not in a.recovery_points and ("t", 0) in a.recovery_points
    assert path in disk.durable_names and "/a/t-2" not in disk.durable_names
    assert storage.deletions.due() == aside
    assert put_strays_aside(storage, keys(0, 1, 3)) == []


def test_all_that_no_topic_has_are_put_aside_and_what_was_asked_for_is_not(
    disk: FaultyDisk
) -> None:
    storage = opened(disk)
    storage.get_or_create("t", 0, ID, CONFIG)
    aside = put_strays_aside(storage, ())
    assert sorted(path[:6] for path in aside) == ["/a/t-2", "/b/t-1", "/b/t-3"]
    assert storage.homes.keys() == keys(0) and storage.deletions.directories == []


def test_what_is_not_a_partitions_alone_is_left(disk: FaultyDisk) -> None:
    for name in ("leader-epoch-checkpoint.tmp", f"{9:020d}.snapshot.deleted"):
        disk.write_atomically(f"/a/t-0/{name}", b"")
        assert is_partition(disk, "/a/t-0")
    disk.write_atomically("/a/t-0/letter.txt", b"")
    assert not is_partition(disk, "/a/t-0")
    storage = opened(disk)
    assert sorted(path[:6] for path in put_strays_aside(storage, keys(3))) == ["/a/t-2", "/b/t-1"]
    assert storage.homes.keys() == keys(0, 3)


def test_a_directory_on_a_disk_that_failed_is_left(disk: FaultyDisk) -> None:
    storage = opened(disk)
    storage.fail(storage.directories[0], "a disk died")
    assert sorted(path[:6] for path in put_strays_aside(storage, ())) == ["/b/t-1", "/b/t-3"]
    assert storage.homes.keys() == keys(0, 2)


@pytest.mark.parametrize("letter", ["a", "b", ""])
def test_of_two_directories_of_a_name_each_is_put_aside_that_is_a_partitions(
    disk: FaultyDisk, letter: str
) -> None:
    disk.makedirs("/b/t-0")
    if letter:
        disk.write_atomically(f"/{letter}/t-0/letter.txt", b"")
    storage = opened(disk)
    assert storage.rivals == {("t", 0): [storage.directories[1]]}
    aside = {path[:6] for path in put_strays_aside(storage, keys(1, 2, 3))}
    assert aside == {"/a/t-0", "/b/t-0"} - {f"/{letter}/t-0"}
    assert (("t", 0) in storage.homes) == (letter == "a")
    assert (("t", 0) in storage.rivals) == (letter == "b")


def test_checkpoints_of_another_topic_of_a_name_are_forgotten(disk: FaultyDisk) -> None:
    storage = opened(disk)
    a, b = storage.directories
    a.topic_ids |= {"old": OTHER, "unnamed": None}
    for topic in ("old", "unnamed"):
        a.log_starts[topic, 0] = 5
    forget_other_topics(storage, {"t": ID, "unnamed": ID})
    assert a.topic_ids == {"t": ID, "unnamed": None} and b.topic_ids == {"t": ID}
    assert ("old", 0) not in a.log_starts and a.log_starts["unnamed", 0] == 5
    assert a.recovery_points.keys() == keys(0, 2)
    forget_other_topics(storage, {"t": OTHER})
    assert b.topic_ids == b.recovery_points == b.log_starts == {}


NOW = FakeClock().now_ms()


@pytest.mark.parametrize(("name", "at"), [
    (f"t-0.{NOW:016x}{1:016x}-stray", NOW), (f"a.b-0.{7:016x}{0x2a:016x}-stray", 7),
    ("t-0.0123456789abcdef0123456789abcdef-stray", None),
    (f"t-0.{NOW:016x}-stray", None), (f"t-0.{NOW:016x}{1:016X}f-stray", None),
])
def test_a_stray_directorys_name_says_when_it_was_put_aside(name: str, at: int | None) -> None:
    assert put_aside_ms(name) == at


def stray(disk: FaultyDisk, ms: int, directory: str = "/a") -> str:
    path = f"{directory}/t-9.{ms:016x}{1:016x}-stray"
    disk.makedirs(path)
    return path


@pytest.mark.parametrize(("ago", "left"), [(0, 100), (40, 60), (100, 0), (101, 0), (-50, 100)])
def test_a_stray_directory_is_removed_when_its_time_is_over(
    disk: FaultyDisk, ago: int, left: int
) -> None:
    storage = opened(disk)
    assert isinstance(storage.clock, FakeClock)
    path = stray(disk, storage.clock.now_ms() - ago)
    disk.makedirs("/a/t-9.no-strays")
    expire_strays(storage, 100)
    if left:
        storage.clock.advance(left - 1)
        assert storage.deletions.due() == []
        storage.clock.advance(1)
    assert storage.deletions.due() == [path] and storage.deletions.directories == []


def test_a_stray_directory_of_kafkas_counts_from_its_last_change(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = opened(disk)
    path = "/b/t-9.0123456789abcdef0123456789abcdef-stray"
    disk.makedirs(path)
    monkeypatch.setattr(disk, "modified_ms", lambda path: storage.clock.now_ms() - 30)
    expire_strays(storage, 100)
    [(at, due)] = storage.deletions.directories
    assert (at - storage.clock.monotonic_ms(), due) == (70, path)


def test_stray_directories_stay_for_ever_or_go_at_once_as_configured(disk: FaultyDisk) -> None:
    storage = opened(disk)
    path = stray(disk, storage.clock.now_ms())
    expire_strays(storage, -1)
    assert storage.deletions.directories == []
    storage.deletions.add_stray("/a/later-stray")
    assert storage.deletions.directories == []
    expire_strays(storage, 0)
    storage.deletions.add_stray("/a/later-stray")
    assert storage.deletions.due() == [path, "/a/later-stray"]


def test_a_stray_directory_on_a_disk_that_failed_is_left(disk: FaultyDisk) -> None:
    storage = opened(disk)
    now = storage.clock.now_ms()
    paths = [stray(disk, now, directory) for directory in ("/a", "/b")]
    storage.fail(storage.directories[0], "a disk died")
    expire_strays(storage, 0)
    assert storage.deletions.due() == paths[1:]


def test_a_log_of_an_older_topic_becomes_a_stray_that_expires(disk: FaultyDisk) -> None:
    storage = opened(disk)
    storage.deletions.keep_stray(0)
    assert values_of(storage.get_or_create("t", 0, OTHER, CONFIG)) == []
    [aside] = storage.deletions.due()
    assert aside.startswith("/a/t-0.") and aside in disk.durable_names
