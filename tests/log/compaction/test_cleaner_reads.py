"""A cleaner leaves its reads, and the work on large batches, to a thread, as tasks.

If such a task fails, the log stays unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from ottla.log.compaction import filter
from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Cleaner, ReadTask, SyncTask
from ottla.log.compaction.filter import BatchTask
from ottla.wire.checksum import crc32c_of
from ottla.wire.compression import compress, decompress
from ottla.wire.errors import CorruptMessage
from ottla.wire.records import Record, build_batch
from tests.log.batches import NOW_MS
from tests.log.compaction.table import COMPACT, Table
from tests.log.faulty_disk import FaultyFile


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


def test_nothing_is_read_but_by_tasks(
    table: Table, steps: Iterator[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {segment.path(".log") for segment in table.log.segments}
    read, allowed = FaultyFile.pread, False

    def pread(file: FaultyFile, size: int, position: int) -> bytes:
        assert allowed or file.path not in sources
        return read(file, size, position)

    # The first step is not checked: in it, the log itself reads, for example, its first batch.
    next(steps).run()  # type: ignore[attr-defined]
    monkeypatch.setattr(FaultyFile, "pread", pread)
    reads = 0
    for task in steps:
        if isinstance(task, ReadTask):
            allowed, reads = True, reads + 1
            task.run()
            allowed = False
        elif task is not None:
            task.run()  # type: ignore[attr-defined]
    assert reads > 1
    assert table.log.first_dirty_offset == 16


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(OSError(5, "Input/output error"), OSError), (EOFError("ended"), CorruptMessage)],
)
def test_a_read_that_fails_ends_the_pass(
    table: Table, steps: Iterator[object], failure: Exception, raised: type[Exception]
) -> None:
    before = table.committed(table.log)
    with pytest.raises(raised):
        for task in steps:
            if isinstance(task, ReadTask):
                task.run()
                task.error = failure  # type: ignore[assignment]
    assert table.log.first_dirty_offset == 0
    assert table.committed(table.log) == before


def large_table(codec: int) -> Table:
    """Three batches that are too large to be processed on the loop, one of them with deletions, and
    a small batch."""
    made = Table(config=COMPACT._replace(segment_bytes=1 << 20))
    for number in range(2):
        values = [bytes([number + at % 7]) * 40 for at in range(2500)]
        made.put(*[(b"%d" % (at * 2), value) for at, value in enumerate(values)], codec=codec)
    made.put(*[(b"%d" % at, None if at % 3 else b"x") for at in range(3000)], codec=codec)
    made.put((b"%d" % 2, b"last"), codec=codec)
    made.seal()
    return made


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_large_batches_are_gone_through_by_tasks(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = False

    def beside(work: Callable[..., bytes]) -> Callable[..., bytes]:
        def called(codec: int, data: memoryview, *rest: int) -> bytes:
            result = work(codec, data, *rest)
            assert allowed or max(len(data), len(result)) < 1 << 16
            return result

        return called

    monkeypatch.setattr(filter, "decompress", beside(decompress))
    monkeypatch.setattr(filter, "compress", beside(compress))
    table, tasks = large_table(codec), 0
    for again in range(2):
        target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
        assert target is not None
        for task in Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps():
            allowed = isinstance(task, BatchTask)
            tasks += allowed
            if task is not None:
                task.run()
            allowed = False
        table.check(table.log)
        assert len(table.committed(table.log)) == (2002 if again else 4000)
        if not again:
            assert tasks == 6
            table.clock.advance(table.config.delete_retention_ms + 1)
            table.put((b"new", b"new"))
            table.seal()
    table.check(table.log)


def test_few_bytes_with_much_inside_are_a_task() -> None:
    table = Table()
    table.put((b"a", bytes(20 << 20)), codec=4)
    table.put((b"b", bytes(2 << 20)), codec=1)
    assert table.log.size_bytes < 5000
    table.seal()
    target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
    assert target is not None
    kinds = []
    for task in Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps():
        kinds.append(type(task))
        if task is not None:
            task.run()
    assert kinds.count(BatchTask) == 4


def test_damage_inside_a_large_batch_ends_the_pass() -> None:
    table = Table(config=COMPACT._replace(segment_bytes=1 << 20))
    records = [Record(timestamp=NOW_MS, key=b"%d" % at, value=b"v" * 40) for at in range(2500)]
    data = bytearray(build_batch(records, codec=1))
    data[3000:3100] = bytes(100)
    data[17:21] = crc32c_of(data[21:]).to_bytes(4, "big")
    table.log.append_bytes(data, 0)
    table.seal()
    before = table.log.read_bytes(0, 1 << 20)
    with pytest.raises(CorruptMessage):
        table.clean()
    assert table.log.first_dirty_offset == 0
    assert table.log.read_bytes(0, 1 << 20) == before


def test_a_cleaned_segment_is_durable_with_its_indexes_before_it_takes_a_place() -> None:
    table = Table()
    for number in range(5):
        table.put((b"%d" % max(number, 1), b"x" * 50))
    table.seal()
    target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
    assert target is not None
    before, base = list(table.log.segments), table.log.segments[0].path("")
    with closing(Cleaner(target, 1 << 20, 0.0, lambda paths: None).steps()) as steps:
        task = next(steps)
        while not isinstance(task, SyncTask):
            if task is not None:
                task.run()
            task = next(steps)
        assert table.log.segments == before
        assert {file.path for file in task.files} == {
            f"{base}{suffix}.cleaned" for suffix in (".log", ".index", ".timeindex")}
