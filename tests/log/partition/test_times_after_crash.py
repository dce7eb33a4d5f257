"""After any stop, a log knows the newest timestamp of each segment; look-ups and retention need
it."""

from __future__ import annotations

import random

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import clean
from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import apply_retention
from ottla.log.partition.segment import Segment
from ottla.log.storage.move_transfer import Move
from ottla.log.storage.storage import Storage
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, records_of
from tests.log.faulty_disk import FaultyDisk

CONFIG = LogConfig(index_interval_bytes=150, segment_ms=1 << 60, retention_ms=-1)
TOPIC_ID = bytes(range(16))


def open_log(disk: FaultyDisk, recovery_point: int = 0, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(
        disk, FakeClock(), "/data/events-0", CONFIG,
        checkpoint=LogCheckpoint(recovery_point), clean=clean,
        open_files=OpenFiles(2),
    )


def write(log: PartitionLog, times: list[int]) -> None:
    for time in times:
        log.append_bytes(batch(b"%d" % time * 6, timestamps=[NOW_MS + time]), 0)


def rolled_log(disk: FaultyDisk) -> PartitionLog:
    """A sealed segment whose newest record is its last one, and an active segment."""
    log = open_log(disk)
    write(log, [*range(10), 500])
    log.roll()
    write(log, [20, 21])
    return log


def check_times(log: PartitionLog) -> None:
    """Check that look-ups and each segment's newest time agree with a scan of the records."""
    records = records_of(log)
    times = [record.timestamp for record in records]
    for asked in {*times, *(time + 1 for time in times)}:
        expected = next(
            ((r.offset, r.timestamp, 0) for r in records if r.timestamp >= asked), None
        )
        assert log.offset_for_timestamp(asked) == expected, asked
    newest = max(times)
    expected = next((r.offset, r.timestamp, 0) for r in records if r.timestamp == newest)
    assert log.offset_of_max_timestamp() == expected
    for segment in log.segments:
        inside = [r.timestamp for r in records
                  if segment.base_offset <= r.offset < segment.end_offset]
        if inside:
            assert segment.largest_timestamp() == max(inside)


def test_times_of_recovered_segments_hold_after_the_next_clean_stop() -> None:
    disk = FaultyDisk()
    rolled_log(disk)
    disk.kill()
    log = open_log(disk)
    check_times(log)
    log.close()
    check_times(open_log(disk, log.recovery_point, clean=True))


def test_times_of_recovered_segments_hold_after_a_flush_and_another_kill() -> None:
    disk = FaultyDisk()
    rolled_log(disk)
    disk.kill()
    log = open_log(disk)
    log.flush()
    disk.kill()
    check_times(open_log(disk, log.recovery_point))


@pytest.mark.parametrize("by_file_system", [False, True])
def test_indexes_of_recovered_segments_are_on_the_medium_after_a_flush(
    by_file_system: bool,
) -> None:
    disk = FaultyDisk()
    expected = rolled_log(disk)
    expected.close()
    names = [f"/data/events-0/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    right = [disk.read_bytes(name) for name in names]
    disk = FaultyDisk()
    rolled_log(disk)
    disk.kill()
    log = open_log(disk)
    task = log.begin_flush(by_file_system)
    if by_file_system:
        disk.sync_file_system("/data")
    else:
        task.run()
    log.end_flush(task)
    disk.cut_power()
    assert [disk.read_bytes(name) for name in names] == right
    check_times(open_log(disk, log.recovery_point))


def test_retention_keeps_a_recovered_segment_with_a_young_record() -> None:
    disk = FaultyDisk()
    rolled_log(disk)
    disk.kill()
    open_log(disk).close()
    log = open_log(disk, 13, clean=True)
    assert isinstance(log.clock, FakeClock)
    log.clock.advance(NOW_MS + 600 - log.clock.now_ms())
    log.configure(LogConfig(index_interval_bytes=150, retention_ms=200))
    assert apply_retention(log, log.log_end_offset) == [] and log.log_start_offset == 0
    log.clock.advance(NOW_MS + 701 - log.clock.now_ms())
    assert apply_retention(log, log.log_end_offset) and log.log_start_offset > 0


@pytest.mark.parametrize("lost", range(1, 12))
def test_a_time_index_that_lacks_its_last_entries_is_made_anew(lost: int) -> None:
    disk = FaultyDisk()
    log = rolled_log(disk)
    log.close()
    file = disk.open(f"/data/events-0/{0:020d}.timeindex")
    file.truncate(max(0, file.size() - 12 * lost))
    log = open_log(disk, log.recovery_point, clean=True)
    check_times(log)


@pytest.mark.parametrize("lost", range(1, 6))
def test_a_segment_whose_first_batch_has_no_time_is_searched_all_the_same(lost: int) -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    write(log, [-1 - NOW_MS, -1 - NOW_MS, 5, -1 - NOW_MS, 7, 9, 6])
    log.roll()
    write(log, [8])
    log.close()
    file = disk.open(f"/data/events-0/{0:020d}.timeindex")
    file.truncate(max(0, file.size() - 12 * lost))
    log = open_log(disk, log.recovery_point, clean=True)
    assert log.offset_for_timestamp(NOW_MS) == (2, NOW_MS + 5, 0)
    assert log.offset_of_max_timestamp() == (5, NOW_MS + 9, 0)


def test_times_hold_wherever_the_power_went() -> None:
    """Timestamps go up and down, and the log is rolled, flushed, and stopped at any operation by
    kills and power cuts."""
    for seed in range(400):
        chance = random.Random(seed)
        disk = FaultyDisk(seed)
        log, recovery_point = open_log(disk), 0
        time = 0
        for _ in range(6):
            with disk.stops_at(disk.operations + chance.randrange(1, 60)):
                for _ in range(chance.randrange(1, 30)):
                    choice = chance.random()
                    if choice < 0.75:
                        time += chance.choice([1, 1, 1, -5, 9])
                        write(log, [time])
                    elif choice < 0.85:
                        log.roll()
                    else:
                        log.flush()
                        recovery_point = log.recovery_point
            if chance.random() < 0.5:
                disk.kill()
            else:
                disk.cut_power()
            log = open_log(disk, recovery_point)
            assert log.damage is None
            if chance.random() < 0.3:
                log.close()
                recovery_point = log.recovery_point
                log = open_log(disk, recovery_point, clean=True)
            if records_of(log):
                try:
                    check_times(log)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}") from error


def test_times_of_a_recovered_log_hold_after_a_move() -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    write(log, [*range(10), 500])
    log.roll()
    write(log, [20, 21])
    disk.kill()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    source = storage.homes["events", 0]
    (target,) = [each for each in storage.directories if each is not source]
    move = Move(storage, ("events", 0), target)
    storage.moves["events", 0] = move
    move.begin()
    while not move.nearly_done():
        copy = move.plan(300)
        copy.run()
        move.note(copy)
    move.prepare()
    storage.checkpoint()
    move.swap()
    move.finish()()
    check_times(log)
    storage.close()
    storage = Storage.open(disk, FakeClock(), ["/a", "/b"])
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    assert log.directory.startswith(target.path)
    check_times(log)


@pytest.mark.parametrize("how", ["kill", "clean"])
def test_times_of_a_recovered_log_hold_after_compaction(how: str) -> None:
    disk = FaultyDisk()
    config = LogConfig(
        index_interval_bytes=150, cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0, segment_ms=1 << 60,
    )

    def opened(recovery_point: int = 0, clean: bool = False) -> PartitionLog:
        return PartitionLog.open(
            disk, FakeClock(), "/data/events-0", config, checkpoint=LogCheckpoint(recovery_point),
            clean=clean,
        )

    log = opened()
    for at, time in enumerate([*range(10), 500]):
        record = Record(timestamp=NOW_MS + time, key=b"%d" % (at % 4), value=bytes(60))
        log.append_bytes(build_batch([record]), 0)
    log.roll()
    write(log, [20, 21])
    disk.kill()
    log = opened()
    log.flush()
    target = cleanable(log, log.log_end_offset, NOW_MS + 10_000)
    assert target is not None
    clean(target, 1 << 20, lambda paths: None)
    assert len(records_of(log)) < 13
    check_times(log)
    if how == "clean":
        log.close()
    else:
        log.flush()
        disk.kill()
    check_times(opened(log.recovery_point, clean=how == "clean"))


def test_a_full_disk_does_not_keep_a_log_from_its_recovery() -> None:
    disk = FaultyDisk()
    rolled_log(disk)
    disk.kill()
    disk.free = 0
    log = open_log(disk)
    check_times(log)
    disk.free = 1 << 20
    log.flush()
    disk.kill()
    check_times(open_log(disk, log.recovery_point))


def test_a_header_that_is_cut_off_has_no_timestamp() -> None:
    """It does not get the timestamp that an earlier read has left in memory."""
    disk = FaultyDisk()
    rolled_log(disk).close()
    segment = Segment(disk, OpenFiles(2), "/data/events-0", 0, 1000)
    segment.reset_indexes()
    for size, known in ((61, NOW_MS), (60, -1)):
        segment.data_file().truncate(size)
        segment.read_times()
        assert segment.first_timestamp == known
