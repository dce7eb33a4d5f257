"""Retention frees space on a full disk, even if only the active segment is left."""

from __future__ import annotations

import errno

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import apply_retention
from ottla.log.storage.storage import Hooks, Storage
from ottla.wire.errors import OutOfOrderSequence, StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk, FaultyFile

HOUR_MS = 3_600_000
CONFIG = LogConfig(segment_bytes=5_000, index_interval_bytes=100, retention_ms=HOUR_MS)


class FullDisk(FaultyDisk):
    """A disk that, while `full`, has no room for a byte; with `names_too`, nor for another file."""

    full = names_too = False

    def before(self, kind: str, path: str, size: int = 0) -> int:
        if self.full and kind == "write" and size:
            raise OSError(errno.ENOSPC, "injected full disk", path)
        return super().before(kind, path, size)

    def open(self, path: str, create: bool = False) -> FaultyFile:
        if self.full and self.names_too and path not in self.names:
            raise OSError(errno.ENOSPC, "injected full disk", path)
        return super().open(path, create)


class Expired:
    """A log of records that are all due for deletion, on a full disk."""

    def __init__(self, batches: int, names_too: bool = False) -> None:
        self.disk, self.clock, self.told = FullDisk(), FakeClock(), list[object]()
        self.log = self.open()
        for number in range(batches):
            self.append(number)
        self.clock.advance(2 * HOUR_MS)
        self.disk.full, self.disk.names_too = True, names_too

    def open(self) -> PartitionLog:
        self.storage = Storage.open(
            self.disk, self.clock, ["/a"],
            hooks=Hooks(on_failure=lambda *failure: self.told.append(failure)),
        )
        return self.storage.get_or_create("events", 0, bytes(16), CONFIG)

    def append(self, number: int) -> None:
        sent = batch(
            b"%d" % number + bytes(1000), producer_id=7, epoch=0, sequence=number,
            timestamps=[self.clock.now_ms()],
        )
        self.log.append_bytes(sent, 0)

    def retain(self) -> list[str]:
        paths = apply_retention(self.log, self.log.log_end_offset)
        for path in paths:
            self.disk.unlink(path)
        return paths

    def data(self) -> list[str]:
        return [name for name in self.disk.names if name.endswith((".log", ".log.deleted"))]


@pytest.mark.parametrize("batches", [1, 3, 12])
def test_the_active_segment_goes_though_nothing_can_be_written(batches: int) -> None:
    one = Expired(batches)
    assert one.retain()
    assert one.log.log_start_offset == one.log.log_end_offset == batches
    assert one.data() == [f"/a/events-0/{batches:020d}.log"]
    assert one.told == []
    one.disk.full = False
    one.append(batches)
    assert values_of(one.log) == [b"%d" % batches + bytes(1000)]


@pytest.mark.parametrize("batches", [1, 12])
def test_what_precedes_the_active_segment_goes_though_no_file_can_be_made(batches: int) -> None:
    one = Expired(batches, names_too=True)
    segments = len(one.log.segments)
    if segments > 1:
        assert len([path for path in one.retain() if path.endswith(".log.deleted")]) > 1
    assert len(one.data()) == len(one.log.segments) == 1
    with pytest.raises(StorageFailed, match="full disk"):
        one.retain()
    assert one.told == []
    one.disk.full = False
    assert one.retain()
    assert one.log.log_start_offset == one.log.log_end_offset == batches
    one.append(batches)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("names_too", [False, True])
def test_a_crash_afterwards_finds_a_log_that_goes_on(names_too: bool, power: bool) -> None:
    one = Expired(12, names_too)
    one.log.flush()
    one.retain()
    start = one.log.log_start_offset
    one.disk.full = False
    if power:
        one.disk.cut_power()
    else:
        one.disk.kill()
    one.log = one.open()
    if not power:
        assert (one.log.log_start_offset, one.log.log_end_offset) == (start, 12)
    assert one.log.log_end_offset == 12
    assert set(values_of(one.log)) <= {b"%d" % number + bytes(1000) for number in range(12)}
    one.append(12)


def test_producers_are_known_after_a_clean_stop_although_their_snapshot_had_no_room() -> None:
    one = Expired(3)
    one.retain()
    one.disk.full = False
    one.storage.close()
    one.log = one.open()
    assert one.log.log_end_offset == 3
    with pytest.raises(OutOfOrderSequence):
        one.append(9)
    one.append(3)
