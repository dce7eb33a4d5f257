"""What is removed from log directories, and when: each file and directory once, after a time that
the wall clock does not change."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.log.storage.deletions import Deletions, remove_directory
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def deletions(disk: FaultyDisk, clock: FakeClock) -> Deletions:
    return Deletions(disk, clock)


def test_each_directory_is_due_once_its_delay_has_passed(
    deletions: Deletions, clock: FakeClock
) -> None:
    deletions.add_left(["/a/old-delete"])
    deletions.add("/a/t-0-delete", 100)
    assert deletions.due() == ["/a/old-delete"] and deletions.due() == []
    clock.advance(99)
    assert deletions.due() == []
    clock.advance(1)
    assert deletions.due() == ["/a/t-0-delete"] and deletions.directories == []


def test_each_file_is_due_once_its_delay_has_passed(
    deletions: Deletions, clock: FakeClock
) -> None:
    deletions.add_files(["/a/t-0/x", "/a/t-0/y"], 100)
    deletions.add_files(["/a/t-0/z"], 200)
    clock.advance(99)
    assert deletions.due_files() == []
    clock.advance(1)
    assert deletions.due_files() == ["/a/t-0/x", "/a/t-0/y"] and deletions.due_files() == []
    assert [path for _, path in deletions.files] == ["/a/t-0/z"]


def test_strays_are_kept_for_ever_unless_a_time_is_set(
    deletions: Deletions, clock: FakeClock
) -> None:
    deletions.add_stray("/a/one-stray")
    assert deletions.directories == []
    deletions.keep_stray(0)
    deletions.add_stray("/a/two-stray")
    assert deletions.due() == ["/a/two-stray"]
    deletions.keep_stray(50)
    deletions.add_stray("/a/three-stray")
    assert deletions.due() == []
    clock.advance(50)
    assert deletions.due() == ["/a/three-stray"]


def test_names_of_what_was_renamed_are_unique_and_not_too_long(
    deletions: Deletions, clock: FakeClock
) -> None:
    first, second = (deletions.unique_name("t-0", "delete") for _ in range(2))
    now = f"{clock.now_ms():016x}"
    assert first == f"t-0.{now}{1:016x}-delete" and second == f"t-0.{now}{2:016x}-delete"
    for suffix in ("delete", "stray", "future"):
        longest = deletions.unique_name("x" * 249 + "-12345", suffix)
        assert len(longest) == 255 and longest.endswith(f"-{suffix}")
    exact = "y" * (255 - 32 - len("stray") - 2)
    assert deletions.unique_name(exact, "stray").startswith(exact + ".")


def test_a_full_directory_has_its_deletions_hastened_but_not_its_strays(
    deletions: Deletions,
) -> None:
    deletions.keep_stray(1000)
    for parent in ("/a", "/ab"):
        deletions.add(f"{parent}/t-0-delete", 1000)
        deletions.add_stray(f"{parent}/t-1-stray")
        deletions.add_files([f"{parent}/t-2/x"], 1000)
    deletions.hasten("/a")
    assert deletions.due() == ["/a/t-0-delete"] and deletions.due_files() == ["/a/t-2/x"]
    assert len(deletions.directories) == 3 and len(deletions.files) == 1


def test_files_of_a_directory_that_is_another_topics_by_now_are_left_alone(
    deletions: Deletions,
) -> None:
    deletions.add_files(["/a/t-1/x", "/a/t-10/x", "/a/t-1/y"], 0)
    deletions.forget_files("/a/t-1")
    assert deletions.due_files() == ["/a/t-10/x"]


def test_what_was_renamed_is_synced_once(deletions: Deletions) -> None:
    assert deletions.take_unsynced() == []
    for parent in ("/a", "/b", "/a"):
        deletions.note_renamed(parent)
    assert sorted(deletions.take_unsynced()) == ["/a", "/b"]
    assert deletions.take_unsynced() == []


def test_the_stop_removes_all_files_and_lets_those_be_that_the_disk_keeps(
    deletions: Deletions, disk: FaultyDisk
) -> None:
    disk.makedirs("/a")
    for name in "xyz":
        disk.write_atomically(f"/a/{name}", b"")
    deletions.add_files(["/a/x", "/a/y", "/a/z"], 1000)
    disk.errors, disk.failing = {"name": EIO}, "/a/y"
    deletions.remove_files()
    assert disk.listdir("/a") == ["y"] and deletions.files == []


def test_a_directory_that_kept_its_name_is_removed_before_the_name_is_free(
    deletions: Deletions, disk: FaultyDisk
) -> None:
    disk.makedirs("/a/t-0")
    deletions.keep_in_place(("t", 0), "/a/t-0")
    disk.errors, disk.failing = {"name": EIO}, "/a/t-0"
    with pytest.raises(OSError, match="injected"):
        deletions.remove()
    assert deletions.in_place == {("t", 0): "/a/t-0"}
    disk.errors = {}
    disk.makedirs("/a/u-0-delete")
    deletions.add_left(["/a/u-0-delete"])
    deletions.remove()
    assert deletions.in_place == {} and disk.subdirectories("/a") == []


def test_the_id_of_its_topic_is_the_last_file_of_a_directory_to_go(disk: FaultyDisk) -> None:
    """Without the id, a directory that a crash left could be taken for that of a new topic."""
    disk.makedirs("/a/t-0")
    for name in ("a.log", "partition.metadata", "z.log"):
        disk.write_atomically(f"/a/t-0/{name}", b"")
    disk.errors, disk.failing = {"name": EIO}, "/a/t-0/partition.metadata"
    with pytest.raises(OSError, match="injected"):
        remove_directory(disk, "/a/t-0")
    assert disk.listdir("/a/t-0") == ["partition.metadata"]
    disk.errors = {}
    remove_directory(disk, "/a/t-0")
    assert not disk.exists("/a/t-0")
    remove_directory(disk, "/a/t-0")
