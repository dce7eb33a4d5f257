"""After a kill, a start and a power cut, what was acknowledged after the start is still there."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from ottla.log.files.flush import FlushTask
from ottla.log.files.transaction_index import ENTRY
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import marker

CONFIG = LogConfig(segment_ms=1 << 60)
ID = bytes(range(16))
ID_TEXT = urlsafe_b64encode(ID).rstrip(b"=")


def open_log(disk: FaultyDisk, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        disk, FakeClock(), "/data/events-0", CONFIG, checkpoint=LogCheckpoint(recovery_point)
    )


def flush_all(disk: FaultyDisk, log: PartitionLog) -> None:
    """Flush as a broker with a thousand logs does: with one sync of the whole file system."""
    task = log.begin_flush(True)
    assert isinstance(task, FlushTask)
    disk.sync_file_system("/data")
    log.end_flush(task)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("rolled", [False, True])
def test_records_flushed_after_a_kill_survive_a_power_cut(rolled: bool, together: bool) -> None:
    for seed in range(20):
        disk = FaultyDisk(seed)
        disk.makedirs("/data")
        disk.sync_directory("/")
        log = open_log(disk)
        if rolled:
            log.append_bytes(batch(b"a"), 0)
            log.flush()
            log.roll()
        recovery_point = log.recovery_point
        log.append_bytes(batch(b"b"), 0)
        disk.kill()
        log = open_log(disk, recovery_point)
        log.append_bytes(batch(b"c"), 0)
        if together:
            flush_all(disk, log)
        else:
            log.flush()
        expected = values_of(log)
        disk.cut_power()
        assert values_of(open_log(disk, log.recovery_point)) == expected


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("rolled", [False, True])
def test_records_after_a_write_that_a_kill_tore_survive_a_power_cut(
    rolled: bool, together: bool
) -> None:
    def opened(recovery_point: int) -> PartitionLog:
        return PartitionLog.open(
            disk, FakeClock(), "/data/events-0", CONFIG, checkpoint=LogCheckpoint(recovery_point),
            topic_id=ID,
        )  # fmt: skip

    for seed in range(10):
        for operation in range(1, 9):
            disk = FaultyDisk(seed)
            disk.makedirs("/data")
            disk.sync_directory("/")
            log = opened(0)
            if rolled:
                log.append_bytes(batch(b"a"), 0)
                log.flush()
                log.roll()
            recovery_point = log.recovery_point
            with disk.stops_at(disk.operations + operation):
                log.append_bytes(batch(b"b"), 0)
            disk.kill()
            log = opened(recovery_point)
            log.append_bytes(batch(b"c"), 0)
            if together:
                flush_all(disk, log)
            else:
                log.flush()
            expected = values_of(log)
            disk.cut_power()
            assert disk.exists("/data/events-0/partition.metadata"), (seed, operation)
            assert ID_TEXT in disk.read_bytes("/data/events-0/partition.metadata")
            assert values_of(opened(log.recovery_point)) == expected


def test_a_log_whose_first_flush_never_came_is_its_topics_after_a_power_cut() -> None:
    def opened(recovery_point: int) -> PartitionLog:
        return PartitionLog.open(
            disk, FakeClock(), "/data/events-0", CONFIG, checkpoint=LogCheckpoint(recovery_point),
            topic_id=bytes(range(16)),
        )

    for seed in range(20):
        disk = FaultyDisk(seed)
        disk.makedirs("/data")
        disk.sync_directory("/")
        log = opened(0)
        log.append_bytes(batch(b"a"), 0)
        whose = disk.read_bytes("/data/events-0/partition.metadata")
        disk.kill()
        log = opened(0)
        log.append_bytes(batch(b"b"), 0)
        log.flush()
        disk.cut_power()
        assert disk.read_bytes("/data/events-0/partition.metadata") == whose


def test_a_torn_end_that_recovery_cut_does_not_come_back() -> None:
    for seed in range(40):
        disk = FaultyDisk(seed)
        log = open_log(disk)
        log.append_bytes(batch(b"a"), 0)
        log.flush()
        log.append_bytes(batch(b"torn" * 40), 0)
        file, size = log.segments[0].data_file(), log.segments[0].size
        file.pwrite(bytes(180), size - 180)     # as if only the file's size had reached the medium
        file.sync()
        disk.kill()
        log = open_log(disk, 1)
        log.roll()
        log.append_bytes(batch(b"b"), 0)
        disk.kill()
        log = open_log(disk, 1)
        log.append_bytes(batch(b"c"), 0)
        log.flush()
        disk.cut_power()
        assert values_of(open_log(disk, log.recovery_point)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("left", [0, 1])
def test_aborted_transactions_before_a_torn_end_stay_known(left: int) -> None:
    """Otherwise readers of committed records would get the records of these transactions."""
    disk = FaultyDisk(1)
    log = open_log(disk)
    for sequence in range(2):
        log.append_bytes(
            batch(b"x", producer_id=1, epoch=0, sequence=sequence, transactional=True), 0)
        log.append_bytes(marker(1, False), 0)
    log.append_bytes(batch(b"torn" * 40), 0)
    file, size = log.segments[0].data_file(), log.segments[0].size
    file.pwrite(bytes(180), size - 180)
    file.sync()
    # Of the file of aborted transactions, not all has reached the medium.
    index = log.segments[0].path(".txnindex")
    entries = disk.read_bytes(index)[: left * ENTRY.size]
    disk.kill()
    disk.unlink(index)
    if left:
        disk.write_atomically(index, entries)
    checkpoint = LogCheckpoint(aborted_sizes={})        # it distrusts no index
    log = PartitionLog.open(disk, FakeClock(), "/data/events-0", CONFIG, checkpoint=checkpoint)
    assert log.log_end_offset == 4
    assert [each[:3] for each in log.aborted_transactions(0, 4)] == [(1, 0, 1), (1, 2, 3)]
