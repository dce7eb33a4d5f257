"""A deletion frees space, even on a full disk, after an error in any of its steps, or after a
kill."""

from __future__ import annotations

import errno

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.storage import Hooks, Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk, FaultyFile

OLD, NEW = bytes(range(16)), bytes(range(1, 17))
SMALL = LogConfig(segment_bytes=30_000, index_interval_bytes=100)


class FullDisk(FaultyDisk):
    """A disk that may be full: it accepts no more bytes or names, but files may be deleted."""

    full = False

    def no_room(self, path: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "injected full disk", path)

    def before(self, kind: str, path: str, size: int = 0) -> int:
        if kind == "write" and size:
            self.no_room(path)
        return super().before(kind, path, size)

    def rename(self, source: str, target: str) -> None:
        self.no_room(target)
        super().rename(source, target)

    def open(self, path: str, create: bool = False) -> FaultyFile:
        if path not in self.names:
            self.no_room(path)
        return super().open(path, create)


def written(storage: Storage, topic_id: bytes) -> PartitionLog:
    log = storage.get_or_create("events", 0, topic_id, SMALL)
    for number in range(20):
        # These batches leave index entries that are only in memory: closing has to write them.
        log.append_bytes(batch(b"%d" % number + bytes(2000), timestamps=[1000 + number]), 0)
    return log


def test_a_topic_deleted_on_a_full_disk_gives_its_room_back() -> None:
    disk, told = FullDisk(), list[object]()
    hooks = Hooks(on_failure=lambda *all: told.append(all))
    storage = Storage.open(disk, FakeClock(), ["/a"], hooks=hooks)
    log = written(storage, OLD)
    held = log.slice(0, 100)
    disk.full = True
    storage.delete("events", 0)
    assert told == [] and storage.directories[0].offline is None
    with pytest.raises(StorageFailed, match="its topic was deleted"):
        log.append_bytes(batch(b"x"), 0)
    # The old files cannot be renamed, so their name is not used again until they are deleted.
    with pytest.raises(StorageFailed, match="files of a deleted topic of the same") as refused:
        storage.get_or_create("events", 0, NEW, SMALL)
    assert isinstance(refused.value.__cause__, OSError), "and is asked again: it passes"
    storage.deletions.remove()
    assert not [name for name in disk.names if name.startswith("/a/events-0")]
    assert len(held.read()) == held.size, "who reads, reads on"
    disk.full = False
    assert storage.get_or_create("events", 0, NEW, SMALL).log_end_offset == 0


def test_a_kill_before_the_removal_leaves_nothing_for_the_next_topic_of_the_name() -> None:
    disk = FullDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    written(storage, OLD)
    disk.full = True
    storage.delete("events", 0)
    disk.kill()
    disk.full = False
    log = Storage.open(disk, FakeClock(), ["/a"]).get_or_create("events", 0, NEW, SMALL)
    assert values_of(log) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_what_passes_takes_no_directory_offline_in_any_step_of_a_deletion(code: int) -> None:
    for kind in ("write", "name", "open", "sync", "truncate", "read"):
        disk = FaultyDisk()
        storage = Storage.open(disk, FakeClock(), ["/a"])
        written(storage, OLD)
        disk.failing, disk.errors = "/a/events-0", {kind: code}
        storage.delete("events", 0)
        assert storage.directories[0].offline is None
        disk.errors = {}
        storage.clock.advance(60_000)  # type: ignore[attr-defined]
        storage.deletions.remove()
        assert not [name for name in disk.names if name.startswith("/a/events-0")]


def test_a_disk_that_dies_in_a_deletion_is_offline() -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    home = storage.homes.get(("events", 0)) or written(storage, OLD)
    disk.failing, disk.errors = "/a/", {"name": errno.EIO}
    assert isinstance(home, PartitionLog)
    with pytest.raises(StorageFailed, match="could not be renamed"):
        storage.delete("events", 0)
    assert [each.offline is None for each in storage.directories] == [False, True]


@pytest.mark.parametrize("hours", [-9, 9])
def test_a_deletion_delay_is_time_that_passes_whatever_the_wall_clock_is_set_to(hours: int) -> None:
    disk, clock = FaultyDisk(), FakeClock()
    storage = Storage.open(disk, clock, ["/a"])
    log = written(storage, OLD)
    written_files = [each.path(".log") for each in log.segments]
    storage.deletions.add_files(written_files[:1], 60_000)
    storage.get_or_create("other", 0, NEW, SMALL).append_bytes(batch(b"x"), 0)
    storage.delete("other", 0)
    clock.set_wall_clock(hours * 3_600_000)
    clock.advance(59_999)
    assert storage.deletions.due_files() == storage.deletions.due() == []
    clock.advance(1)
    assert storage.deletions.due_files() == written_files[:1]
    [gone] = storage.deletions.due()
    assert gone.startswith("/a/other-0.") and gone.endswith("-delete")
