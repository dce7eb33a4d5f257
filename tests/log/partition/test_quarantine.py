"""The damaged end of a replica's log is put aside: no byte of it is lost, and the log goes on."""

from __future__ import annotations

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import Damage
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk

DIRECTORY = "/data/t-0"
VALUES = [b"%d" % at * 20 for at in range(9)]
CONFIG = LogConfig(index_interval_bytes=100)
OPERATIONS = 40


def open_log(
    disk: FaultyDisk, recovery_point: int, first_dirty_offset: int = 0
) -> PartitionLog:
    return PartitionLog.open(
        disk, FakeClock(), DIRECTORY, CONFIG,
        checkpoint=LogCheckpoint(recovery_point, first_dirty_offset=first_dirty_offset),
    )


def write(log: PartitionLog, at: int, epoch: int) -> None:
    log.append_bytes(batch(VALUES[at], producer_id=1, epoch=0, sequence=at), epoch)


def damaged_log(first_dirty_offset: int = 0) -> tuple[FaultyDisk, PartitionLog, set[bytes]]:
    """A flushed log of three segments, whose second segment is damaged. Each segment has three
    records and a leader epoch of its own. The returned set has the contents of the damaged segment
    and of the segment after it."""
    disk = FaultyDisk()
    log = open_log(disk, 0, first_dirty_offset)
    for at in range(9):
        if at in (3, 6):
            log.roll()
        write(log, at, at // 3)
    log.flush()
    path = f"{DIRECTORY}/{3:020d}.log"
    inode = disk.names[path]
    assert inode is not None
    for content in (inode.content, inode.durable):
        content[len(content) // 2] ^= 1
    log.end_before(Damage(path, len(inode.content) // 3, "changed", 4))
    return disk, log, contents(disk, "log", 3)


def contents(disk: FaultyDisk, suffix: str, first: int = 0) -> set[bytes]:
    return {
        bytes(inode.content) for path, inode in disk.names.items()
        if inode is not None and path.endswith(f".{suffix}")
        and int(path.rpartition("/")[2].partition(".")[0]) >= first
    }


def test_the_log_ends_before_the_damaged_segment_and_goes_on_there() -> None:
    disk, log, kept = damaged_log()
    with pytest.raises(StorageFailed):
        write(log, 3, 3)
    aside = log.repair()
    assert (log.damage, log.offline, log.log_end_offset, log.latest_epoch) == (None, None, 3, 0)
    assert log.recovery_point == log.checkpoint_offset == 3
    assert contents(disk, "quarantine") == kept and len(aside) == 2
    for at in range(3, 9):
        write(log, at, 5)               # the log knows the producer's last record that is left
    log.flush()
    assert values_of(log) == VALUES
    log.close()
    again = open_log(disk, 0)
    assert (again.damage, values_of(again), again.epochs.entries) == (
        None, VALUES, [(0, 0), (5, 3)]
    )


def test_a_second_damage_of_the_same_segment_leaves_what_the_first_put_aside() -> None:
    disk, log, kept = damaged_log()
    log.repair()
    log.roll()
    write(log, 3, 5)
    log.roll()
    log.flush()
    (second,) = contents(disk, "log", 3) - {b""}
    log.end_before(Damage(f"{DIRECTORY}/{3:020d}.log", 0, "changed", 3))
    log.repair()
    assert contents(disk, "quarantine") >= kept | {second}


def test_what_compaction_went_over_goes_as_a_whole() -> None:
    disk, log, _ = damaged_log()
    log.note_cleaned(6)
    everything = contents(disk, "log")
    log.repair()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert contents(disk, "quarantine") == everything
    write(log, 0, 5)
    assert values_of(log) == VALUES[:1]


def test_damage_that_holds_the_log_start_leaves_an_empty_log_there() -> None:
    _, log, _ = damaged_log()
    log.delete_before(4)
    log.repair()
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)


def test_a_log_that_recovery_ended_before_damage_is_put_aside_with_what_followed() -> None:
    disk, _, kept = damaged_log()
    log = open_log(disk, 9)
    assert log.damage is not None and log.log_end_offset < 6
    log.repair()
    assert contents(disk, "quarantine") == kept
    assert (log.damage, log.log_end_offset, values_of(log)) == (None, 3, VALUES[:3])
    write(log, 3, 5)
    log.flush()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_a_crash_at_any_operation_leaves_all_bytes_and_a_log_that_ends_before_the_damage(
    power: bool,
) -> None:
    ends = set()
    for operation in range(1, OPERATIONS):
        disk, log, kept = damaged_log()
        whole = contents(disk, "log")
        disk.operations = 0
        with disk.stops_at(operation):
            log.repair()
        if power:
            disk.cut_power()
        else:
            disk.kill()
        log = open_log(disk, 9)
        assert contents(disk, "log") | contents(disk, "quarantine") >= whole, operation
        assert values_of(log)[:3] == VALUES[:3]
        assert values_of(log) == VALUES[: len(values_of(log))]
        ends.add((log.damage is None, log.log_end_offset))
        if log.damage is not None:
            log.repair()
        assert (log.log_end_offset, contents(disk, "quarantine")) == (3, kept)
    assert {sound for sound, _ in ends} == {False, True}


def test_a_disk_that_refuses_leaves_the_log_damaged_and_the_next_attempt_succeeds() -> None:
    disk, log, kept = damaged_log()
    disk.errors = {"name": 5}
    with pytest.raises(StorageFailed):
        log.repair()
    assert log.damage is not None and log.offline is not None
    disk.errors = {}
    log.repair()
    assert (log.log_end_offset, contents(disk, "quarantine")) == (3, kept)
