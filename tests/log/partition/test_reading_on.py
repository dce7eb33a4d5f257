"""A reader that continues after its last batch finds the next batch without reading it from the
disk, so it does not wait if the batch is not cached."""

import pytest

from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from tests.fakes import FakeClock
from tests.log.batches import batch
from tests.log.faulty_disk import FaultyDisk, FaultyFile

CONFIG = LogConfig(index_interval_bytes=100)
VALUE = bytes(200)


@pytest.fixture
def log() -> PartitionLog:
    """A log of ten batches of one size, with an index entry for each but the first."""
    made = PartitionLog.open(FaultyDisk(), FakeClock(), "t-0", CONFIG)
    for _ in range(10):
        made.append_bytes(batch(VALUE, VALUE), 0)
    return made


@pytest.fixture
def looked_at(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The ranges of the `.log` file that are read from now on."""
    found: list[range] = []
    read = FaultyFile.pread

    def pread(file: FaultyFile, size: int, position: int) -> bytes:
        if file.path.endswith(".log"):
            found.append(range(position, position + size))
        return read(file, size, position)

    monkeypatch.setattr(FaultyFile, "pread", pread)
    return found


def test_the_next_batch_is_found_without_a_look_at_it(
    log: PartitionLog, looked_at: list[range]
) -> None:
    size = log.size_bytes // 10
    for number in range(2, 8):
        looked_at.clear()
        # A read of an earlier header may reach into this batch, but no read begins there.
        found = log.slice(2 * number, 3 * size)
        assert (found.position, found.size) == (number * size, 3 * size)
        assert all(read.start < number * size for read in looked_at)


def test_a_fetch_that_may_be_too_small_for_it_does_look(
    log: PartitionLog, looked_at: list[range]
) -> None:
    size = log.size_bytes // 10
    found = log.slice(8, size - 1)
    assert (found.position, found.size) == (4 * size, size)
    assert any(read.start == 4 * size for read in looked_at)
    assert log.slice(8, size - 1, at_least_one=False).size == 0


def test_offsets_inside_a_batch_are_found_as_ever(log: PartitionLog) -> None:
    size = log.size_bytes // 10
    for offset in range(20):
        assert log.slice(offset, 2 * size).position == offset // 2 * size
