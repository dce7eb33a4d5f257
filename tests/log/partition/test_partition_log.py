"""Append and read: what was appended is read back, in order, at its offset."""

import errno
from pathlib import Path

import pytest

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import CorruptMessage, FencedLeaderEpoch, OffsetOutOfRange, StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, records_of, split, values_of


def open_log(path: Path, config: LogConfig | None = None, **options: object) -> PartitionLog:
    return PartitionLog.open(
        Disk(), FakeClock(), f"{path}/events-0", config, **options  # type: ignore[arg-type]
    )


def test_what_was_appended_is_read_back_at_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.append_bytes(batch(b"a", b"b"), 0) == 0
    assert log.append_bytes(batch(b"c"), 0) == 2
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert [(record.offset, record.value) for record in records_of(log)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_a_partition_without_records_has_no_files(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.read_bytes(0, 100) == b""
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_the_leader_epoch_and_base_offset_are_set_in_the_stored_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = batch(b"a")
    log.append_bytes(batch(b"x"), 7)
    log.append_bytes(sent, 7)
    stored = log.read_bytes(1, 1000)
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[12:16] == (7).to_bytes(4, "big")
    assert stored[16:] == sent[16:]


def test_a_read_begins_with_the_batch_that_contains_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a", b"b", b"c"), 0)
    log.append_bytes(batch(b"d"), 0)
    found = log.slice(2, 10_000)
    assert found.first_offset == 2 and len(split(found.read())) == 2
    assert len(split(log.read_bytes(3, 10_000))) == 1


def test_the_first_batch_comes_whole_however_small_the_room_or_not_at_all(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = batch(b"a" * 500)
    log.append_bytes(sent, 0)
    log.append_bytes(sent, 0)
    assert len(log.read_bytes(0, 1)) == len(sent)
    assert log.slice(0, len(sent) - 1, at_least_one=False).size == 0
    assert log.slice(0, len(sent) + 1, at_least_one=False).size == len(sent) + 1
    assert log.slice(0, 0, at_least_one=False).size == 0


def test_nothing_at_or_past_the_upper_bound_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for at in range(50):
        log.append_bytes(batch(bytes([at]) * 300), 0)
    for upto in range(51):
        assert len(split(log.read_bytes(0, 1 << 20, upto))) == upto
    assert log.read_bytes(20, 1 << 20, 20) == b""


def test_only_a_read_up_to_the_end_of_a_segment_ends_it(tmp_path: Path) -> None:
    """A fetch that has read up to the end of a segment is answered at once. If it may read only up
    to an offset within the segment, such as the high watermark, this offset will rise. So the fetch
    waits for its fetch.min.bytes, as in Kafka."""
    log = open_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append_bytes(batch(value), 0)
    log.roll()
    log.append_bytes(batch(b"d"), 0)
    ended = {upto: log.slice(0, 1 << 20, upto).ends_segment for upto in (1, 2, 3, 4)}
    assert ended == {1: False, 2: False, 3: True, 4: True}
    assert not log.slice(0, 100, 3).ends_segment
    assert not log.slice(3, 1 << 20).ends_segment       # nothing follows the active segment


def test_offsets_outside_the_log_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a", b"b"), 0)
    assert log.read_bytes(2, 100) == b""
    with pytest.raises(OffsetOutOfRange, match="offset 3 is not in"):
        log.read_bytes(3, 100)
    log.delete_before(1)
    with pytest.raises(OffsetOutOfRange):
        log.read_bytes(0, 100)


def test_segments_roll_by_size_and_reads_go_across_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=1000))
    for at in range(30):
        log.append_bytes(batch(b"%03d" % at * 50), 0)
    assert len(log.segments) > 5
    assert all(segment.size <= 1000 for segment in log.segments)
    assert values_of(log) == [b"%03d" % at * 50 for at in range(30)]
    assert values_of(log, 17) == [b"%03d" % at * 50 for at in range(17, 30)]


def test_segments_roll_by_the_time_in_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_ms=1000))
    for ms in (0, 900, 1000, 1001, 1500, 2002):
        log.append_bytes(batch(b"x", timestamps=[NOW_MS + ms]), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 5]


