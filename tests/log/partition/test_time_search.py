"""A search by time finds exactly the record that a scan of the whole log finds."""

import random
from pathlib import Path

import pytest

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import remove_below_start
from ottla.log.partition.time_search import at_once
from ottla.wire.batch import batches
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, records_of


def random_log(path: Path, seed: int, codec: int) -> tuple[PartitionLog, random.Random]:
    """A log of one or more segments, and the random generator that made it. The timestamps go up
    and down, and some records have none."""
    chance = random.Random(seed)
    config = LogConfig(segment_bytes=3000, index_interval_bytes=300, segment_ms=1 << 60)
    log = PartitionLog.open(Disk(), FakeClock(), f"{path}/t{seed}-0", config)
    time = NOW_MS
    for _ in range(chance.randrange(1, 60)):
        records = []
        for _ in range(chance.randrange(1, 6)):
            time += chance.randrange(-50, 100)
            stamp = -1 if chance.random() < 0.1 else time
            records.append(Record(timestamp=stamp, value=bytes(chance.randrange(80))))
        log.append_bytes(build_batch(records, codec=codec), 4)
    return log, chance


def newest_of(records: list[Record], end: int) -> tuple[int, int, int] | None:
    """The first of the records below `end` that have the largest timestamp, found by a scan."""
    times = [r.timestamp for r in records if r.offset < end and r.timestamp >= 0]
    if not times:
        return None
    return next((r.offset, r.timestamp, 4) for r in records if r.timestamp == max(times))


@pytest.mark.parametrize("codec", range(5))
def test_a_search_by_time_equals_a_linear_scan(tmp_path: Path, codec: int) -> None:
    for seed in range(8):
        log, chance = random_log(tmp_path, seed, codec)
        for reopened in (False, True):
            if reopened:
                log.close()
                log = PartitionLog.open(
                    log.disk, log.clock, log.directory, log.config, clean=bool(seed % 2)
                )
                log.delete_before(chance.randrange(log.log_end_offset))
            records = records_of(log)
            times = [record.timestamp for record in records]
            for asked in {*times, 0, NOW_MS - 1, max(times) + 1, *(time + 1 for time in times)}:
                if asked < 0:
                    continue
                due = [r for r in records if r.timestamp >= asked]
                expected = (due[0].offset, due[0].timestamp, 4) if due else None
                assert log.offset_for_timestamp(asked) == expected, (seed, asked)
            stored = log.read_bytes(log.log_start_offset, 1 << 30)
            ends = [view.next_offset for view in batches(stored)]
            for end in {*chance.sample(ends, min(4, len(ends))), log.log_end_offset}:
                assert log.offset_of_max_timestamp(end) == newest_of(records, end), (seed, end)


def test_a_log_append_time_batch_is_found_by_its_first_record(tmp_path: Path) -> None:
    log = PartitionLog.open(Disk(), FakeClock(), f"{tmp_path}/t-0")
    log.append_bytes(batch(b"a", b"b", timestamp_type=1, max_timestamp=NOW_MS + 500), 0)
    assert log.offset_for_timestamp(NOW_MS + 400) == (0, NOW_MS + 500, 0)
    assert log.offset_of_max_timestamp() == (0, NOW_MS + 500, 0)


@pytest.mark.parametrize("codec", [0, 4])
def test_of_a_log_append_time_batch_only_what_compaction_left_is_found(
    tmp_path: Path, codec: int
) -> None:
    log = PartitionLog.open(Disk(), FakeClock(), f"{tmp_path}/t-0")
    log.append_bytes(batch(b"a"), 0)
    left = [Record(offset=at, timestamp=NOW_MS + at, value=b"%d" % at) for at in (3, 5)]
    log.append_run_bytes(
        build_batch(left, base_offset=1, last_offset=9, max_timestamp=NOW_MS + 500, codec=codec,
                    leader_epoch=0, timestamp_type=1), 0)
    assert log.offset_for_timestamp(NOW_MS + 400) == (3, NOW_MS + 500, 0)
    assert log.offset_of_max_timestamp() == (3, NOW_MS + 500, 0)
    log.delete_before(4)
    assert log.offset_for_timestamp(NOW_MS + 400) == (5, NOW_MS + 500, 0)
    log.delete_before(6)
    assert log.offset_for_timestamp(NOW_MS + 400) is None
    assert log.offset_of_max_timestamp() is None


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = PartitionLog.open(Disk(), FakeClock(), f"{tmp_path}/t-0")
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    log.append_bytes(batch(b"a", timestamps=[-1]), 0)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_a_batch_whose_records_were_compacted_is_not_the_newest(
    tmp_path: Path, timestamp_type: int
) -> None:
    log = PartitionLog.open(Disk(), FakeClock(), f"{tmp_path}/t-0")
    log.append_bytes(batch(b"a", timestamps=[NOW_MS]), 0)
    log.append_run_bytes(
        build_batch([], base_offset=1, last_offset=5, max_timestamp=NOW_MS + 9, leader_epoch=0,
                    timestamp_type=timestamp_type), 0)
    log.append_bytes(batch(b"b", timestamps=[NOW_MS + 3]), 0)
    assert log.offset_of_max_timestamp() == (6, NOW_MS + 3, 0)
    assert log.offset_of_max_timestamp(6) == (0, NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 4) is None


def test_the_newest_record_may_be_deleted(tmp_path: Path) -> None:
    log = PartitionLog.open(Disk(), FakeClock(), f"{tmp_path}/t-0")
    log.append_bytes(batch(b"a", b"b", b"c", timestamps=[NOW_MS + 9, NOW_MS + 2, NOW_MS + 3]), 0)
    log.append_bytes(batch(b"d", timestamps=[NOW_MS + 1]), 0)
    assert log.offset_of_max_timestamp() == (0, NOW_MS + 9, 0)
    log.delete_before(1)
    assert log.offset_of_max_timestamp() == (2, NOW_MS + 3, 0)
    log.delete_before(3)
    assert log.offset_of_max_timestamp() == (3, NOW_MS + 1, 0)


@pytest.mark.parametrize("newest", [False, True], ids=["the first from a time on", "the newest"])
def test_a_search_leaves_out_no_segment_while_retention_removes_older_ones(
    tmp_path: Path, newest: bool
) -> None:
    """Other work, such as retention, may run between two steps of a search."""
    disk, clock, config = Disk(), FakeClock(), LogConfig(segment_bytes=1)
    log = PartitionLog.open(disk, clock, f"{tmp_path}/t-0", config)
    for at, time in enumerate((0, 1, 50, 3, 4, 5)):
        log.append_bytes(batch(b"%d" % at, timestamps=[NOW_MS + time]), 0)
    log.close()
    log = PartitionLog.open(disk, clock, log.directory, config, clean=True)
    assert len(log.segments) == 6
    steps = log.newest_steps(6) if newest else log.timestamp_steps(NOW_MS + 2)
    next(steps).run()
    next(steps).run()
    log.delete_before(1)
    assert remove_below_start(log)
    assert at_once(steps) == (2, NOW_MS + 50, 0)
