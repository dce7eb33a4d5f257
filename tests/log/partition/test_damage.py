"""Damaged bytes: a torn end is truncated, damage is reported, nothing false is read."""

from pathlib import Path

import pytest

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import forget_cuts
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, split, values_of
from tests.log.faulty_disk import FaultyDisk

VALUES = [b"%d" % at * 20 for at in range(12)]
CONFIG = LogConfig(index_interval_bytes=100)


def open_log(path: Path, recovery_point: int = 0, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(
        Disk(), FakeClock(), f"{path}/t-0", CONFIG,
        checkpoint=LogCheckpoint(recovery_point), clean=clean
    )


def write_log(path: Path, rolled_at: int | None = None) -> list[bytes]:
    """Write a log of twelve batches; returns the batches as they are stored."""
    log = open_log(path)
    for at, value in enumerate(VALUES):
        if at == rolled_at:
            log.roll()
        data = batch(value, timestamps=[NOW_MS + at], producer_id=1, epoch=0, sequence=at)
        log.append_bytes(data, 0)
    stored = split(log.read_bytes(0, 1 << 20))
    log.close()
    return stored


def segment_file(path: Path, base: int = 0) -> Path:
    return path / "t-0" / f"{base:020d}.log"


def disk_with(content: bytes) -> FaultyDisk:
    """A disk in memory that has only one segment file."""
    disk = FaultyDisk()
    disk.makedirs("/data/t-0")
    disk.open(f"/data/t-0/{0:020d}.log", create=True).pwrite(content, 0)
    return disk


def recover(disk: FaultyDisk, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        disk, FakeClock(), "/data/t-0", CONFIG, checkpoint=LogCheckpoint(recovery_point)
    )


def test_a_segment_cut_at_any_byte_ends_with_its_last_whole_batch(tmp_path: Path) -> None:
    stored = write_log(tmp_path)
    whole = segment_file(tmp_path).read_bytes()
    for size in range(len(whole), -1, -1):
        disk = disk_with(whole[:size])
        log = recover(disk)
        kept = len(split(whole[:size]))
        assert values_of(log) == VALUES[:kept]
        assert log.damage is None
        assert disk.size(f"/data/t-0/{0:020d}.log") == sum(map(len, stored[:kept]))
        assert len(log.producers) == min(kept, 1)


@pytest.mark.parametrize("at", range(4, 8))
def test_a_start_that_rebuilds_the_index_of_a_damaged_segment_leaves_its_end(
    tmp_path: Path, at: int
) -> None:
    stored = write_log(tmp_path, rolled_at=8)
    position = sum(map(len, stored[:at]))
    flipped = bytearray(segment_file(tmp_path).read_bytes())
    flipped[position + 70] ^= 1
    segment_file(tmp_path).write_bytes(flipped)
    segment_file(tmp_path).with_suffix(".index").unlink()       # as if lost in a power cut
    log = open_log(tmp_path, recovery_point=len(VALUES))        # checks its files
    first = log.segments[0]
    assert (first.end_offset, first.size) == (8, len(flipped))
    # The batch is checked by those who read it: a consumer, a follower, the scrub.
    assert split(log.read_bytes(at, 1 << 20))[0] == flipped[position : position + len(stored[at])]


@pytest.mark.parametrize("below_recovery_point", [False, True])
def test_no_flipped_bit_is_ever_served(tmp_path: Path, below_recovery_point: bool) -> None:
    stored = write_log(tmp_path)
    whole = segment_file(tmp_path).read_bytes()
    start = len(stored[0]) + len(stored[1])
    recovery_point = len(VALUES) if below_recovery_point else 0
    for bit in range(start * 8, (start + len(stored[2])) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        log = recover(disk_with(bytes(damaged)), recovery_point)
        assert values_of(log) == VALUES[:2], f"bit {bit}"
        found, other = log.damage, log.put_aside
        if not below_recovery_point:
            found, other = other, found
        assert found is not None and found.position == start and other is None, f"bit {bit}"


def test_damage_below_the_recovery_point_changes_nothing_and_stays(tmp_path: Path) -> None:
    stored = write_log(tmp_path)
    whole = segment_file(tmp_path).read_bytes()
    damaged = bytearray(whole)
    damaged[len(stored[0]) + 70] ^= 1
    segment_file(tmp_path).write_bytes(damaged)
    for clean in (False, True, True):
        log = open_log(tmp_path, recovery_point=12, clean=clean)
        assert values_of(log) == VALUES[:1]
        assert "is damaged at byte" in str(log.damage)
        with pytest.raises(StorageFailed, match="accepts no writes until the file is repaired"):
            log.append_bytes(batch(b"x"), 0)
        with pytest.raises(StorageFailed):      # not OffsetOutOfRange: the log had this offset
            log.read_bytes(2, 100)
        assert log.recovery_point == 12
        log.close()
    assert segment_file(tmp_path).read_bytes() == damaged
    # After the file is restored from a copy, the log is undamaged again.
    segment_file(tmp_path).write_bytes(whole)
    log = open_log(tmp_path, recovery_point=12, clean=True)
    assert values_of(log) == VALUES and log.damage is None
    assert log.append_bytes(batch(b"x"), 0) == 12
    assert not list(tmp_path.glob("t-0/*.damaged"))


def test_a_hole_above_the_recovery_point_is_put_aside_whole(tmp_path: Path) -> None:
    stored = write_log(tmp_path, rolled_at=6)
    whole = segment_file(tmp_path).read_bytes()
    start = len(stored[0])
    segment_file(tmp_path).write_bytes(
        whole[:start] + bytes(len(stored[1])) + whole[start + len(stored[1]) :]
    )
    later = segment_file(tmp_path, 6).read_bytes()
    log = open_log(tmp_path, recovery_point=1)
    assert values_of(log) == VALUES[:1]
    assert log.damage is None and log.put_aside is not None
    aside = sorted(tmp_path.glob("t-0/*.quarantine"))
    assert [path.name for path in aside] == [
        f"{0:020d}.{start}.quarantine",
        f"{6:020d}.0.quarantine",
    ]
    assert aside[0].read_bytes() == bytes(len(stored[1])) + whole[start + len(stored[1]) :]
    assert aside[1].read_bytes() == later
    assert log.append_bytes(batch(b"next"), 1) == 1
    log.close()
    log = open_log(tmp_path, recovery_point=1)
    assert values_of(log) == [VALUES[0], b"next"] and log.damage is None
    assert log.put_aside is not None and log.put_aside.position == 0
    assert "before it could report this" in str(log.put_aside)
    forget_cuts(log)                    # the broker has reported the cut
    log.close()
    assert open_log(tmp_path, recovery_point=1).put_aside is None
    assert len(list(tmp_path.glob("t-0/*.quarantine"))) == 2


def test_what_is_put_aside_outlives_a_power_cut(tmp_path: Path) -> None:
    stored = write_log(tmp_path)
    whole = segment_file(tmp_path).read_bytes()
    start = len(stored[0])
    tail = bytes(len(stored[1])) + whole[start + len(stored[1]) :]
    for seed in range(4):
        disk = FaultyDisk(seed)
        disk.makedirs("/data/t-0")
        file = disk.open(f"/data/t-0/{0:020d}.log", create=True)
        file.pwrite(whole[:start] + tail, 0)
        file.sync()
        disk.sync_directory("/data/t-0")
        assert recover(disk, recovery_point=1).put_aside is not None
        disk.cut_power()
        assert disk.read_bytes(f"/data/t-0/{0:020d}.{start}.quarantine") == tail, seed


@pytest.mark.parametrize("cleaned", [0, 6, 12])
def test_gaps_that_compaction_left_are_no_holes_once_the_policy_is_delete(
    tmp_path: Path, cleaned: int
) -> None:
    stored = write_log(tmp_path, rolled_at=6)
    # The cleaner of an earlier run removed the segment's last batch. The run was killed before it
    # wrote the recovery point.
    path = segment_file(tmp_path)
    path.write_bytes(path.read_bytes()[: -len(stored[5])])
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned}\n")
    storage = Storage.open(Disk(), FakeClock(), [str(tmp_path)])
    log = storage.get_or_create("t", 0, None, CONFIG)
    assert not log.config.compacts and log.first_dirty_offset == min(cleaned, 12)
    if cleaned:
        assert values_of(log) == VALUES[:5] + VALUES[6:] and log.damage is None
    else:
        assert values_of(log) == VALUES[:5] and "were moved to" in str(log.put_aside)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["missing", "empty", "zeros", "torn", "of another segment"])
