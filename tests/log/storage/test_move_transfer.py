"""Moves between log directories: nothing is lost or doubled, wherever a crash stops them."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner, clean
from ottla.log.files.names import partition_metadata
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import remove_below_start
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.move_transfer import Copy, LogCut, Move, MoveFailed, Piece
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, records_of, values_of
from tests.log.faulty_disk import FaultyDisk, FaultyFile, PowerCut
from tests.log.partition.foreign_files import marker

KEY = "events", 0
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=400)
COMPACT = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}))


def open_storage(disk: FaultyDisk) -> Storage:
    return Storage.open(disk, FakeClock(), ["/a", "/b"])


def open_log(storage: Storage, config: LogConfig = SMALL) -> PartitionLog:
    return storage.get_or_create(*KEY, TOPIC_ID, config)


def other(storage: Storage) -> int:
    return 1 - storage.directories.index(storage.homes[KEY])


def begin(storage: Storage) -> Move:
    move = Move(storage, KEY, storage.directories[other(storage)])
    storage.moves[KEY] = move
    move.begin()
    return move


def step(move: Move, left: int = 300) -> None:
    copy = move.plan(left)
    copy.run()
    move.note(copy)


def end(move: Move) -> None:
    move.prepare()
    move.storage.checkpoint()
    move.swap()
    move.finish()()


def homes_of(disk: FaultyDisk) -> list[str]:
    return [path for path in ("/a", "/b") if "events-0" in disk.listdir(path)]


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
    """After a power cut it may be gone, which the checkpoint of its size tells."""
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
    log.segments[0].close()             # as to open others: the file is read again
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


def keyed(number: int) -> bytes:
    return build_batch([Record(timestamp=NOW_MS, key=b"%d" % (number % 3), value=b"%d" % number)])


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


def test_a_move_that_is_called_off_leaves_nothing() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    step(move)
    move.prepare()
    storage.delete(*KEY)
    assert move.given_up and KEY not in storage.moves
    with pytest.raises(MoveFailed):
        move.swap()
    move.discard()
    storage.clock.advance(100_000)          # type: ignore[attr-defined]
    storage.deletions.remove()
    for path in ("/a", "/b"):
        assert disk.subdirectories(path) == []
    assert KEY not in storage.directories[1].recovery_points


def test_a_log_start_that_moves_meanwhile_has_to_be_told_to_the_target_again() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    for value in (b"x", b"y"):
        log.append_bytes(batch(value), 0)
    move = begin(storage)
    step(move)
    assert not move.prepared()
    move.prepare()
    assert move.prepared()
    log.delete_before(1)
    assert not move.prepared()


def test_a_compaction_or_a_cut_meanwhile_has_to_be_told_to_the_target_again() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage, COMPACT)
    for number in range(12):
        record = Record(timestamp=NOW_MS, key=b"k%d" % (number % 2), value=bytes(100))
        log.append_bytes(build_batch([record]), 0)
    log.flush()
    move = begin(storage)
    step(move)
    move.prepare()
    assert move.prepared()
    target = cleanable(log, log.log_end_offset, NOW_MS)
    assert target is not None
    clean(target, 1 << 20, lambda paths: None)
    assert log.first_dirty_offset > 0
    assert not move.prepared(), "a recovery in the target would take the gaps for damage"
    move.prepare()
    assert move.prepared()
    log.truncate_to(0)
    assert not move.prepared()
    move.prepare()
    assert move.prepared() and KEY not in storage.directories[1].cleaned


def test_a_full_target_leaves_the_partition_where_it_is() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    disk.errors, disk.failing = {"write": errno.ENOSPC}, "/b"
    with pytest.raises(OSError):
        move.swap()
    disk.errors = {}
    move.give_up()
    move.discard()
    log.append_bytes(batch(b"y"), 0)
    assert log.directory == "/a/events-0" and values_of(log) == [b"x", b"y"]


@pytest.mark.parametrize("refused", ["/b/.ottla-move", "/a/events-0.", "/b/events-0"])
def test_a_full_disk_without_room_for_a_name_takes_no_directory_offline(refused: str) -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move, real = begin(storage), disk.rename
    step(move)

    def rename(source: str, target: str) -> None:
        if target.startswith(refused) and "." not in target[len(refused):]:
            raise OSError(errno.ENOSPC, "injected", target)
        real(source, target)

    disk.rename = rename                    # type: ignore[method-assign]
    with pytest.raises((OSError, MoveFailed)):
        end(move)
    disk.rename = real                      # type: ignore[method-assign]
    assert [each.offline for each in storage.directories] == [None, None]
    assert move.committed == (refused != "/b/.ottla-move")
    log.append_bytes(batch(b"y"), 0)
    log.flush()
    storage.deletions.remove()
    if move.committed:
        assert storage.homes[KEY].path == "/b"
        assert "events-0" not in disk.listdir("/a"), "its name may be used again"
    storage.checkpoint()
    disk.cut_power()
    storage = open_storage(disk)
    assert values_of(open_log(storage)) == [b"x", b"y"]
    assert homes_of(disk) == (["/b"] if move.committed else ["/a"])
    assert not disk.exists("/b/.ottla-move")


@pytest.mark.parametrize("seed", range(10))
def test_a_record_that_may_or_may_not_count_stops_the_writes(seed: int) -> None:
    disk = FaultyDisk(seed)
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    log.flush()
    move = begin(storage)
    step(move)
    real = disk.sync_directory

    def fail(path: str) -> None:
        if path == "/b":
            raise OSError(errno.EIO, "injected", path)
        real(path)

    disk.sync_directory = fail              # type: ignore[method-assign]
    with pytest.raises(StorageFailed):
        move.swap()
    with pytest.raises(StorageFailed):
        log.append_bytes(batch(b"y"), 0)
    assert [each.offline is None for each in storage.directories] == [True, False]
    disk.sync_directory = real              # type: ignore[method-assign]
    disk.cut_power()
    assert values_of(open_log(open_storage(disk))) == [b"x"]


def test_an_old_copy_that_comes_back_does_not_win() -> None:
    """The two directories may be on two disks, one of which loses its rename."""
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
    """Its former directory keeps the record of an earlier move, as while a third directory is away,
    and a crash leaves the checkpoint of before."""
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


def live(storage: Storage, chance: random.Random, told: dict[str, int]) -> None:
    """A log that is written and moved to and fro; `told` is what was promised."""
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


def disk_of(storage: Storage) -> FaultyDisk:
    assert isinstance(storage.disk, FaultyDisk)
    return storage.disk


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
            # The recovery is stopped too.
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
    """A compacted log that is written, moved and cleaned, all at the same time."""
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


def test_files_that_belong_to_no_segment_are_copied_until_the_copy_has_them() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    disk.open("/a/events-0/note.old", create=True).pwrite(b"12", 0)
    move = begin(storage)
    assert disk.read_bytes(f"{move.directory}/note.old") == b"12"
    assert move.small_files() == []
    disk.open("/a/events-0/note.old").pwrite(b"3", 2)
    source, target = "/a/events-0/note.old", f"{move.directory}/note.old"
    assert move.small_files() == [Piece(source, target)]
    disk.open("/a/events-0/leader-epoch-checkpoint.tmp", create=True)
    assert move.small_files() == [Piece(source, target)], "it is not finished"
    end(move)
    assert disk.read_bytes("/b/events-0/note.old") == b"123"


def test_a_step_copies_only_what_the_copy_does_not_have() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    for _ in range(12):
        log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    step(move, 1 << 20)
    assert move.nearly_done()
    copy = move.plan()
    assert (copy.pieces, copy.batch_bytes, copy.epochs) == ([], 0, None)
    size, one = log.segments[-1].size, len(batch(b"x"))
    log.append_bytes(batch(b"x"), 1)
    copy = move.plan()
    assert [(each.start, each.end) for each in copy.pieces] == [(size, size + one)]
    assert copy.batch_bytes == one and copy.epochs == log.epochs.encode()


def large_log(storage: Storage, mebibytes: int) -> PartitionLog:
    """A log with two sealed segments of so many batches, a little more than a MiB each."""
    log = open_log(storage, LogConfig())
    for _ in range(2):
        for _ in range(mebibytes):
            log.append_bytes(batch(bytes(1 << 20)), 0)
        log.roll()
    return log


def test_a_step_copies_eight_mebibytes_at_most_and_a_read_one(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(FaultyDisk())
    log = large_log(storage, 5)
    move = begin(storage)
    copy, size = move.plan(), log.segments[0].size
    assert copy.batch_bytes == 8 << 20 and copy.sealed == [log.segments[0]]
    assert copy.reached == {0: size, 5: (8 << 20) - size}
    reads, pread = list[int](), FaultyFile.pread

    def noted(file: FaultyFile, size: int, position: int) -> bytes:
        reads.append(size)
        return pread(file, size, position)

    monkeypatch.setattr(FaultyFile, "pread", noted)
    Copy(storage.disk, move.directory, [Piece(log.segments[0].path(".log"), "/b/x")]).run()
    assert reads == [1 << 20] * 5 + [size - (5 << 20)]
    assert storage.disk.read_bytes("/b/x") == storage.disk.read_bytes(log.segments[0].path(".log"))


def test_a_swap_of_what_was_not_copied_at_all_is_no_longer() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage, LogConfig())
    rest = (4 << 20) - len(batch(b""))
    log.append_bytes(batch(bytes(1 << 20)), 0)
    log.append_bytes(batch(bytes(rest - log.size_bytes)), 0)
    move = begin(storage)
    over = log.size_bytes - (4 << 20)
    assert 0 < over < 100 and not move.nearly_done()


@pytest.mark.parametrize(("left", "done"), [(4 << 20, True), ((4 << 20) + 1, False)])
def test_a_swap_copies_four_mebibytes_at_most(left: int, done: bool) -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage, LogConfig())
    for _ in range(5):
        log.append_bytes(batch(bytes(1 << 20)), 0)
    move = begin(storage)
    assert not move.nearly_done()
    step(move, log.size_bytes - left)
    assert move.size_bytes == log.size_bytes - left and move.nearly_done() is done


def test_a_swap_waits_for_the_files_beside_each_sealed_segment() -> None:
    storage = open_storage(FaultyDisk())
    log = large_log(storage, 1)
    move = begin(storage)
    assert not move.nearly_done(), "little is left, but no sealed segment is whole"
    step(move, log.segments[0].size)
    assert move.sealed == {0} and not move.nearly_done()
    step(move, log.segments[1].size)
    assert move.sealed == {0, 1} and move.nearly_done()


def test_the_lag_of_a_copy_is_counted_from_the_first_segment_that_is_not_whole() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    for _ in range(12):
        log.append_bytes(batch(b"x"), 0)
    log.delete_before(2)
    move = begin(storage)
    assert (move.offset_lag, move.size_bytes) == (10, 0)
    first, second = log.segments[:2]
    step(move, first.size - 1)
    assert (move.offset_lag, move.size_bytes) == (12, first.size - 1)
    step(move, 1)
    step(move, 1)
    assert move.offset_lag == 12 - second.base_offset
    step(move, 1 << 20)
    assert (move.offset_lag, move.size_bytes) == (0, log.size_bytes)


@pytest.mark.parametrize("where", ["log", "source", "target"])
def test_a_move_fails_with_what_it_needs(where: str) -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    move.check()
    if where == "log":
        log.fail("the disk is gone")
    else:
        storage.fail(getattr(move, where), "the disk is gone")
    with pytest.raises(MoveFailed, match=r"events-0 cannot be moved to /b: .*the disk is gone"):
        move.check()


def test_a_log_that_was_cut_has_to_be_moved_from_the_start_again() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    for _ in range(12):
        log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    move.check()
    step(move)
    log.truncate_to(3)
    with pytest.raises(LogCut, match="events-0 was truncated"):
        move.check()


def test_the_index_that_a_start_can_rebuild_is_not_synced_by_a_swap() -> None:
    disk = FaultyDisk()
    for name in ("x.log", "x.index", "x.timeindex", "x.txnindex"):
        disk.makedirs("/a")
        disk.write_atomically(f"/a/{name}", b"123")
    pieces = [Piece(f"/a/{name}", f"/b/{name}") for name in disk.listdir("/a")]
    disk.makedirs("/b")
    for only_needed, pending in ((True, {"x.index", "x.timeindex"}), (False, set())):
        Copy(disk, "/b", pieces).run(only_needed)
        left = {name for name in disk.listdir("/b") if disk.inode(f"/b/{name}").pending}
        assert left == pending
        assert all(disk.read_bytes(piece.target) == b"123" for piece in pieces)


def test_a_file_that_ends_early_or_is_gone_is_no_copy() -> None:
    disk = FaultyDisk()
    disk.makedirs("/a")
    disk.makedirs("/b")
    disk.write_atomically("/a/x", b"123")
    with pytest.raises(OSError, match="/a/x ends before byte 4"):
        Copy(disk, "/b", [Piece("/a/x", "/b/x", 1, 4)]).run()
    gone = Copy(disk, "/b", [Piece("/a/none", "/b/none")])
    gone.epochs = b"0\n0\n"
    gone.run()
    assert gone.vanished and disk.listdir("/b") == ["x"], "the next step lists the files again"


def test_a_move_that_was_cancelled_goes_no_further() -> None:
    storage = open_storage(FaultyDisk())
    open_log(storage).append_bytes(batch(b"x"), 0)
    move = begin(storage)
    move.give_up()
    with pytest.raises(MoveFailed, match="the move of events-0 to /b was cancelled"):
        move.check()


def test_a_copy_is_durable_under_its_name_with_its_topic_and_epochs() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 7)
    move, sync = Move(storage, KEY, storage.directories[1]), disk.sync_directory
    synced: list[str] = []

    def noted(path: str) -> None:
        synced.append(path)
        sync(path)

    disk.sync_directory = noted             # type: ignore[method-assign]
    move.begin()
    assert "/b" in synced and disk.read_bytes(f"{move.directory}/partition.metadata") == (
        partition_metadata(TOPIC_ID))
    synced.clear()
    step(move)
    assert synced[-1] == move.directory
    assert disk.read_bytes(f"{move.directory}/leader-epoch-checkpoint") == b"0\n1\n7 0\n"
    disk.cut_power()
    name = f"{0:020d}.log"
    assert disk.read_bytes(f"{move.directory}/{name}") == disk.read_bytes(f"/a/events-0/{name}")


def test_what_an_earlier_copy_left_behind_the_end_is_cut_off() -> None:
    disk = FaultyDisk()
    for path, data in (("/a", b"123"), ("/b", b"1x345")):
        disk.makedirs(path)
        disk.write_atomically(f"{path}/x", data)
    Copy(disk, "/b", [Piece("/a/x", "/b/x", 1)]).run()
    assert disk.read_bytes("/b/x") == b"123"


def test_a_segment_that_was_replaced_is_copied_anew() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage, COMPACT)
    for number in range(12):
        log.append_bytes(keyed(number), 0)
    log.flush()
    move = begin(storage)
    step(move, 1 << 20)
    move.doubted.add(0)
    assert 0 in move.sealed
    target = cleanable(log, log.log_end_offset, NOW_MS)
    assert target is not None
    clean(target, 1 << 20, lambda paths: None)
    size = log.segments[0].size
    copy = move.plan(size - 1)
    assert f"{move.directory}/{0:020d}.txnindex" in copy.removed
    assert [(each.start, each.end) for each in copy.pieces] == [(0, size - 1)]
    assert 0 not in move.sealed | move.doubted | move.reached.keys()


def test_a_step_goes_on_in_the_next_segment_up_to_its_limit() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    for _ in range(12):
        log.append_bytes(batch(b"x"), 0)
    move, first, second = begin(storage), *log.segments[:2]
    copy = move.plan(first.size + 1)
    assert copy.reached == {0: first.size, second.base_offset: 1} and copy.removed == []
    step(move, first.size - 1)
    copy = move.plan(3)
    parts = [(each.start, each.end) for each in copy.pieces if each.end is not None]
    assert parts == [(first.size - 1, first.size), (0, 2)]


def test_a_sealed_segment_brings_its_indexes_and_the_snapshot_before_it() -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage, SMALL._replace(index_interval_bytes=100))
    for number in range(12):
        log.append_bytes(batch(b"x", producer_id=7, epoch=0, sequence=number), 0)
    move, first, second = begin(storage), *log.segments[:2]
    assert [each.source for each in move.beside(first)] == [
        first.path(".index"), first.path(".timeindex")]
    assert move.beside(second) == [
        Piece(path, f"{move.directory}/{path.rpartition('/')[2]}")
        for path in map(second.path, (".index", ".timeindex", ".snapshot"))]
    step(move, 1 << 20)
    move.doubted.add(0)
    copy = move.plan()
    assert copy.removed == [f"{move.directory}/{0:020d}.txnindex"], "it was rebuilt meanwhile"
    assert copy.sealed == [first] and copy.pieces == move.beside(first)
    move.note(copy)
    assert move.doubted == set()


def test_the_target_is_told_where_the_log_begins_and_what_is_durable_and_committed() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x", producer_id=9, epoch=0, sequence=0, transactional=True), 0)
    log.append_bytes(marker(9, False), 0)
    log.append_bytes(batch(b"x"), 0)
    log.roll()
    log.flush()
    log.append_bytes(batch(b"not durable"), 0)
    log.delete_before(1)
    move, target = begin(storage), storage.directories[1]
    move.prepare()
    assert (target.recovery_points, target.log_starts) == ({KEY: 3}, {KEY: 1})
    assert target.topic_ids == {"events": TOPIC_ID}
    assert target.aborted_sizes == {KEY: log.aborted_sizes()} != {KEY: {}}
    assert target.high_watermarks == target.cleaned == {}
    storage.homes[KEY].high_watermarks[KEY] = 2
    move.prepare()
    assert target.high_watermarks == {KEY: 2}
    move.give_up()
    assert all(KEY not in known for known in target.checkpointed())


def test_a_swap_takes_the_index_of_the_last_segment_along_and_leaves_a_record() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage, LogConfig(index_interval_bytes=100))
    for _ in range(12):
        log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    step(move)
    disk.open("/b/.ottla-move.tmp", create=True).pwrite(bytes(100), 0)
    move.swap()
    assert disk.read_bytes("/b/.ottla-move") == f"0\nevents 0 {move.copy_name}\n".encode()
    for suffix in (".index", ".timeindex"):
        inode = disk.inode(f"/b/events-0/{0:020d}{suffix}")
        assert inode.content and inode.pending, "a start can rebuild it"
    assert not disk.inode(f"/b/events-0/{0:020d}.log").pending


def test_a_move_whose_files_another_program_removed_is_given_up() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    disk.unlink(f"/a/events-0/{0:020d}.log")
    with pytest.raises(MoveFailed, match="events-0: files of the log were removed"):
        move.swap()
    assert not move.committed and storage.homes[KEY].path == "/a"
    assert not disk.exists("/b/.ottla-move")


@pytest.mark.parametrize(("kind", "code"), [("sync", errno.ENOSPC), ("name", errno.EIO)])
def test_a_record_of_which_it_is_unknown_whether_it_counts_takes_the_log_offline(
    kind: str, code: int
) -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    real = disk.rename, disk.sync_directory

    def fail(path: str, target: str = "") -> None:
        if path == "/b" or target == "/b/.ottla-move":
            raise OSError(code, "injected", path)
        real[bool(not target)](*filter(None, (path, target)))

    setattr(disk, "rename" if kind == "name" else "sync_directory", fail)
    with pytest.raises(StorageFailed, match="it is unknown whether its move to /b"):
        move.swap()
    assert log.offline is not None and not move.committed
    assert [each.offline is None for each in storage.directories] == [True, False]


def test_a_full_source_does_not_have_to_write_indexes_to_be_moved() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage, LogConfig(index_interval_bytes=100))
    for number in range(12):
        log.append_bytes(batch(b"%d" % number), 0)
    move = begin(storage)
    disk.errors, disk.failing = {"write": errno.ENOSPC}, "/a/events-0"
    move.swap()
    assert log.offline is None and not disk.exists(f"/b/events-0/{0:020d}.index")
    disk.errors = {}
    move.finish()()
    assert values_of(log) == [b"%d" % number for number in range(12)]
    assert values_of(log, 9) == [b"9", b"10", b"11"]
    log.append_bytes(batch(b"12"), 0)
    storage.close()
    assert disk.exists(f"/b/events-0/{0:020d}.index")
    assert values_of(open_log(open_storage(disk)))[-1] == b"12"


def test_a_source_that_cannot_be_written_any_more_is_not_moved() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage, LogConfig(index_interval_bytes=100))
    for _ in range(12):
        log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    disk.errors, disk.failing = {"write": errno.EIO}, "/a/events-0"
    with pytest.raises(StorageFailed):
        move.swap()
    assert log.offline is not None and not move.committed
    assert not disk.exists("/b/.ottla-move") and storage.directories[1].offline is None


def test_a_file_that_goes_while_files_are_listed_leaves_the_others() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    open_log(storage).append_bytes(batch(b"x"), 0)
    move, real = begin(storage), disk.listdir
    disk.open("/a/events-0/note.old", create=True)
    disk.listdir = lambda path: ["gone.old", *real(path)]   # type: ignore[method-assign]
    assert [each.source for each in move.small_files()] == ["/a/events-0/note.old"]


def test_a_partition_is_where_it_was_moved_to_and_nowhere_else() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    log.flush()
    storage.checkpoint([(KEY, 1)])
    move, synced, sync = begin(storage), list[str](), disk.sync_directory
    a, b = storage.directories
    move.prepare()
    move.swap()
    assert storage.moves == {} and storage.homes == {KEY: b}
    assert (a.partitions, b.partitions) == (set(), {KEY})
    assert a.recovery_points == {} and b.recovery_points == {KEY: 1} == b.high_watermarks
    finish = move.finish()
    assert disk.exists("/b/.ottla-move")

    def noted(path: str) -> None:
        synced.append(f"{path} {disk.exists('/b/.ottla-move')}")
        sync(path)

    disk.sync_directory = noted             # type: ignore[method-assign]
    finish()
    assert synced == ["/a True", "/b True", "/b False"], "the record goes last"
    before = list(storage.deletions.directories)
    move.discard()
    assert storage.deletions.directories == before, "the copy is the log now"


@pytest.mark.parametrize("where", [0, 1])
def test_a_move_whose_directory_fails_after_its_record_is_left_to_the_next_start(
    where: int
) -> None:
    storage = open_storage(FaultyDisk())
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move = begin(storage)
    move.swap()
    storage.fail(storage.directories[where], "the disk is gone")
    with pytest.raises(MoveFailed, match="a restart finishes the move, once its directories work"):
        move.finish()


def test_a_copy_that_cannot_get_its_name_takes_the_target_offline() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    log = open_log(storage)
    log.append_bytes(batch(b"x"), 0)
    move, real = begin(storage), disk.rename

    def rename(source: str, target: str) -> None:
        if target == "/b/events-0":
            raise OSError(errno.EIO, "injected", target)
        real(source, target)

    disk.rename = rename                    # type: ignore[method-assign]
    move.swap()
    assert "could not be renamed" in move.left and move.committed
    assert [each.offline is None for each in storage.directories] == [True, False]
    with pytest.raises(MoveFailed, match="could not be renamed"):
        move.finish()
    disk.rename = real                      # type: ignore[method-assign]
    disk.kill()
    storage = open_storage(disk)
    assert homes_of(disk) == ["/b"] and values_of(open_log(storage)) == [b"x"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_that_is_discarded_is_removed_at_once_if_its_disk_works(gone: bool) -> None:
    storage = open_storage(FaultyDisk())
    open_log(storage).append_bytes(batch(b"x"), 0)
    move = begin(storage)
    if gone:
        storage.fail(storage.directories[1], "the disk is gone")
    move.give_up()
    move.discard()
    assert storage.deletions.due() == ([] if gone else [move.directory])
