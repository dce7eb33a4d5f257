"""The steps of a copy: what each of them copies, how much, and what ends a move early."""

from __future__ import annotations

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import clean
from ottla.log.files.names import partition_metadata
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.move_transfer import Copy, LogCut, Move, MoveFailed, Piece
from ottla.log.storage.storage import Storage
from tests.log.batches import NOW_MS, batch
from tests.log.faulty_disk import FaultyDisk, FaultyFile
from tests.log.storage.moves import (
    COMPACT,
    KEY,
    SMALL,
    TOPIC_ID,
    begin,
    end,
    keyed,
    open_log,
    open_storage,
    step,
)


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
    """A log with two sealed segments of `mebibytes` batches; each batch is a little larger than a
    MiB."""
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


def test_a_file_that_goes_while_files_are_listed_leaves_the_others() -> None:
    disk = FaultyDisk()
    storage = open_storage(disk)
    open_log(storage).append_bytes(batch(b"x"), 0)
    move, real = begin(storage), disk.listdir
    disk.open("/a/events-0/note.old", create=True)
    disk.listdir = lambda path: ["gone.old", *real(path)]   # type: ignore[method-assign]
    assert [each.source for each in move.small_files()] == ["/a/events-0/note.old"]


def test_a_swap_waits_for_the_files_beside_each_sealed_segment() -> None:
    storage = open_storage(FaultyDisk())
    log = large_log(storage, 1)
    move = begin(storage)
    assert not move.nearly_done(), "little is left, but no sealed segment is whole"
    step(move, log.segments[0].size)
    assert move.sealed == {0} and not move.nearly_done()
    step(move, log.segments[1].size)
    assert move.sealed == {0, 1} and move.nearly_done()


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
