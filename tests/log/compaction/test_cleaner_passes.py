"""A pass of compaction at its edges: the log changes, a disk fails, or the pass is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from errno import EIO
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner, ReadTask, SyncTask, clean
from tests.log.compaction.table import COMPACT, Table
from tests.log.faulty_disk import FaultyDisk, FaultyFile


@pytest.fixture
def table() -> Table:
    """Four sealed segments with eight keys, each of which was written twice."""
    made = Table()
    for number in range(16):
        made.put((b"key-%d" % (number % 8), b"%d" % number * 50))
    made.seal()
    return made


@pytest.fixture
def steps(table: Table) -> Iterator[Iterator[object]]:
    """The steps of a pass over `table` that has not begun."""
    target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
    assert target is not None
    with closing(Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps()) as found:
        yield found


def test_a_sync_that_fails_is_kept_for_the_loop() -> None:
    disk = FaultyDisk()
    disk.makedirs("/d")
    file = disk.open("/d/x", create=True)
    file.pwrite(b"1", 0)
    assert "/d/x" not in disk.durable_names
    task = SyncTask(disk, [file])
    task.run()
    assert task.error is None and not disk.inode("/d/x").pending
    assert "/d/x" not in disk.durable_names, "no directory was given"
    SyncTask(disk, directory="/d").run()
    assert "/d/x" in disk.durable_names
    disk.errors = {"sync": EIO}
    task.run()
    assert task.error is not None and task.error.errno == EIO


@pytest.mark.parametrize("failure", [OSError(EIO, "a bad sector"), EOFError("ended")])
def test_a_read_that_fails_is_kept_for_the_loop(failure: Exception) -> None:
    def read_on() -> None:
        raise failure

    scan: Any = SimpleNamespace(read_on=read_on)
    task = ReadTask(scan)
    task.run()
    assert task.error is failure


def test_a_pass_says_what_it_has_read_and_written(table: Table) -> None:
    target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
    assert target is not None
    cleaner = Cleaner(target, 1 << 20, 0.0, lambda paths: None)
    assert (cleaner.bytes_read, cleaner.bytes_written, cleaner.memory) == (0, 0, 0)
    assert cleaner.take_moved() == 0 and cleaner.reading is None
    size, moved = sum(each.size for each in table.log.segments[:-1]), 0
    for task in cleaner.steps():
        if task is not None:
            task.run()
        moved += cleaner.take_moved()
    moved += cleaner.take_moved()
    assert cleaner.bytes_read == 2 * size, "once for the keys, once to filter"
    assert cleaner.bytes_written == sum(each.size for each in table.log.segments[:-1]) > 0
    assert moved == cleaner.bytes_read + cleaner.bytes_written and cleaner.take_moved() == 0
    assert cleaner.memory > 0


@pytest.mark.parametrize("change", ["cut", "moved", "offline"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_pass_over_a_log_that_has_changed_is_abandoned(
    table: Table, steps: Iterator[object], change: str, begun: bool
) -> None:
    if begun:
        next(steps).run()  # type: ignore[attr-defined]
    if change == "cut":
        table.log.truncate_to(table.log.log_end_offset - 1)
        said = "lost segments"
    elif change == "moved":
        table.log.move_to("/data/elsewhere")
        said = "/data/table-0 was closed"
    else:
        table.log.fail("the disk is gone")
        said = "/data/table-0 was closed"
    with pytest.raises(Abandoned, match=f"{said} while it was cleaned"):
        next(steps)
    assert table.log.first_dirty_offset == 0


def test_a_log_that_is_cut_after_its_last_group_is_not_noted_as_cleaned(
    table: Table, steps: Iterator[object]
) -> None:
    syncs = 0
    with pytest.raises(Abandoned):
        for task in steps:
            if task is not None:
                task.run()  # type: ignore[attr-defined]
            if isinstance(task, SyncTask) and task.directory is not None:
                syncs += 1
                if len(table.log.segments) == 2 or syncs == 2:
                    table.log.truncate_to(table.log.log_end_offset - 1)
    assert table.log.first_dirty_offset == 0


def test_a_pass_reads_one_mebibyte_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(config=COMPACT._replace(segment_bytes=8 << 20))
    for number in range(5):
        table.put((b"%d" % number, bytes(500_000)))
    table.seal()
    sizes, pread = set[int](), FaultyFile.pread

    def noted(file: FaultyFile, size: int, position: int) -> bytes:
        sizes.add(size)
        return pread(file, size, position)

    monkeypatch.setattr(FaultyFile, "pread", noted)
    table.clean()
    assert max(sizes) == 1 << 20


def test_a_group_has_an_index_of_the_configured_size_at_most() -> None:
    """An entry of the time index has 12 bytes; entries of the offset index are smaller."""
    table = Table(config=COMPACT._replace(
        segment_bytes=100_000, index_interval_bytes=100, segment_index_bytes=12 * 8))
    for number in range(12):
        table.put((b"%d" % number, bytes(100)))
        table.log.roll()
    table.put((b"0", b"newer"))
    table.seal()
    table.clean()
    sizes = [segment.size for segment in table.log.segments[:-1]]
    assert len(sizes) > 1 and max(sizes) <= 800 and sizes[0] > 400


def test_a_directory_that_goes_while_it_is_synced_ends_the_pass_alone(
    table: Table, steps: Iterator[object]
) -> None:
    """This happens if the topic is deleted, or if the log moves to another log directory."""
    with pytest.raises(Abandoned, match="was moved or deleted while it was cleaned"):
        for task in steps:
            if isinstance(task, SyncTask):
                table.log.move_to("/data/elsewhere")
                task.error = OSError(EIO, "gone")
            elif task is not None:
                task.run()  # type: ignore[attr-defined]
    assert table.log.offline is None


def test_a_pass_that_is_stopped_leaves_no_temporary_files(table: Table) -> None:
    names = {*table.disk.listdir(table.log.directory)}
    target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
    assert target is not None
    steps = Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps()
    for task in steps:
        if isinstance(task, SyncTask):
            break
        if task is not None:
            task.run()
    assert {*table.disk.listdir(table.log.directory)} > names
    steps.close()
    assert {*table.disk.listdir(table.log.directory)} == names


def test_what_an_interrupted_pass_left_is_not_taken_for_its_own(table: Table) -> None:
    left = f"{table.log.directory}/{0:020d}.txnindex.cleaned"
    table.disk.write_atomically(left, b"left over")
    table.clean()
    assert not table.disk.exists(left)
    assert not table.disk.exists(f"{table.log.directory}/{0:020d}.txnindex")


def test_replaced_files_are_handed_over_for_their_removal(table: Table) -> None:
    gone: list[str] = []
    target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
    assert target is not None
    clean(target, 1 << 20, gone.extend)
    assert f"{table.log.directory}/{0:020d}.log.deleted" in gone
    assert all(path.startswith(f"{table.log.directory}/") for path in gone)
    assert all(path.endswith(".deleted") and table.disk.exists(path) for path in gone)
