"""The swap of a move: what the target has to know before it, and which copy applies if it fails."""

from __future__ import annotations

import errno

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner, clean
from ottla.log.partition.config import LogConfig
from ottla.log.storage.move_transfer import MoveFailed
from ottla.wire.errors import StorageFailed
from ottla.wire.records import Record, build_batch
from tests.log.batches import NOW_MS, batch, values_of
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import marker
from tests.log.storage.moves import (
    COMPACT,
    KEY,
    TOPIC_ID,
    begin,
    end,
    homes_of,
    keyed,
    open_log,
    open_storage,
    step,
)


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


def test_a_log_that_moves_away_and_back_while_it_is_compacted_keeps_everything() -> None:
    """The first move leaves the files of the pass behind. After the second move, the path of the
    log is the same again."""
    for paused in range(40):
        storage = open_storage(FaultyDisk())
        log = open_log(storage, COMPACT)
        for number in range(24):
            log.append_bytes(keyed(number), 0)
        log.seal()
        log.flush()
        target = cleanable(log, log.log_end_offset, NOW_MS)
        assert target is not None
        before, steps = values_of(log), Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps()
        for task, _ in zip(steps, range(paused), strict=False):
            if task is not None:
                task.run()
        if log.first_dirty_offset:
            break
        survivors, segments = values_of(log), list(log.segments)
        for _ in ("there", "and back"):
            end(begin(storage))
        with pytest.raises(Abandoned):
            for task in steps:
                if task is not None:
                    task.run()
        assert values_of(log) == survivors and log.segments == segments
    assert paused > 5 and values_of(log) != before, "some pause was amid the pass"


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
    with pytest.raises(StorageFailed, match="only a restart can find out whether its move to /b"):
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
    with pytest.raises(MoveFailed, match="restart the broker with working log directories"):
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
