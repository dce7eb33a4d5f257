"""A cleaner's reads are tasks for a thread; what goes wrong with one leaves the log as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Cleaner, ReadTask
from ottla.wire.errors import CorruptMessage
from tests.log.compaction.test_cleaner import Table
from tests.log.faulty_disk import FaultyFile


@pytest.fixture
def table() -> Table:
    """Two sealed segments, whose keys were written twice each."""
    made = Table()
    for number in range(16):
        made.put((b"key-%d" % (number % 8), b"%d" % number * 50))
    made.seal()
    return made


@pytest.fixture
def steps(table: Table) -> Iterator[Iterator[object]]:
    """A pass over it that has not begun."""
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

    # What the log itself looks up, such as its first batch, is no part of a step.
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
