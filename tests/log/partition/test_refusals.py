"""A full disk or a lack of descriptors is temporary: requests fail, and nothing goes offline."""

import errno

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import StorageFailed
from ottla.wire.records import ControlType, build_marker
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, values_of
from tests.log.faulty_disk import FaultyDisk, FaultyFile


def open_log(disk: FaultyDisk, **config: int) -> PartitionLog:
    return PartitionLog.open(disk, FakeClock(), "/data/t-0", LogConfig(**config))


def flushed_without_room_for_its_epochs(disk: FaultyDisk) -> PartitionLog:
    """A log of two batches that are on disk, but whose leader epoch could not be written."""
    log = open_log(disk, segment_bytes=100)
    log.append_bytes(batch(b"a"), 7)
    log.append_bytes(batch(b"b"), 7)        # a second segment: now the log needs a file for epochs
    task = log.begin_flush()
    assert task is not None
    disk.errors = {"write": errno.ENOSPC}
    task.run()
    log.end_flush(task)
    disk.errors = {}
    return log


def aborted_without_room_for_its_index(disk: FaultyDisk) -> PartitionLog:
    """A log with an aborted transaction; after its marker, the disk has no room for its index
    entry."""
    log = open_log(disk)
    mark = build_marker(
        ControlType.ABORT, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )
    log.append_bytes(batch(b"a", producer_id=5, epoch=0, sequence=0, transactional=True), 0)
    disk.free = len(mark) + 10
    log.append_bytes(mark, 0)
    return log


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENODEV])
def test_a_write_that_a_disk_refuses_for_good_takes_the_log_offline(code: int) -> None:
    disk = FaultyDisk()
    log, told = open_log(disk), []
    log.health.watch(told.append)
    log.append_bytes(batch(b"a"), 0)
    disk.errors = {"write": code}
    with pytest.raises(StorageFailed):
        log.append_bytes(batch(b"b"), 0)
    disk.errors = {}
    assert len(told) == 1 and "a write failed" in told[0]
    with pytest.raises(StorageFailed, match="a write failed"):
        log.append_bytes(batch(b"c"), 0)
    assert values_of(log) == [b"a"]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_flush_that_finds_no_descriptor_is_tried_again(code: int) -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    log.append_bytes(batch(b"a"), 0)
    for segment in log.segments:
        segment.close()
    disk.errors = {"open": code}
    with pytest.raises(StorageFailed, match="could not be opened for a flush"):
        log.begin_flush()
    disk.errors = {}
    assert log.offline is None
    log.flush()
    assert log.recovery_point == 1
    disk.cut_power()
    assert values_of(open_log(disk)) == [b"a"]


def test_a_flush_without_room_for_the_leader_epochs_keeps_the_batches_and_recovers_more() -> None:
    disk = FaultyDisk()
    log = flushed_without_room_for_its_epochs(disk)
    assert (log.offline, log.recovery_point, log.checkpoint_offset) == (None, 2, 0)
    disk.cut_power()
    assert open_log(disk).epochs.entries == [(7, 0)]


def test_the_next_flush_writes_the_leader_epochs_that_had_no_room() -> None:
    disk = FaultyDisk()
    log = flushed_without_room_for_its_epochs(disk)
    log.flush()
    assert log.checkpoint_offset == 2
    disk.cut_power()
    again = PartitionLog.open(
        disk, FakeClock(), "/data/t-0", LogConfig(),
        checkpoint=LogCheckpoint(2),
    )
    assert again.epochs.entries == [(7, 0)]


def test_an_aborted_transaction_is_known_even_where_its_index_has_no_room() -> None:
    disk = FaultyDisk()
    log = aborted_without_room_for_its_index(disk)
    (aborted,) = log.aborted_transactions(0, 10)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 0, 1)
    with pytest.raises(StorageFailed):
        log.begin_flush()
    disk.free = 1 << 20
    log.flush()
    assert log.recovery_point == 2
    disk.cut_power()
    again = PartitionLog.open(
        disk, FakeClock(), "/data/t-0", LogConfig(), checkpoint=LogCheckpoint(2), clean=False
    )
    assert again.aborted_transactions(0, 10) == [aborted]


def test_a_full_disk_lets_no_segment_end_whose_aborted_transactions_are_not_written() -> None:
    disk = FaultyDisk()
    log = aborted_without_room_for_its_index(disk)
    with pytest.raises(StorageFailed):
        log.roll()
    assert log.offline is None
    disk.free = 1 << 20
    log.roll()
    log.append_bytes(batch(b"b"), 0)
    log.close()
    again = PartitionLog.open(disk, FakeClock(), "/data/t-0", LogConfig(), clean=True)
    assert len(again.aborted_transactions(0, 10)) == 1


class NoDescriptor(FaultyDisk):
    """A disk that opens no file whose path ends with `refused`."""

    refused = "nothing"

    def open(self, path: str, create: bool = False) -> FaultyFile:
        if path.endswith(self.refused):
            raise OSError(errno.EMFILE, "injected lack of descriptors", path)
        return super().open(path, create)


@pytest.mark.parametrize(("clean", "power", "seed"), [
    (True, False, 0), (False, False, 0), *((False, True, seed) for seed in range(20))])
def test_batches_that_follow_a_segment_that_could_not_begin_are_there_after_a_start(
    clean: bool, power: bool, seed: int
) -> None:
    disk = NoDescriptor(seed)
    log = open_log(disk, segment_bytes=1000)
    log.append_bytes(batch(b"a" * 500), 0)
    log.flush()
    disk.refused = f"{1:020d}.index"
    with pytest.raises(StorageFailed, match="lack of descriptors"):
        log.append_bytes(batch(b"b" * 500), 0)
    assert log.offline is None
    log.append_bytes(batch(b"c"), 0)            # the full segment has room for this batch
    disk.refused = "nothing"
    log.flush()
    point = log.recovery_point
    if clean:
        log.close()
    if power:
        disk.cut_power()
    disk.kill()
    log = PartitionLog.open(
        disk, FakeClock(), "/data/t-0", LogConfig(segment_bytes=1000),
        checkpoint=LogCheckpoint(point, written_upto=point), clean=clean)
    assert (log.log_end_offset, log.damage, log.put_aside) == (2, None, None)
    assert values_of(log) == [b"a" * 500, b"c"]


def test_a_segment_begins_without_reserved_space_if_the_disk_has_too_little() -> None:
    disk = FaultyDisk()
    disk.errors = {"reserve": errno.ENOSPC}
    log = open_log(disk, segment_bytes=1 << 20, preallocate=True)
    log.append_bytes(batch(b"a"), 0)
    log.roll()
    log.append_bytes(batch(b"b"), 0)
    assert values_of(log) == [b"a", b"b"]
    disk.errors = {"reserve": errno.EIO}
    with pytest.raises(StorageFailed, match="reserve"):
        log.roll()
