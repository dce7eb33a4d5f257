"""Missing offsets: readers skip the gaps that compaction left; a lost batch leaves no gap."""

from __future__ import annotations

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Cleaner, Steps
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import CorruptMessage
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, values_of
from tests.log.faulty_disk import FaultyDisk

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=650, segment_ms=1 << 60
)
DELETE = LogConfig(segment_ms=1 << 60, retention_ms=-1)
DIRECTORY = "/data/t-0"


def open_log(disk: FaultyDisk, config: LogConfig) -> PartitionLog:
    """Open a log as after a kill, with a recovery point of 0."""
    return PartitionLog.open(disk, FakeClock(), DIRECTORY, config)


def keyed(key: int, value: bytes) -> bytes:
    return build_batch([Record(-1, NOW_MS, b"%d" % key, value)])


@pytest.mark.parametrize("config", [DELETE, COMPACT], ids=["delete", "compact"])
def test_a_batch_that_a_power_cut_took_from_a_sealed_segment_ends_the_log_there(
    config: LogConfig,
) -> None:
    """The batches after it were not flushed either. In a compacted topic, the log ends there too:
    its cleanup policy may change later, and then a hole would stop every reader for ever."""
    disk = FaultyDisk()
    log = open_log(disk, config)
    sizes = []
    for number in range(6):
        if number == 3:
            log.roll()
        log.append_bytes(keyed(number, b"%d" % number), 0)
        sizes.append(log.segments[-1].size)
    disk.open(f"{DIRECTORY}/{0:020d}.log").truncate(sizes[1])
    log = open_log(disk, config)
    assert log.log_end_offset == 2
    assert values_of(log) == [b"0", b"1"]
    log.append_bytes(keyed(7, b"7"), 1)
    log.configure(DELETE)
    assert values_of(log) == [b"0", b"1", b"7"]


def cleaning(log: PartitionLog) -> Steps:
    """Append an active segment of one record; returns a pass over the segments before it."""
    log.append_bytes(keyed(1000, b"end"), 0)
    log.flush()
    target = cleanable(log, log.log_end_offset, NOW_MS)
    assert target is not None
    return Cleaner(target, 1 << 20, 1.0, lambda paths: None).steps()


@pytest.mark.parametrize("kept_at_start", [1, 0])
def test_the_gaps_of_a_pass_that_did_not_come_to_its_end_are_read_over_without_compaction(
    kept_at_start: int,
) -> None:
    """The log records only at the end of a pass how far it has been cleaned."""
    disk = FaultyDisk()
    log = open_log(disk, COMPACT)
    for segment in range(4):
        for number in range(8):
            key = number if kept_at_start <= number < 7 else 100 * (segment + 1) + number
            log.append_bytes(keyed(key, b"%d.%d" % (segment, number)), 0)
        log.roll()
    steps = cleaning(log)
    for task in steps:
        if task is not None:
            task.run()
        if b"0.3" not in values_of(log):
            break
    steps.close()
    kept = values_of(log)
    assert b"0.3" not in kept and b"2.3" in kept
    assert log.first_dirty_offset == 0
    for again in (log, open_log(disk, DELETE)):
        again.configure(DELETE)
        assert values_of(again) == kept
        for offset in range(again.log_start_offset, again.log_end_offset):
            assert again.read_bytes(offset, 1 << 20)


@pytest.mark.parametrize("segment_bytes", [100, 160, 250, 1 << 20])
def test_a_copy_of_a_compacted_log_is_read_from_everywhere_once_it_is_not_compacted_any_more(
    segment_bytes: int,
) -> None:
    """A follower's segments, even the active one, may begin where its leader's log has gaps,
    although the follower has compacted nothing itself."""
    log = open_log(FaultyDisk(), COMPACT)
    for segment in range(4):
        for number in range(8):
            key = number if number < 7 else 100 * (segment + 1)
            log.append_bytes(keyed(key, b"%d.%d" % (segment, number)), 0)
        log.roll()
    for task in cleaning(log):
        if task is not None:
            task.run()
    assert b"0.6" not in values_of(log)
    disk = FaultyDisk()
    copy = open_log(disk, COMPACT._replace(segment_bytes=segment_bytes))
    while copy.log_end_offset < log.log_end_offset:
        copy.configure(COMPACT._replace(segment_bytes=segment_bytes))
        copy.append_run_bytes(log.read_bytes(copy.log_end_offset, 80), 0)
        copy.flush()
        for again in (copy, open_log(disk, DELETE)):
            again.configure(DELETE)
            for offset in range(again.log_end_offset):
                assert again.read_bytes(offset, 1 << 20)


def two_segments() -> FaultyDisk:
    """Offsets 0 to 5 in a sealed segment, 6 in the next one, after a clean stop."""
    disk = FaultyDisk()
    log = open_log(disk, DELETE)
    for number in range(6):
        log.append_bytes(keyed(number, b"%d" % number), 0)
    log.roll()
    log.append_bytes(keyed(9, b"9"), 0)
    log.close()
    return disk


def reopened(disk: FaultyDisk) -> PartitionLog:
    """The log of `two_segments` after its clean stop, whatever was done to its files since."""
    return PartitionLog.open(
        disk, FakeClock(), DIRECTORY, DELETE, clean=True,
        checkpoint=LogCheckpoint(7),
    )


def test_a_file_of_another_partition_is_no_gap() -> None:
    """The first batch of such a file may be after the requested offset, as in a compacted
    segment."""
    disk = two_segments()
    for foreign in ([2, 3, 4], [4, 5, 6], [2, 7]):
        data = bytearray()
        for offset in foreign:
            batch = bytearray(keyed(offset, b"%d" % offset))
            batch[:8] = offset.to_bytes(8, "big")
            data += batch
        file = disk.open(f"{DIRECTORY}/{0:020d}.log")
        file.truncate(0)
        file.pwrite(bytes(data), 0)
        log = reopened(disk)
        with pytest.raises(CorruptMessage):
            log.read_bytes(0, 1 << 20)


def test_a_batch_with_a_wrong_base_offset_is_no_gap() -> None:
    disk = two_segments()
    file = disk.open(f"{DIRECTORY}/{0:020d}.log")
    size = len(keyed(0, b"0"))
    file.pwrite((4).to_bytes(8, "big"), 3 * size)       # it was 3, and 4 follows
    log = reopened(disk)
    with pytest.raises(CorruptMessage):
        log.read_bytes(3, 1 << 20)
