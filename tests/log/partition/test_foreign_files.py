"""Whatever happened to a partition's files while the broker was down, its answers are true.

Every file but `.log` can be rebuilt from the batches. A batch that has been changed is never
skipped silently. Either reads end before it with an error, or it is served as it is, and the client
finds that its checksum is wrong.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.storage import Storage
from ottla.wire.checksum import crc32c_of
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange, StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, split
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import (
    CONFIG,
    DATA,
    TOPIC_ID,
    change,
    everything,
    marker,
    open_storage,
    reopened,
    written,
)

SUFFIXES = (
    ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint",
    "partition.metadata",
)

Change = Callable[[bytes, bytes, random.Random], bytes | None]
CHANGES: dict[str, Change] = {
    "garbled": lambda data, other, chance: flipped(data, chance, 3),
    "garbage": lambda data, other, chance: chance.randbytes(len(data)),
    "an entry garbled": lambda data, other, chance: overwritten(data, chance, 12),
    "truncated": lambda data, other, chance: data[: chance.randrange(len(data) + 1)],
    "cut before the last entry": lambda data, other, chance: data[: max(len(data) - 34, 0)],
    "zeroed": lambda data, other, chance: bytes(len(data)),
    "zeroed in part": lambda data, other, chance: zeroed_from(data, chance),
    "empty": lambda data, other, chance: b"",
    "removed": lambda data, other, chance: None,
    "of another partition": lambda data, other, chance: other,
}


def flipped(data: bytes, chance: random.Random, count: int) -> bytes:
    changed = bytearray(data)
    for _ in range(count if data else 0):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def overwritten(data: bytes, chance: random.Random, size: int) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(min(size, len(data) - at)) + data[at + size :]


def zeroed_from(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    end = chance.randrange(at, len(data) + 1)
    return data[:at] + bytes(end - at) + data[end:]


def names_with(disk: FaultyDisk, suffix: str) -> list[str]:
    return sorted(name for name in disk.names if name.startswith(DATA) and name.endswith(suffix))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_answers_are_true_whatever_became_of_a_file(suffix: str, how: str, clean: bool) -> None:
    for seed in range(6):
        disk = written(seed, clean)
        expected = list(everything(reopened(written(seed, clean))))
        other = written(seed + 100, clean)
        chance = random.Random(seed)
        for name, foreign in zip(names_with(disk, suffix), names_with(other, suffix), strict=False):
            data = CHANGES[how](disk.read_bytes(name), other.read_bytes(foreign), chance)
            change(disk, name, data)
        found = list(everything(reopened(disk)))
        assert found == expected, f"seed {seed}"


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_file_that_the_disk_refuses_to_read_is_made_anew(suffix: str, clean: bool) -> None:
    for seed in range(4):
        disk = written(seed, clean)
        expected = list(everything(reopened(written(seed, clean))))
        disk.unreadable = {disk.inode(name) for name in names_with(disk, suffix)}
        assert disk.unreadable
        log = reopened(disk)
        assert list(everything(log)) == expected, f"seed {seed}"
        disk.unreadable = {disk.inode(name) for name in names_with(disk, suffix)}
        log = reopened(disk)
        log.append_bytes(batch(b"one more"), 9)
        assert split(log.read_bytes(log.log_end_offset - 1, 1 << 20))


@pytest.mark.parametrize("how", CHANGES)
def test_an_index_that_was_rebuilt_or_not_yet_stays_right_over_a_kill_and_a_power_cut(
    how: str,
) -> None:
    """A clean stop records the sizes of the indexes, but only the next start has this record; later
    starts do not. They do not notice the wrong index in recovery either, which reads nothing below
    the recovery point. And if the index was rebuilt, the name of its file has to be durable."""
    for seed, read_first in ((1, True), (2, True), (3, False), (4, False)):
        disk = written(seed, clean=True)
        expected = list(everything(reopened(written(seed, clean=True))))
        chance = random.Random(seed)
        for name in names_with(disk, ".txnindex"):
            data = disk.read_bytes(name)
            change(disk, name, CHANGES[how](data, data[::-1], chance))
        for inode in disk.names.values():
            if inode is not None:
                inode.durable, inode.pending = bytearray(inode.content), []
        disk.sync_file_system("/data")
        for end in (disk.kill, disk.kill, disk.cut_power, disk.cut_power):
            log = reopened(disk)
            if read_first:
                assert list(everything(log)) == expected, f"seed {seed}"
            end()
        assert list(everything(reopened(disk))) == expected, f"seed {seed}"


def test_a_cut_in_a_segment_with_a_garbled_index_leaves_the_index_to_be_rebuilt() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open(disk, FakeClock(), "/data/events-0", CONFIG)
    for number in range(3):
        log.append_bytes(
            batch(b"x", producer_id=1, epoch=0, sequence=number, transactional=True), 0)
        log.append_bytes(marker(1, False), 0)
    name, = names_with(disk, ".txnindex")
    change(disk, name, b"\xff" * 3 * 34)
    log.truncate_to(4)
    assert [each[:3] for each in log.aborted_transactions(0, 4)] == [(1, 0, 1), (1, 2, 3)]


@pytest.mark.parametrize("entry", [(7, 1 << 20), (0, 900), (7, -5)])
def test_a_reader_that_goes_on_believes_no_entry_that_cannot_be(entry: tuple[int, int]) -> None:
    """A reader that continues after a batch takes the end of the next batch from an index entry,
    without reading that batch."""
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    for _ in range(9):
        log.append_bytes(batch(bytes(400)), 0)
    size = log.size_bytes // 9
    storage.close()
    name, = names_with(disk, ".index")
    data = bytearray(disk.read_bytes(name))
    data[5 * 8 : 6 * 8] = b"".join(each.to_bytes(4, "big", signed=True) for each in entry)
    change(disk, name, bytes(data))
    log = reopened(disk)
    for offset in range(9):
        for bound in (1, size, size + 10, 3 * size):
            whole = split(log.read_bytes(offset, bound))
            assert whole, f"nothing whole at {offset} for {bound} bytes"
            assert int.from_bytes(whole[0][:8], "big") == offset


@pytest.mark.parametrize("stops", [1, 2], ids=["read at once", "read after another stop"])
@pytest.mark.parametrize("how", CHANGES)
def test_no_aborted_transaction_is_lost_where_another_is_open_at_the_stop(
    how: str, stops: int
) -> None:
    """When the open transaction is aborted, an entry is appended to the index. If another program
    had shortened the index, its size may be right again, although an entry is missing."""

    def started(disk: FaultyDisk) -> tuple[Storage, PartitionLog]:
        storage = open_storage(disk)
        return storage, storage.get_or_create("events", 0, TOPIC_ID, CONFIG)

    def aborted(changed: bool) -> list[tuple[int, ...]]:
        disk, chance = FaultyDisk(1), random.Random(2)
        storage, log = started(disk)
        for producer in (1, 2):
            log.append_bytes(
                batch(b"x", producer_id=producer, epoch=0, sequence=0, transactional=True), 0)
            if producer == 1:
                log.append_bytes(marker(1, False), 0)
        storage.close()
        name, = names_with(disk, ".txnindex")
        if changed:
            data = disk.read_bytes(name)
            change(disk, name, CHANGES[how](data, data[::-1], chance))
        storage, log = started(disk)
        assert log.stable_offset(3) == 2
        log.append_bytes(marker(2, False), 1)
        if stops > 1:
            storage.close()
            storage, log = started(disk)
        assert log.stable_offset(4) == 4
        return [each[:3] for each in log.aborted_transactions(0, 4)]

    assert aborted(True) == aborted(False) == [(1, 0, 1), (2, 2, 3)]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("how", CHANGES)
def test_batches_that_are_not_as_written_are_never_skipped_without_a_word(
    how: str, clean: bool
) -> None:
    for seed in range(10):
        disk, end = written(seed, clean), reopened(written(seed, clean)).log_end_offset
        other = written(seed + 100, clean)
        chance = random.Random(seed)
        names = names_with(disk, ".log")
        at = chance.randrange(len(names))
        data = CHANGES[how](
            disk.read_bytes(names[at]), other.read_bytes(names_with(other, ".log")[at]), chance
        )
        change(disk, names[at], data)
        log = reopened(disk)
        for offset in range(end):
            check_read(log, offset)
        for time in range(-5, 140, 7):
            with contextlib.suppress(CorruptMessage, StorageFailed):
                log.offset_for_timestamp(NOW_MS + time)
        with contextlib.suppress(CorruptMessage, StorageFailed):
            log.aborted_transactions(0, end)


def check_read(log: PartitionLog, offset: int) -> None:
    """Check that a read at this offset returns the batch with the offset, a batch with a wrong
    checksum, nothing, or an error that a client knows."""
    try:
        whole = split(log.read_bytes(offset, 1))
    except (CorruptMessage, StorageFailed, OffsetOutOfRange):
        return
    if not whole:
        return                                  # the log itself ends before `offset`
    data = whole[0]
    if crc32c_of(data[21:]) != int.from_bytes(data[17:21], "big"):
        return
    first = int.from_bytes(data[:8], "big")
    assert first <= offset <= first + int.from_bytes(data[23:27], "big")
