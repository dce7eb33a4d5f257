"""Flushes of one log may overlap, in two threads. Nothing counts as durable too early, and no flush
writes to a path that belongs to another topic by then."""

from __future__ import annotations

import pytest

from ottla.log.files.flush import FlushTask, run_all
from ottla.log.partition.config import LogConfig
from ottla.log.partition.retention import remove_below_start
from ottla.log.storage.storage import Storage
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk

KEY = "events", 0
OLD, NEW = bytes(range(16)), bytes(range(1, 17))
SMALL = LogConfig(segment_bytes=400)


def open_storage(disk: FaultyDisk) -> Storage:
    return Storage.open(disk, FakeClock(), ["/a"])


def test_a_flush_waits_for_the_earlier_one_that_makes_its_files_name_durable() -> None:
    disk = FaultyDisk()
    log = open_storage(disk).get_or_create(*KEY, OLD, SMALL)
    log.append_bytes(batch(b"a"), 0)
    first = log.begin_flush()
    log.append_bytes(batch(b"b"), 0)
    second = log.begin_flush()
    assert first is not None and second is not None
    second.run()
    log.end_flush(second)
    assert log.recovery_point == 0, "the file's name may be lost yet"
    first.run()
    log.end_flush(first)
    assert log.recovery_point == log.checkpoint_offset == 2
    disk.cut_power()
    assert values_of(open_storage(disk).get_or_create(*KEY, OLD, SMALL)) == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(200))
def test_flushes_in_any_order_promise_only_what_a_power_cut_leaves(seed: int) -> None:
    disk = FaultyDisk(seed)
    chance = disk.random
    log = open_storage(disk).get_or_create(*KEY, OLD, SMALL)
    under_way: list[FlushTask] = []
    written: list[bytes] = []
    for _ in range(chance.randrange(5, 60)):
        match chance.randrange(6):
            case 0 | 1:
                written.append(b"%d" % len(written))
                log.append_bytes(batch(written[-1]), len(written) // 10)
            case 2 if chance.random() < 0.3:
                log.flush()
                assert log.recovery_point == len(written), "who blocks gets what was asked for"
            case 2 | 3:
                task = log.begin_flush(chance.random() < 0.2)
                if task is not None:
                    under_way.append(task)
            case _ if under_way:
                task = under_way.pop(chance.randrange(len(under_way)))
                if task.by_file_system:
                    run_all(disk, "/a", [task])
                else:
                    task.run()
                log.end_flush(task)
    promised, epochs = log.recovery_point, log.epochs.encode()
    disk.cut_power()
    again = open_storage(disk).get_or_create(*KEY, OLD, SMALL)
    assert again.damage is None
    assert values_of(again)[:promised] == written[:promised]
    if promised == len(written):
        assert again.epochs.encode() == epochs


class WholeSyncs(FaultyDisk):
    """A disk that counts the calls that sync a whole file system."""

    whole = 0

    def sync_file_system(self, path: str) -> None:
        self.whole += 1
        super().sync_file_system(path)


@pytest.mark.parametrize(("count", "together", "whole"), [
    (1, False, 0), (5, False, 0), (6, False, 1), (1, True, 1),
])
def test_one_call_syncs_many_logs_and_few_are_synced_one_by_one(
    count: int, together: bool, whole: int
) -> None:
    disk = WholeSyncs()
    storage = open_storage(disk)
    logs = [storage.get_or_create("t", index, OLD, SMALL) for index in range(count)]
    tasks = []
    for log in logs:
        log.append_bytes(batch(b"a"), 0)
        task = log.begin_flush(together)
        assert task is not None and task.syncs == (2 if together else 4), "files and names"
        tasks.append(task)
    before = disk.whole
    run_all(disk, "/a", tasks)
    assert disk.whole - before == whole
    for log, task in zip(logs, tasks, strict=True):
        log.end_flush(task)
        assert log.recovery_point == 1
    disk.cut_power()
    again = open_storage(disk)
    for index in range(count):
        assert values_of(again.get_or_create("t", index, OLD, SMALL)) == [b"a"]


def test_epochs_that_are_written_late_do_not_get_into_a_topic_made_anew() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = storage.get_or_create(*KEY, OLD, SMALL)
    for epoch in range(5):
        log.append_bytes(batch(bytes(300)), epoch)
    task = log.begin_flush()
    assert task is not None and task.epochs is not None
    storage.delete(*KEY)
    log = storage.get_or_create(*KEY, NEW, SMALL)
    log.append_bytes(batch(b"new"), 0)
    task.run()
    storage.close()
    assert not disk.exists("/a/events-0/leader-epoch-checkpoint")
    log = open_storage(disk).get_or_create(*KEY, NEW, SMALL)
    log.assign_epoch_start(1)
    assert log.append_bytes(batch(b"more"), 1) == 1


def test_a_snapshot_that_was_to_go_is_not_taken_from_a_topic_made_anew() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    for topic_id in (OLD, NEW):
        log = storage.get_or_create(*KEY, topic_id, SMALL)
        for number in range(20):
            log.append_bytes(batch(b"%d" % number, producer_id=7, epoch=0, sequence=number), 0)
        log.flush()
        if topic_id == OLD:
            log.delete_before(20)
            storage.deletions.add_files(remove_below_start(log), 60_000)
            storage.delete(*KEY)
    snapshots = {name for name in disk.names if name.endswith(".snapshot")}
    storage.clock.advance(60_000)  # type: ignore[attr-defined]
    for path in storage.deletions.due_files():
        disk.unlink(path)
    assert {name for name in disk.names if name.endswith(".snapshot")} == snapshots