def test_segments_roll_by_the_clock_where_batches_have_no_time(tmp_path: Path) -> None:
    clock = FakeClock()
    log = PartitionLog.open(Disk(), clock, f"{tmp_path}/t-0", LogConfig(segment_ms=1000))
    log.append_bytes(batch(b"x", timestamps=[-1]), 0)
    log.append_bytes(batch(b"x", timestamps=[-1]), 0)
    clock.advance(1001)
    log.append_bytes(batch(b"x", timestamps=[-1]), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_log_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=2000))
    for at in range(20):
        log.append_bytes(batch(b"%d" % at * 100), at // 7)
    log.close()
    for clean in (True, False):
        log = open_log(tmp_path, LogConfig(segment_bytes=2000), clean=clean)
        assert values_of(log) == [b"%d" % at * 100 for at in range(20)]
        assert log.latest_epoch == 2
        assert log.end_offset_for_epoch(1) == (1, 14)
        log.close()
    log = open_log(tmp_path, LogConfig(segment_bytes=2000), clean=True)
    assert log.append_bytes(batch(b"more"), 2) == 20
    assert values_of(log, 19) == [b"19" * 100, b"more"]


def test_an_older_leader_epoch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a"), 3)
    with pytest.raises(FencedLeaderEpoch, match="epoch 3, so epoch 2 is too old"):
        log.append_bytes(batch(b"b"), 2)


def test_bytes_that_are_not_one_batch_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for wrong in (b"", b"x" * 60, batch(b"a") + b"x", batch(b"a")[:-1]):
        with pytest.raises(CorruptMessage):
            log.append_bytes(wrong, 0)


def test_a_follower_keeps_the_leaders_offsets_and_epochs(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a"), open_log(tmp_path / "b")
    for at in range(5):
        leader.append_bytes(batch(b"x%d" % at, b"y"), at)
    for data in split(leader.read_bytes(0, 10_000)):
        assert follower.append_run_bytes(data, 9) == len(data)
    assert follower.read_bytes(0, 10_000) == leader.read_bytes(0, 10_000)
    assert follower.epochs.entries == leader.epochs.entries
    with pytest.raises(CorruptMessage, match="expected ascending offsets from 10 on"):
        follower.append_run_bytes(split(leader.read_bytes(8, 10_000))[0], 9)


def test_truncation_removes_whole_batches_from_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=600))
    for at in range(20):
        log.append_bytes(batch(b"%d" % at * 50, b"second"), at // 5)
    log.truncate_to(23)
    assert log.log_end_offset == 22
    assert values_of(log) == [value for at in range(11) for value in (b"%d" % at * 50, b"second")]
    assert log.latest_epoch == 2
    assert log.append_bytes(batch(b"new"), 9) == 22
    log.truncate_to(0)
    assert (log.log_end_offset, log.latest_epoch) == (0, -1)
    assert log.append_bytes(batch(b"first"), 1) == 0


def test_a_truncation_does_not_change_files_that_are_linked_elsewhere(tmp_path: Path) -> None:
    """`ottla log import --link` makes hard links to the segments of Apache Kafka."""
    log = open_log(tmp_path / "own", LogConfig(segment_bytes=600))
    for at in range(20):
        log.append_bytes(batch(b"%d" % at * 50), 0)
    other = tmp_path / "other"
    other.mkdir()
    segments = sorted((tmp_path / "own").rglob("*.log"))
    for path in segments:
        (other / path.name).hardlink_to(path)
    before = [path.read_bytes() for path in segments]
    log.truncate_to(3)
    assert log.append_bytes(batch(b"new"), 1) == 3
    assert values_of(log) == [b"0" * 50, b"1" * 50, b"2" * 50, b"new"]
    assert [(other / path.name).read_bytes() for path in segments] == before


def test_without_room_for_a_copy_a_linked_log_refuses_a_batch_and_stays_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a"), 0)
    log.close()
    [path] = tmp_path.rglob("*.log")
    (tmp_path / "other").hardlink_to(path)
    log = open_log(tmp_path)

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "no space left on device", target)

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", full)
        with pytest.raises(StorageFailed):
            log.append_bytes(batch(b"b"), 0)
    assert not [*tmp_path.rglob("*.tmp")]
    assert log.append_bytes(batch(b"c"), 0) == 1
    assert values_of(log) == [b"a", b"c"]


def test_a_start_does_not_write_to_files_that_are_linked_elsewhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a"), 0)
    log.close()
    [path] = tmp_path.rglob("*.log")
    other = tmp_path / "other"
    other.hardlink_to(path)
    before = other.read_bytes()
    with path.open("ab") as torn:
        torn.write(b"half a batch")
    log = open_log(tmp_path)
    assert log.append_bytes(batch(b"b"), 0) == 1
    assert values_of(log) == [b"a", b"b"]
    assert other.read_bytes() == before + b"half a batch"


def test_a_log_that_begins_in_the_middle_of_a_batch_can_be_truncated_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a", b"b"), 0)
    log.append_bytes(batch(b"c", b"d", b"e"), 0)
    log.delete_before(3)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    log.append_bytes(batch(b"f"), 1)
    assert values_of(log) == [b"f"]


def test_a_follower_may_begin_anew_at_a_later_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a", b"b"), 0)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    log.close()
    log = open_log(tmp_path, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert log.append_bytes(batch(b"c"), 0) == 1000


def test_segments_below_a_raised_start_can_be_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=500))
    for at in range(20):
        log.append_bytes(batch(b"%d" % at * 50), 0)
    held = log.slice(0, 100)
    due = log.delete_before(11)
    for segment in due:
        for path in log.remove_segment(segment):
            log.disk.unlink(path)
    assert due and log.segments[0].base_offset <= 11
    assert values_of(log) == [b"%d" % at * 50 for at in range(11, 20)]
    assert held.read()[:8] == bytes(8), "a reader holds the file of a deleted segment"


def test_a_moved_log_can_still_be_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_bytes(batch(b"a"), 0)
    log.move_to(f"{tmp_path}/events-0.0123-delete")
    assert [path.name for path in tmp_path.iterdir()] == ["events-0.0123-delete"]
    assert values_of(log) == [b"a"]


def test_nothing_below_the_log_start_is_the_last_stable_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    opened = batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True)
    log.append_bytes(opened, 0)
    log.append_bytes(batch(b"b"), 0)
    assert log.stable_offset(2) == 0
    log.delete_before(1)
    assert log.stable_offset(2) == 1
