"""Producer snapshots: each has a file named by its offset, which is written as a whole; a damaged
file is not used."""

from __future__ import annotations

import struct

import pytest

from ottla.log.files.producers import Producers
from ottla.log.files.snapshots import SnapshotFiles, decode, encode, path_of, state_of
from ottla.wire.checksum import crc32c_of
from tests.log.faulty_disk import FaultyDisk


def producers(*starts: int) -> Producers:
    made = Producers()
    for at, start in enumerate(starts):
        made.add(state_of(10 + at, 3, 7, 100 + at, 2, 1_700_000_000_000, 5, start))
    return made


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.makedirs("/d")
    return disk


def test_a_snapshot_has_kafkas_bytes() -> None:
    data = encode(producers(99))
    # version | checksum | count | id | epoch | sequence | offset | delta | time | epoch | start
    assert (data[:2] + data[6:]).hex(" ", -2) == (
        "0001 0000 0001 0000 0000 0000 000a 0003 0000 0007 0000 0000 0000 0064 0000 0002"
        " 0000 018b cfe5 6800 0000 0005 0000 0000 0000 0063"
    )
    assert data[2:6] == crc32c_of(data[6:]).to_bytes(4, "big")
    [state] = decode(data).values()
    assert (state.producer_id, state.epoch, state.last_sequence, state.last_offset) == (
        10, 3, 7, 100)
    assert (state.coordinator_epoch, state.transaction_start) == (5, 99)
    assert len(decode(encode(producers()))) == 0


def test_open_transactions_are_in_the_order_of_their_beginnings() -> None:
    again = decode(encode(producers(50, -1, 20)))
    assert [state.producer_id for state in again.values()] == [11, 12, 10]


def test_a_producer_without_a_batch_has_none_in_its_window() -> None:
    made = Producers()
    made.add(state_of(1, 0, -1, -1, 0, 5, 0, -1))
    [state] = decode(encode(made)).values()
    assert (state.last_sequence, state.last_offset) == (-1, -1)
    assert state_of(1, 0, 0, 9, 0, 5, 0, -1).last_offset == 9


def resealed(version: int, count: int, entries: bytes) -> bytes:
    body = struct.pack(">i", count) + entries
    return struct.pack(">hI", version, crc32c_of(body)) + body


def test_a_damaged_snapshot_is_refused() -> None:
    data = encode(producers(-1, -1))
    entries = data[10:]
    assert resealed(1, 2, entries) == data
    for wrong in (
        b"", data[:9], data[:-1], data + b"\0", data[:20] + b"\xff" + data[21:],
        resealed(0, 2, entries), resealed(2, 2, entries), resealed(1, 1, entries),
        resealed(1, 3, entries), resealed(1, -1, b""),
    ):
        with pytest.raises(ValueError, match=r"snapshot|producers"):
            decode(wrong)


@pytest.fixture
def files(disk: FaultyDisk) -> SnapshotFiles:
    files = SnapshotFiles(disk, [])
    for offset in (10, 20, 30):
        assert files.write("/d", offset, producers()) == path_of("/d", offset)
    return files


def left(disk: FaultyDisk) -> list[int]:
    return sorted(int(name.partition(".")[0]) for name in disk.listdir("/d"))


def test_a_snapshot_is_written_over_a_longer_one(disk: FaultyDisk) -> None:
    files = SnapshotFiles(disk, [7, 5])
    assert list(files.offsets) == [5, 7]
    files.write("/d", 7, producers(-1, -1, -1))
    files.write("/d", 7, producers(-1))
    assert len(decode(disk.read_bytes(path_of("/d", 7)))) == 1
    assert list(files.offsets) == [5, 7]


@pytest.mark.parametrize(("end", "kept"), [
    (31, [10, 20, 30]), (30, [10, 20, 30]), (29, [10, 20]), (20, [10, 20]), (9, []),
])
def test_snapshots_of_offsets_that_the_log_no_longer_has_are_deleted(
    disk: FaultyDisk, files: SnapshotFiles, end: int, kept: list[int]
) -> None:
    files.remove_above("/d", end)
    assert list(files.offsets) == left(disk) == kept


@pytest.mark.parametrize(("offset", "taken"), [
    (9, []), (10, [10]), (19, [10]), (20, [10, 20]), (99, [10, 20, 30]),
])
def test_snapshots_that_are_taken_are_for_others_to_remove(
    disk: FaultyDisk, files: SnapshotFiles, offset: int, taken: list[int]
) -> None:
    assert files.take_up_to("/d", offset) == [path_of("/d", at) for at in taken]
    assert list(files.offsets) == [at for at in (10, 20, 30) if at not in taken]
    assert left(disk) == [10, 20, 30]
    assert files.take("/d", 15) == []
