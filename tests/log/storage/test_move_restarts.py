"""A move that a crash stops leaves one copy, with everything that was promised."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import clean
from ottla.log.partition.retention import remove_below_start
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.move_transfer import Move
from ottla.log.storage.storage import Storage
from tests.log.batches import NOW_MS, batch, records_of, values_of
from tests.log.faulty_disk import FaultyDisk, PowerCut
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


def test_an_old_copy_that_comes_back_does_not_win() -> None:
    """The two directories may be on two disks, and one of the disks may lose the rename."""
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    log.flush()
    move = begin(storage)
    move.swap()
    log.append_bytes(batch(b"y"), 0)
    log.flush()
    end_of_move = move.finish()
    disk.errors, disk.failing = {"sync": errno.EIO}, "/a"
    with pytest.raises(OSError):
        end_of_move()
    disk.kill()
    [(_, away)] = storage.deletions.directories
    disk.rename(away, "/a/events-0")
    storage = open_storage(disk)
    assert homes_of(disk) == ["/b"] and values_of(open_log(storage)) == [b"x", b"y"]
    assert not disk.exists("/b/.ottla-move")


def test_a_partition_that_has_moved_away_is_not_missed_where_it_was() -> None:
    """Two partitions leave a directory, one after the other. When the process is killed, the
    directory still has the record of the first move, and a checkpoint that names the second
    partition."""
    disk = FaultyDisk()
    storage = open_storage(disk)
    for topic in "events", "earlier":
        log = storage.get_or_create(topic, 0, TOPIC_ID, SMALL)
        log.append_bytes(batch(b"x"), 0)
        log.flush()
    former = storage.homes[KEY]
    earlier = Move(storage, ("earlier", 0), former)
    earlier.begin()
    earlier.prepare()
    storage.checkpoint()
    earlier.swap()
    end(begin(storage))
    disk.kill()
    storage = open_storage(disk)
    assert disk.exists(f"{former.path}/events-0") is False
    assert storage.placement.vanished(KEY, TOPIC_ID) == []
    assert values_of(open_log(storage)) == [b"x"]


def test_a_damaged_record_is_refused() -> None:
    disk = FaultyDisk()
    open_storage(disk).close()
    disk.write_atomically("/b/.ottla-move", b"0\nevents 0\n")
    with pytest.raises(StorageRefused, match="ottla-move is damaged"):
        open_storage(disk)


def disk_of(storage: Storage) -> FaultyDisk:
    assert isinstance(storage.disk, FaultyDisk)
    return storage.disk


def live(storage: Storage, chance: random.Random, told: dict[str, int]) -> None:
    """Write a log and move it to and fro; `told` gets what was promised."""
    log = open_log(storage)
    for _ in range(3):
        move = None
        for _ in range(chance.randrange(4, 14)):
            choice = chance.random()
            if choice < 0.45:
                number = log.log_end_offset
                log.append_bytes(batch(b"%d" % number * chance.randrange(1, 60)), number // 20)
            elif choice < 0.6:
                log.flush()
                told["end"] = log.log_end_offset
            elif choice < 0.65:
                log.delete_before(chance.randint(log.log_start_offset, log.log_end_offset))
                told["start_max"] = log.log_start_offset
                for path in remove_below_start(log):
                    disk_of(storage).unlink(path)
            elif choice < 0.7:
                storage.checkpoint()
                told["start"] = log.log_start_offset
            elif move is None:
                move = begin(storage)
            else:
                step(move, chance.randrange(1, 900))
        if move is not None and chance.random() < 0.8:
            end(move)
            told["end"] = log.log_end_offset
        elif move is not None:
            storage.moves.pop(KEY).give_up()
            move.discard()
        storage.deletions.remove()


@pytest.mark.parametrize("power", [False, True])
def test_a_move_that_a_crash_stops_anywhere_leaves_one_copy_with_everything(power: bool) -> None:
    stopped = 0
    for seed in range(500):
        chance, disk = random.Random(seed), FaultyDisk(seed)
        storage, told = open_storage(disk), {"end": 0, "start": 0, "start_max": 0}
        disk.stop_at = disk.operations + chance.randrange(1, 260)
        try:
            live(storage, chance, told)
        except PowerCut:
            stopped += 1
        for _ in range(3):
            # Stop the recovery too.
            (disk.cut_power if power else disk.kill)()
            disk.stop_at = disk.operations + chance.randrange(1, 30)
            try:
                storage = open_storage(disk)
                open_log(storage)
            except PowerCut:
                continue
        (disk.cut_power if power else disk.kill)()
        storage = open_storage(disk)
        log = open_log(storage)
        homes = homes_of(disk)
        where = f"seed {seed}"
        assert len(homes) == 1 or (not homes and not told["end"]), where
        assert log.damage is None, where
        assert log.log_end_offset >= told["end"], where
        assert told["start"] <= log.log_start_offset <= told["start_max"], where
        offsets = [record.offset for record in records_of(log)]
        assert offsets == list(range(log.log_start_offset, log.log_end_offset)), where
        for record in records_of(log):
            number = b"%d" % record.offset
            assert record.value is not None and record.value.replace(number, b"") == b"", where
        storage.deletions.remove()
        for path in ("/a", "/b"):
            left = [n for n in disk.listdir(path) if n.endswith(("-future", ".ottla-move"))]
            assert not left, where
    assert stopped > 300


def moved_while_compacted(storage: Storage, told: dict[bytes, bytes]) -> None:
    """Write, move and compact a log at the same time; `told` gets each key's last value."""
    log = open_log(storage, COMPACT)

    def write(numbers: range) -> None:
        for number in numbers:
            log.append_bytes(keyed(number), 0)
        log.flush()
        told.update((b"%d" % (number % 3), b"%d" % number) for number in numbers)

    def compact() -> None:
        target = cleanable(log, log.log_end_offset, NOW_MS)
        if target is not None:
            clean(target, 1 << 20, lambda paths: None)

    write(range(24))
    move = begin(storage)
    step(move)
    compact()
    write(range(24, 36))
    while not move.nearly_done():
        step(move)
    compact()
    end(move)
    write(range(36, 48))
    compact()
    storage.deletions.remove()


@pytest.mark.parametrize("power", [False, True])
def test_a_move_whose_source_is_compacted_meanwhile_may_stop_at_each_step(power: bool) -> None:
    operation, ended = 0, False
    while not ended:
        operation += 1
        disk = FaultyDisk(operation)
        storage = open_storage(disk)
        told: dict[bytes, bytes] = {}
        disk.operations = 0
        with disk.stops_at(operation):
            moved_while_compacted(storage, told)
            ended = True
        (disk.cut_power if power else disk.kill)()
        log = open_log(open_storage(disk), COMPACT)
        where = f"stopped at {operation}"
        assert len(homes_of(disk)) <= 1, where
        assert log.damage is None, where
        found = {record.key: int(record.value or b"") for record in records_of(log)}
        assert all(found.get(key, -1) >= int(value) for key, value in told.items()), where
        offsets = [record.offset for record in records_of(log)]
        assert offsets == sorted(set(offsets)), where
        assert not [name for name in disk.names if name.endswith(".ottla-move")], where
    assert operation > 100
