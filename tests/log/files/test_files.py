"""Small files (indexes, leader epochs, checkpoints), file descriptors, retention, and bytes that
other programs can read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from ottla.log.files import checkpoints
from ottla.log.files.disk import Disk
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.offset_index import OffsetIndex
from ottla.log.files.open_files import OpenFiles
from ottla.log.files.time_index import TimeIndex
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import apply_retention, segments_due
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, values_of
from tests.log.faulty_disk import FaultyDisk, FaultyFile


@given(st.lists(st.integers(1, 50), max_size=1200), st.data())
def test_the_offset_index_finds_the_last_entry_not_above(
    steps: list[int], data: st.DataObject
) -> None:
    disk = FaultyDisk()
    disk.makedirs("/d")
    index = OffsetIndex(disk, "/d/x.index", 1000)
    entries, offset = [], 1000
    for at, step in enumerate(steps):
        offset += step
        entries.append((offset, at * 4096))
        index.append(offset, at * 4096)
    if data.draw(st.booleans()):
        index.write()
        index = OffsetIndex(disk, "/d/x.index", 1000)
    assert index.entries() == entries
    for _ in range(20):
        asked = data.draw(st.integers(990, offset + 10))
        assert index.lookup(asked) == max([p for o, p in entries if o <= asked], default=0)
    cut = data.draw(st.integers(1000, offset + 5))
    index.truncate_to(cut)
    entries = [entry for entry in entries if entry[0] < cut]
    assert index.entries() == entries
    index.append(offset + 100, 7)
    assert index.entries() == [*entries, (offset + 100, 7)]


@given(st.lists(st.tuples(st.integers(-20, 50), st.integers(1, 9)), max_size=900), st.data())
def test_the_time_index_ascends_and_finds(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    disk = FaultyDisk()
    disk.makedirs("/d")
    index = TimeIndex(disk, "/d/x.timeindex", 70)
    entries: list[tuple[int, int]] = []
    time, offset = NOW_MS, 70
    for time_step, offset_step in steps:
        time, offset = time + time_step, offset + offset_step
        if not entries or time > entries[-1][0]:
            entries.append((time, offset))
        index.append(time, offset)
    assert index.entries() == entries
    assert index.last() == (entries[-1] if entries else None)
    for _ in range(20):
        asked = data.draw(st.integers(NOW_MS - 30, NOW_MS + 60 + max(0, time - NOW_MS)))
        assert index.lookup(asked) == max([o for t, o in entries if t <= asked], default=70)


def test_an_index_entry_is_kafkas(tmp_path: Path) -> None:
    log = PartitionLog.open(
        Disk(), FakeClock(), f"{tmp_path}/t-0", LogConfig(index_interval_bytes=100)
    )
    log.append_bytes(batch(b"x" * 100, b"y"), 0)
    first_size = log.size_bytes
    log.append_bytes(batch(b"x", b"y", b"z"), 0)
    log.close()
    base = tmp_path / "t-0" / f"{0:020d}"
    assert base.with_suffix(".index").read_bytes() == (
        (4).to_bytes(4, "big") + first_size.to_bytes(4, "big")
    )
    assert base.with_suffix(".timeindex").read_bytes() == (
        (NOW_MS + 2).to_bytes(8, "big") + (4).to_bytes(4, "big")
    )


def test_kafka_python_reads_a_segment_file(tmp_path: Path) -> None:
    log = PartitionLog.open(Disk(), FakeClock(), f"{tmp_path}/t-0")
    for codec in range(5):
        log.append_bytes(batch(b"a%d" % codec, b"b%d" % codec, codec=codec), codec)
    log.close()
    records = MemoryRecords((tmp_path / "t-0" / f"{0:020d}.log").read_bytes())
    found = []
    while (data := records.next_batch()) is not None:
        assert data.validate_crc()
        found += [(record.offset, record.value) for record in data]
    assert found == [
        (2 * codec + at, b"%c%d" % (b"ab"[at], codec)) for codec in range(5) for at in range(2)
    ]


def test_leader_epochs_answer_as_kip_101_and_279_say() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (5, 30)])
    assert [epochs.end_offset(epoch, 40) for epoch in range(7)] == [
        (0, 10),
        (1, 10),
        (2, 20),
        (2, 20),
        (4, 30),
        (5, 40),
        (-1, -1),
    ]
    assert LeaderEpochs().end_offset(0, 40) == (-1, -1)
    assert [epochs.of_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 5]
    epochs.truncate_from_end(30)
    assert epochs.entries == [(2, 10), (4, 20)]
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15), (4, 20)]
    epochs.truncate_from_start(20)
    assert epochs.entries == [(4, 20)]
    assert LeaderEpochs.decode(epochs.encode()).entries == epochs.entries


def test_an_epoch_without_records_gives_way() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 5)])
    epochs.assign(3, 5)
    epochs.assign(3, 9)
    assert epochs.entries == [(1, 0), (3, 5)]


def test_offset_checkpoints_round_trip_and_a_damaged_one_counts_as_missing() -> None:
    offsets = {("events", 0): 5, ("a.b-c_d", 12): 2**40}
    data = checkpoints.encode_offsets(offsets)
    assert checkpoints.decode_offsets(data) == offsets
    disk = FaultyDisk()
    assert checkpoints.read_offsets(disk, "/none") == {}
    one_short, no_offset = b"0\n2\na 1 2\n", b"0\n1\na 1\n"
    assert checkpoints.decode_offsets(b"") == {}, "as Kafka creates it"
    for wrong in (b"0", b"0\n", b"1\n0\n", one_short, no_offset, b"0\nx\n", b"\xff"):
        with pytest.raises(ValueError):
            checkpoints.decode_offsets(wrong)


def test_few_files_are_open_however_many_logs_are_used() -> None:
    disk, open_files = FaultyDisk(), OpenFiles(5)
    logs = [
        PartitionLog.open(disk, FakeClock(), f"/data/t-{at}", open_files=open_files)
        for at in range(20)
    ]
    for round_number in range(4):
        for at, log in enumerate(logs):
            log.append_bytes(batch(b"%d" % at, b"%d" % round_number), 0)
            assert len(open_files) == min(5, at + 1 + 20 * round_number)
    for at, log in enumerate(logs):
        assert values_of(log) == [
            value for number in range(4) for value in (b"%d" % at, b"%d" % number)
        ]
        log.close()
    assert len(open_files) == 0


class OpeningsDisk(FaultyDisk):
    """A disk that counts how often `.log` files of the partition busy-0 are opened."""

    busy = 0

    def open(self, path: str, create: bool = False) -> FaultyFile:
        self.busy += path.startswith("/data/busy-0/") and path.endswith(".log")
        return super().open(path, create)


@pytest.mark.parametrize("use", ["append", "append of several batches", "read"])
def test_a_log_in_use_keeps_its_files_open_while_others_come_and_go(use: str) -> None:
    disk, open_files = OpeningsDisk(), OpenFiles(10)
    busy = PartitionLog.open(disk, FakeClock(), "/data/busy-0", open_files=open_files)
    leader = PartitionLog.open(FaultyDisk(), FakeClock(), "/data/leader-0")
    busy.append_bytes(batch(b"first"), 0)
    leader.append_bytes(batch(b"first"), 0)
    for at in range(100):
        other = PartitionLog.open(disk, FakeClock(), f"/data/t-{at}", open_files=open_files)
        other.append_bytes(batch(b"x"), 0)
        if use == "read":
            busy.read_bytes(0, 100)
        elif use == "append":
            busy.append_bytes(batch(b"y"), 0)
        else:
            for _ in range(3):
                leader.append_bytes(batch(b"y"), 0)
            busy.append_run_bytes(leader.read_bytes(busy.log_end_offset, 1000), 0)
    assert disk.busy <= 2, "opened, and perhaps closed once by the first round"


class Facts:
    """The properties of a segment that retention uses."""

    def __init__(self, base_offset: int, end_offset: int, size: int, age_ms: int) -> None:
        self.base_offset, self.end_offset, self.size = base_offset, end_offset, size
        self.newest_ms = NOW_MS - age_ms

    def largest_timestamp(self, patient: bool = False) -> int:
        return self.newest_ms


def due(config: LogConfig, start: int = 0, high_watermark: int = 30) -> int:
    segments = [Facts(0, 10, 100, 5000), Facts(10, 20, 100, 3000), Facts(20, 30, 100, 1000)]
    return segments_due(segments, config, NOW_MS, start, high_watermark)


def test_retention_goes_by_time_size_and_start_whichever_says_more() -> None:
    keep = LogConfig(retention_ms=-1)
    assert due(keep) == 0
    assert due(LogConfig(retention_ms=3000)) == 1
    assert due(LogConfig(retention_ms=2999)) == 2
    assert due(LogConfig(retention_ms=0)) == 3
    assert due(LogConfig(retention_ms=-1, retention_bytes=200)) == 1
    assert due(LogConfig(retention_ms=-1, retention_bytes=101)) == 1
    assert due(LogConfig(retention_ms=-1, retention_bytes=0)) == 3
    assert due(keep, start=20) == 2
    assert due(LogConfig(retention_ms=0), high_watermark=19) == 1
    assert due(LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact"}))) == 0


def test_an_empty_segment_keeps_no_later_one_from_its_deletion() -> None:
    """Apache Kafka's compaction leaves such segments in the logs that an import adopts."""
    disk, clock = FaultyDisk(), FakeClock()
    log = PartitionLog.open(disk, clock, "/data/t-0", LogConfig(segment_bytes=200))
    log.truncate_fully_and_start_at(7)
    for _ in range(3):
        log.append_bytes(batch(b"x" * 100), 0)
    log.close()
    disk.open(f"/data/t-0/{0:020d}.log", create=True)
    log = PartitionLog.open(disk, clock, "/data/t-0", clean=True)
    assert log.log_start_offset == 0 and [each.size > 0 for each in log.segments] == [
        False, True, True, True]
    clock.advance(8 * 24 * 3_600_000)
    assert len(apply_retention(log, 9)) >= 3
    assert log.log_start_offset == 9
    log.delete_before(10)
    apply_retention(log, 10)
    assert [each.size for each in log.segments] == [0], "an empty active segment stays"


def test_the_active_segment_rolls_before_it_goes() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open(disk, FakeClock(), "/data/t-0", LogConfig(segment_bytes=200))
    for _ in range(5):
        log.append_bytes(batch(b"x" * 100), 0)
    assert apply_retention(log, 5) == []
    assert isinstance(log.clock, FakeClock)
    log.clock.advance(8 * 24 * 3_600_000)
    for path in apply_retention(log, 5):
        disk.unlink(path)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (5, 5, 1)
    assert log.append_bytes(batch(b"y"), 0) == 5
    log.close()
    log = PartitionLog.open(disk, FakeClock(), "/data/t-0", clean=True)
    assert (log.log_start_offset, values_of(log)) == (5, [b"y"])
