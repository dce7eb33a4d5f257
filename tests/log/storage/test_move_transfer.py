"""Whole moves between log directories: nothing is lost or doubled, whatever happens beside them."""

from __future__ import annotations

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner, clean
from ottla.log.storage.move_transfer import Move
from tests.log.batches import NOW_MS, batch, records_of, values_of
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import marker
from tests.log.storage.moves import (
    COMPACT,
    KEY,
    SMALL,
    TOPIC_ID,
    begin,
    end,
    homes_of,
    keyed,
    open_log,
    open_storage,
    step,
)


def test_a_moved_log_goes_on_with_all_that_it_knew() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    for number in range(30):
        log.append_bytes(
            batch(b"%d" % number, producer_id=7, epoch=0, sequence=number), number // 10
        )
    log.delete_before(4)
    log.note_cleaned(12)
    slice = log.slice(5, 1000)
    before = slice.read()
    move = begin(storage)
    while not move.nearly_done():
        step(move)
    log.append_bytes(batch(b"meanwhile"), 2)
    end(move)
    assert homes_of(disk) == ["/b"] and log.directory == "/b/events-0"
    assert slice.read() == before
    log.append_bytes(batch(b"again", producer_id=7, epoch=0, sequence=29), 2)
    assert log.duplicate
    log.append_bytes(batch(b"after"), 3)
    log.flush()
    expected = records_of(log)
    storage.checkpoint()
    disk.cut_power()
    storage = open_storage(disk)
    log = open_log(storage)
    assert storage.homes[KEY].path == "/b"
    assert records_of(log) == expected and len(expected) == 28
    assert (log.log_start_offset, log.first_dirty_offset) == (4, 12)
    assert log.end_offset_for_epoch(1) == (1, 20)
    log.append_bytes(batch(b"again", producer_id=7, epoch=0, sequence=29), 3)
    assert log.duplicate


def test_a_transaction_index_that_is_rebuilt_meanwhile_is_taken_along() -> None:
    """After a power cut, the index may be missing; the checkpoint of its size shows this."""
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x", producer_id=9, epoch=0, sequence=0, transactional=True), 0)
    log.append_bytes(marker(9, False), 0)
    for _ in range(20):
        log.append_bytes(batch(b"x"), 0)
    log.flush()
    storage.checkpoint()
    (expected,) = log.aborted_transactions(0, 9)
    disk.kill()
    disk.unlink("/a/events-0/00000000000000000000.txnindex")
    storage = open_storage(disk)
    log = open_log(storage)
    move = begin(storage)
    while not move.nearly_done():
        step(move)
    assert log.aborted_transactions(0, 9) == [expected], "it was rebuilt for this reader"
    log.flush()
    end(move)
    log.segments[0].close()             # so that the index file is read again
    assert log.aborted_transactions(0, 9) == [expected]
    storage.close()
    assert open_log(open_storage(disk)).aborted_transactions(0, 9) == [expected]


def test_a_flush_that_was_under_way_does_no_harm() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    for _ in range(20):
        log.append_bytes(batch(b"x"), 0)
    task = log.begin_flush()
    assert task is not None
    end(begin(storage))
    task.run()
    log.end_flush(task)
    assert log.offline is None and log.recovery_point == 20
    log.append_bytes(batch(b"x"), 0)
    log.flush()
    assert log.recovery_point == 21


def test_what_retention_took_is_not_in_the_copy() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage, SMALL)
    for number in range(40):
        log.append_bytes(batch(b"%d" % number), 0)
    log.flush()
    move = begin(storage)
    while not move.nearly_done():
        step(move)
    for segment in log.delete_before(10):
        for path in log.remove_segment(segment):
            disk.unlink(path)
    expected = records_of(log)
    end(move)
    assert records_of(log) == expected
    names = [name for name in disk.listdir("/b/events-0") if name.endswith(".log")]
    assert len(names) == log.segment_count
    storage.close()
    assert records_of(open_log(open_storage(disk))) == expected


def test_a_compaction_beside_a_move_is_taken_along_or_abandoned() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage, COMPACT)
    for number in range(60):
        log.append_bytes(keyed(number), 0)
    log.flush()
    move = begin(storage)
    while not move.nearly_done():
        step(move)
    target = cleanable(log, log.log_end_offset, NOW_MS)
    assert target is not None
    clean(target, 1 << 20, lambda paths: None)
    assert len(records_of(log)) < 30
    while not move.nearly_done():
        step(move)
    for number in range(60, 90):
        log.append_bytes(keyed(number), 0)
    log.flush()
    target = cleanable(log, log.log_end_offset, NOW_MS)
    assert target is not None
    steps = Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps()
    task = next(task for task in steps if task is not None)
    end(move)
    task.run()
    with pytest.raises(Abandoned):
        next(steps)
    assert log.offline is None
    expected = records_of(log)
    assert {record.key: record.value for record in expected} == {
        b"0": b"87", b"1": b"88", b"2": b"89",
    }  # fmt: skip
    storage.close()
    log = open_log(open_storage(disk), COMPACT)
    assert log.directory == "/b/events-0"
    assert records_of(log) == expected
    assert log.log_end_offset == 90 and log.first_dirty_offset > 0
    target = cleanable(log, log.log_end_offset, NOW_MS)
    assert target is not None
    clean(target, 1 << 20, lambda paths: None)
    assert not [name for name in disk.listdir("/b/events-0") if "cleaned" in name]


def test_a_log_at_rest_and_one_without_records_move() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    open_log(storage).append_bytes(batch(b"x"), 0)
    storage.close()
    storage = open_storage(disk)
    log = open_log(storage)
    end(begin(storage))
    assert homes_of(disk) == ["/b"] and values_of(log) == [b"x"]
    log.truncate_fully_and_start_at(0)
    empty = storage.get_or_create("none", 0, TOPIC_ID, SMALL)
    move = Move(storage, ("none", 0), storage.directories[1])
    if storage.homes["none", 0] is storage.directories[1]:
        move = Move(storage, ("none", 0), storage.directories[0])
    move.begin()
    end(move)
    assert empty.directory == f"{move.target.path}/none-0" and disk.exists(empty.directory)
    storage.delete("none", 0)
    assert not disk.exists(f"{move.target.path}/none-0")
