"""When a log directory counts as full, and when it has space again."""

from __future__ import annotations

from errno import EDQUOT, EIO, EMFILE, ENOSPC

import pytest

from ottla.log.storage.space import PLENTY_BYTES_MAX, PROBE, Room, Space
from tests.log.faulty_disk import FaultyDisk, FaultyFile


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.makedirs("/data")
    return disk


def test_a_directory_that_was_not_measured_yet_has_space(disk: FaultyDisk) -> None:
    space = Space(disk, "/data")
    assert not space.full and not space.short


def test_a_measurement_from_before_the_first_refusal_is_no_sign_that_nothing_can_be_written(
    disk: FaultyDisk
) -> None:
    space = Space(disk, "/data")
    room = space.measure()
    assert room.plenty and room.writable
    assert space.refused(OSError(ENOSPC, "full"))
    assert space.note(room, 0.0) and not space.full


@pytest.mark.parametrize("code", [ENOSPC, EDQUOT])
def test_only_the_first_refusal_makes_a_directory_full(disk: FaultyDisk, code: int) -> None:
    space = Space(disk, "/data")
    assert [space.refused(OSError(code, "no more")) for _ in range(3)] == [True, False, False]
    assert space.full and space.refusal is not None and "no more" in space.refusal


@pytest.mark.parametrize("code", [EMFILE, EIO])
def test_other_errors_do_not_make_a_directory_full(disk: FaultyDisk, code: int) -> None:
    space = Space(disk, "/data")
    assert not space.refused(OSError(code, "something else")) and not space.full


def test_a_full_directory_has_space_again_once_plenty_is_free_and_a_file_can_be_written(
    disk: FaultyDisk,
) -> None:
    space = Space(disk, "/data")
    space.refused(OSError(ENOSPC, "no more"))
    disk.free = PLENTY_BYTES_MAX
    for operation in ("write", "reserve"):
        disk.errors = {operation: EDQUOT}       # free space does not show a quota
        assert not space.note(space.measure(), 0) and space.full
    disk.errors = {}
    assert space.note(space.measure(), 0) and not space.full
    assert not space.note(space.measure(), 0), "it is said once"
    assert not disk.exists(f"/data/{PROBE}")


def test_where_plenty_is_never_free_it_has_space_again_once_writing_has_worked_for_a_minute(
    disk: FaultyDisk,
) -> None:
    space = Space(disk, "/data")
    disk.free = PLENTY_BYTES_MAX - 1
    space.refused(OSError(ENOSPC, "no more"))
    assert not space.note(space.measure(), 0)
    disk.errors = {"write": ENOSPC}
    assert not space.note(space.measure(), 30), "the minute begins anew"
    disk.errors = {}
    assert not space.note(space.measure(), 40)
    assert not space.note(space.measure(), 99) and space.full
    space.refused(OSError(ENOSPC, "no more"))
    assert not space.note(space.measure(), 100), "nor did a write work"
    assert space.note(space.measure(), 160) and not space.full


def test_a_directory_that_is_full_again_soon_stays_so_for_twice_as_long(disk: FaultyDisk) -> None:
    """Otherwise replicas would leave and rejoin the ISR each minute."""
    space = Space(disk, "/data")
    disk.free = PLENTY_BYTES_MAX - 1

    def back_after(now: float) -> float:
        space.refused(OSError(ENOSPC, "no more"))
        space.note(space.measure(), now)
        later = now
        while space.full:
            later += 10
            space.note(space.measure(), later)
        return later - now

    assert [back_after(now) for now in (0, 100, 300, 700)] == [60, 120, 240, 480]
    space.note(space.measure(), 2000)
    assert back_after(2010) == 60, "it had space for long"


def test_plenty_is_a_twentieth_of_a_small_file_system() -> None:
    assert Room(5, 100).plenty and not Room(4, 100).plenty
    assert Room().plenty, "where the file system does not say, nothing is short"


def full_again(space: Space, disk: FaultyDisk, now: float) -> None:
    """Make the directory full at `now`, and let it have space again as soon as possible."""
    space.refused(OSError(ENOSPC, "no more"))
    space.note(space.measure(), now)
    assert not space.note(space.measure(), now + space.settled_seconds - 1)
    assert space.note(space.measure(), now + space.settled_seconds)


def test_it_is_full_for_an_hour_at_most(disk: FaultyDisk) -> None:
    space = Space(disk, "/data")
    disk.free = PLENTY_BYTES_MAX - 1
    waits, now = [], 0.0
    for _ in range(9):
        full_again(space, disk, now)
        waits.append(space.settled_seconds)
        now += space.settled_seconds
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@pytest.mark.parametrize(("later", "wait"), [(59, 120), (60, 60), (61, 60)])
def test_space_for_as_long_as_it_took_to_settle_counts_as_space_for_long(
    disk: FaultyDisk, later: int, wait: int
) -> None:
    space = Space(disk, "/data")
    disk.free = PLENTY_BYTES_MAX - 1
    full_again(space, disk, 0)
    assert space.back_at == 60
    space.note(space.measure(), 60 + later)
    full_again(space, disk, 1000)
    assert space.settled_seconds == wait


def test_plenty_of_space_ends_the_distrust(disk: FaultyDisk) -> None:
    space = Space(disk, "/data")
    disk.free = PLENTY_BYTES_MAX - 1
    full_again(space, disk, 0)
    space.refused(OSError(ENOSPC, "no more"))
    disk.free = PLENTY_BYTES_MAX
    assert space.note(space.measure(), 70) and space.back_at is None
    assert not space.short
    disk.free = PLENTY_BYTES_MAX - 1
    space.note(space.measure(), 80)
    assert space.short and not space.full


@pytest.mark.parametrize(("total", "size"), [
    (0, 4096), (4096 * 20, 4096), (4097 * 20, 4097), ((1 << 20) * 20, 1 << 20),
    (((1 << 20) + 1) * 20, 1 << 20), (1 << 50, 1 << 20),
])
def test_a_probe_reserves_what_the_largest_batch_needs(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, total: int, size: int
) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(FaultyFile, "reserve", lambda file, size: reserved.append(size))
    assert Space(disk, "/data").probe(total)
    assert reserved == [size] and disk.listdir("/data") == []


def test_a_probe_is_written_to_the_disk_itself_and_leaves_nothing(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, closed, pwrite = list[tuple[int, int]](), list[str](), FaultyFile.pwrite

    def noted(file: FaultyFile, data: bytes, position: int) -> None:
        written.append((len(data), position))
        pwrite(file, data, position)

    monkeypatch.setattr(FaultyFile, "pwrite", noted)
    monkeypatch.setattr(FaultyFile, "close", lambda file: closed.append(file.path))
    space = Space(disk, "/data")
    assert space.probe(0) and written == [(4096, 0)] and closed == [f"/data/{PROBE}"]
    disk.errors = {"sync": ENOSPC}
    assert not space.probe(0), "some file systems find no space only then"
    assert disk.listdir("/data") == []
