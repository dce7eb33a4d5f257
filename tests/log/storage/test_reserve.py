"""Room that is reserved for writes that free space: allocated in time, released in portions."""

from __future__ import annotations

from errno import EDQUOT, EIO, ENOSPC

import pytest

from ottla.log.storage.reserve import (
    PLENTY,
    PORTION_SIZE,
    RESERVE,
    RESERVE_SIZE,
    Reserve,
    is_full,
)
from ottla.wire.errors import StorageFailed
from tests.log.faulty_disk import FaultyDisk, FaultyFile
from tests.waiting import exhaust

PATH = f"/a/{RESERVE}"


def disk_with(free: int) -> FaultyDisk:
    disk = FaultyDisk()
    disk.makedirs("/a")
    disk.free = free
    return disk


def test_it_is_made_where_there_is_plenty_of_room_and_found_again() -> None:
    disk = disk_with(PLENTY)
    assert Reserve(disk, "/a").size == disk.size(PATH) == RESERVE_SIZE
    operations = disk.operations
    assert Reserve(disk, "/a").size == RESERVE_SIZE
    assert disk.operations == operations, "a start that finds it writes nothing"


def test_it_outlives_a_power_failure_after_which_there_is_no_room_for_another_one() -> None:
    disk = disk_with(PLENTY)
    Reserve(disk, "/a")
    disk.cut_power()
    disk.free = 0
    reserve = Reserve(disk, "/a")
    assert reserve.size == RESERVE_SIZE and reserve.give(0)


def test_it_does_not_take_the_last_room() -> None:
    disk = disk_with(PLENTY - 1)
    reserve = Reserve(disk, "/a")
    assert reserve.size == 0 and not disk.exists(PATH)
    assert not reserve.give(0)


def test_it_is_given_up_in_portions_down_to_a_floor_and_made_whole_again() -> None:
    disk = disk_with(PLENTY)
    reserve = Reserve(disk, "/a")
    disk.free = 0
    assert reserve.give(RESERVE_SIZE // 2)
    assert disk.size(PATH) == RESERVE_SIZE - PORTION_SIZE and disk.free == PORTION_SIZE
    exhaust(lambda: reserve.give(RESERVE_SIZE // 2))
    assert disk.size(PATH) == RESERVE_SIZE // 2
    exhaust(lambda: reserve.give(0))
    assert disk.size(PATH) == 0
    reserve.fill()
    assert disk.size(PATH) == 0, "there is no room yet"
    disk.free = PLENTY
    reserve.fill()
    assert disk.size(PATH) == RESERVE_SIZE


@pytest.mark.parametrize("kind", ["name", "write", "truncate", "open"])
def test_a_failing_disk_is_for_others_to_report(kind: str) -> None:
    disk = disk_with(PLENTY)
    reserve = None if kind in ("name", "write") else Reserve(disk, "/a")
    disk.errors = {kind: EIO}
    reserve = reserve or Reserve(disk, "/a")
    assert not reserve.give(0)
    disk.errors = {}
    reserve.fill()
    assert reserve.size == RESERVE_SIZE


def test_a_full_disk_is_known_by_its_cause() -> None:
    for code in (ENOSPC, EDQUOT, EIO):
        error = StorageFailed("no")
        error.__cause__ = OSError(code, "no")
        assert is_full(error) == is_full(error.__cause__) == (code != EIO)
    assert not is_full(None)


def test_it_is_filled_up_to_its_size_durably_and_no_file_stays_open(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = disk_with(PLENTY)
    reserve, opened, closed = Reserve(disk, "/a"), list[str](), list[str]()
    assert not disk.inode(PATH).pending, "it is synced"
    real = disk.open

    def noted(path: str, create: bool = False) -> FaultyFile:
        opened.append(path)
        return real(path, create)

    monkeypatch.setattr(disk, "open", noted)
    monkeypatch.setattr(FaultyFile, "close", lambda file: closed.append(file.path))
    assert not reserve.fill(), "it is full"
    assert reserve.give(0) and reserve.size == RESERVE_SIZE - PORTION_SIZE
    disk.free = PLENTY - 1
    assert not reserve.fill()
    disk.free = PLENTY
    assert reserve.fill() and reserve.size == disk.size(PATH) == RESERVE_SIZE
    reserve.sync()
    assert not disk.inode(PATH).pending
    assert opened == closed == [PATH] * 3
    disk.errors = {"truncate": EIO}
    assert not reserve.give(0) and reserve.size == RESERVE_SIZE
    disk.unlink(PATH)
    disk.errors, reserve.size = {"write": EIO}, 0
    assert not reserve.fill() and reserve.size == 0
