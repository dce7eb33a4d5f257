"""Logs under kill -9, power cuts at any operation, full disks and failing disks, with seeds."""

import errno
import random

import pytest

from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, values_of
from tests.log.faulty_disk import FaultyDisk, PowerCut
from tests.log.invariants import check_indexes, check_log

DIRECTORY = "/data/events-0"
CRASH_POINTS = 10_000


class Story:
    """A log under appends, rolls, flushes and truncations, and how many records it promised to
    keep."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.disk = FaultyDisk(seed)
        self.config = LogConfig(
            segment_bytes=self.random.choice([400, 1000, 5000]), index_interval_bytes=100
        )
        self.appended: list[bytes] = []
        self.promised = 0
        self.recovery_point = 0
        self.sequence = 0
        self.log = self.open()

    def open(self, clean: bool = False) -> PartitionLog:
        return PartitionLog.open(
            self.disk,
            FakeClock(),
            DIRECTORY,
            self.config,
            open_files=OpenFiles(2),
            checkpoint=LogCheckpoint(self.recovery_point),
            clean=clean,
        )

    def live(self, steps: int) -> None:
        """Do some random steps; the power may fail in any of them."""
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.75:
                self.append()
            elif choice < 0.85:
                self.log.flush()
                self.promised = len(self.appended)
                # Like a checkpoint, it may be behind the log's recovery point, but never ahead.
                self.recovery_point = self.log.recovery_point
            elif choice < 0.9:
                self.log.roll()
            elif choice < 0.95:
                self.truncate()
            else:
                self.log.read_bytes(self.random.randrange(len(self.appended) + 1), 300)

    def append(self) -> None:
        value = b"%d" % len(self.appended) * self.random.randrange(1, 150)
        data = batch(value, producer_id=7, epoch=0, sequence=self.sequence)
        self.appended.append(value)
        self.log.append_bytes(data, len(self.appended) // 10)
        self.sequence += 1

    def truncate(self) -> None:
        keep = self.random.randrange(self.promised, len(self.appended) + 1)
        self.recovery_point = min(self.recovery_point, keep)
        self.maybe = list(self.appended)
        del self.appended[keep:]
        self.log.truncate_to(keep)
        self.maybe = []
        self.sequence = self.log.producers.get(7).last_sequence + 1 if keep else 0

    def check(self) -> None:
        """Check that the log is a prefix of what was appended, with all that was promised."""
        found = values_of(self.log)
        assert self.log.damage is None, str(self.log.damage)
        history = self.appended
        if len(found) > len(history):
            # The power failed during a truncation.
            history = self.maybe
        assert found == history[: len(found)], f"seed {self.seed}"
        assert len(found) >= self.promised, f"seed {self.seed}"
        assert self.log.log_end_offset == len(found)
        check_log(self.log)
        state = self.log.producers.get(7)
        assert state is None or state.last_offset == len(found) - 1
        assert state is not None or not found

    maybe: list[bytes] = []


@pytest.mark.parametrize("part", range(10))
def test_a_flushed_batch_survives_a_power_cut_at_any_operation(part: int) -> None:
    for seed in range(part, CRASH_POINTS, 10):
        story = Story(seed)
        stop_at = story.random.randrange(1, 150)
        with story.disk.stops_at(stop_at):
            while story.disk.operations < stop_at:      # go on until the power fails
                story.live(1)
        story.disk.cut_power()
        story.log = story.open()
        story.check()
        found = values_of(story.log)
        # Appends continue, and a second recovery changes nothing.
        story.log.append_bytes(batch(b"after"), 99)
        again = story.open()
        assert values_of(again) == [*found, b"after"], f"seed {seed}"
        assert again.epochs.entries == story.log.epochs.entries


def test_every_appended_batch_survives_kill_9_at_any_moment() -> None:
    for seed in range(300):
        story = Story(seed)
        story.live(story.random.randrange(60))
        story.disk.kill()
        before = story.log.epochs.entries
        story.log = story.open()
        assert values_of(story.log) == story.appended, f"seed {seed}"
        assert story.log.damage is None
        assert story.log.epochs.entries == before or not story.appended
        check_log(story.log)
        check_indexes(story.log)


def test_a_write_that_kill_9_cuts_short_was_never_appended() -> None:
    for seed in range(300):
        story = Story(seed)
        with story.disk.stops_at(story.random.randrange(5, 100)):
            story.live(60)
        story.promised = max(0, len(story.appended) - 1)
        story.disk.kill()
        story.log = story.open()
        if not story.maybe:
            story.check()


def test_recovery_that_is_itself_interrupted_gives_the_same_log() -> None:
    for seed in range(40):
        story = Story(seed)
        story.live(30)
        story.disk.cut_power()
        state = {name: bytes(inode.content) for name, inode in story.disk.names.items() if inode}
        expected = values_of(story.open())
        for stop_at in range(1, 60):
            restore(story.disk, state)
            story.disk.operations, story.disk.stop_at = 0, stop_at
            try:
                story.open()
                break
            except PowerCut:
                story.disk.kill()
            assert values_of(story.open()) == expected, f"seed {seed}, operation {stop_at}"


def restore(disk: FaultyDisk, state: dict[str, bytes]) -> None:
    """Restore every file to the state that a power cut left."""
    for name in [name for name, inode in disk.names.items() if inode and name not in state]:
        del disk.names[name]
    for name, content in state.items():
        file = disk.open(name, create=True)
        file.inode.content = bytearray(content)
        file.inode.pending.clear()


def test_a_clean_stop_needs_no_recovery() -> None:
    for seed in range(50):
        story = Story(seed)
        story.live(40)
        story.log.close()
        story.recovery_point = story.log.recovery_point
        story.disk.cut_power()
        story.log = story.open(clean=True)
        assert values_of(story.log) == story.appended
        assert story.log.recovery_point == len(story.appended)
        story.check()


def test_a_full_disk_refuses_appends_and_loses_nothing() -> None:
    for free in range(2500, 6000, 77):
        story = Story(free)
        story.disk.free = free
        refused = 0
        for _ in range(60):
            try:
                story.append()
            except StorageFailed:
                refused += 1
                story.appended.pop()
                assert values_of(story.log) == story.appended
        assert refused
        assert story.log.offline is None
        story.disk.free = 1 << 20
        story.append()
        story.disk.kill()
        story.log = story.open()
        assert values_of(story.log) == story.appended


def test_a_write_that_can_not_be_undone_takes_the_log_offline() -> None:
    story = Story(1)
    story.append()
    story.disk.errors = {"write": errno.EIO, "truncate": errno.EIO}
    with pytest.raises(StorageFailed):
        story.append()
    story.disk.errors = {}
    with pytest.raises(StorageFailed, match="could not be truncated"):
        story.append()
    assert values_of(story.log) == story.appended[:1]


def test_a_failed_flush_takes_the_log_offline_for_good() -> None:
    story = Story(1)
    story.append()
    story.log.flush()
    story.append()
    task = story.log.begin_flush()
    assert task is not None
    story.disk.errors = {"sync": errno.EIO}
    task.run()
    story.disk.errors = {}
    with pytest.raises(StorageFailed, match="a flush failed"):
        story.log.end_flush(task)
    for write in (story.append, story.log.flush, story.log.roll):
        with pytest.raises(StorageFailed, match="a flush failed"):
            write()
    assert story.log.recovery_point == 1
    assert values_of(story.log) == story.appended[:2]


def test_a_flush_does_not_cover_what_was_appended_or_cut_meanwhile() -> None:
    story = Story(1)
    for _ in range(5):
        story.append()
    task = story.log.begin_flush()
    assert task is not None
    story.append()
    task.run()
    story.log.end_flush(task)
    assert story.log.recovery_point == 5
    task = story.log.begin_flush()
    assert task is not None
    story.log.truncate_to(3)
    story.log.append_bytes(batch(b"new"), 9)
    task.run()
    story.log.end_flush(task)
    assert story.log.recovery_point == 3