def test_an_index_that_is_wrong_is_made_anew(tmp_path: Path, suffix: str, how: str) -> None:
    write_log(tmp_path)
    path = segment_file(tmp_path).with_suffix(suffix)
    right = path.read_bytes()
    assert len(right) > 24
    if how == "missing":
        path.unlink()
    else:
        changed = {
            "empty": b"",
            "zeros": bytes(len(right)),
            "torn": right[: len(right) // 2 + 1],
            "of another segment": bytes(byte ^ 5 for byte in right),
        }
        path.write_bytes(changed[how])
    for clean in (True, False):
        log = open_log(tmp_path, clean=clean)
        for at in range(len(VALUES)):
            assert values_of(log, at) == VALUES[at:]
            assert log.offset_for_timestamp(NOW_MS + at) == (at, NOW_MS + at, 0)
        log.close()
    assert path.read_bytes()[: len(right)] == right


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"1\n1\n0 0\n", b"0\n2\n0 0\n", b"\xff\xfe"]
)
def test_a_damaged_epoch_file_is_made_anew_from_the_batches(
    tmp_path: Path, content: bytes
) -> None:
    log = open_log(tmp_path)
    for at in range(9):
        log.append_bytes(batch(b"x"), at // 3)
    log.close()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(content)
    log = open_log(tmp_path, clean=True)
    assert log.epochs.entries == [(0, 0), (1, 3), (2, 6)]
    log.close()
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes() == (
        b"0\n3\n0 0\n1 3\n2 6\n"
    )


def test_a_damaged_snapshot_is_not_believed(tmp_path: Path) -> None:
    write_log(tmp_path, rolled_at=6)
    for name in sorted((tmp_path / "t-0").glob("*.snapshot")):
        data = bytearray(name.read_bytes())
        data[-1] ^= 1
        name.write_bytes(data)
    for clean in (True, False):
        log = open_log(tmp_path, clean=clean)
        (state,) = log.active_producers()
        assert (state.last_sequence, state.last_offset) == (11, 11)
        log.close()
