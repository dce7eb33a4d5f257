"""Retention and DeleteRecords through kill -9 and power cuts at any operation."""

from __future__ import annotations

import random

import pytest

from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import apply_retention
from tests.fakes import FakeClock
from tests.log.batches import batch, records_of
from tests.log.faulty_disk import FaultyDisk

SEEDS = 2_000


class Story:
    """A log whose first records are deleted now and then."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.disk = FaultyDisk(seed)
        self.config = LogConfig(
            segment_bytes=400, retention_bytes=self.random.choice([0, 700, 2000])
        )
        self.appended: list[bytes] = []
        self.promised = 0                               # all records below it were flushed
        self.recovery_point = self.start_checkpoint = 0
        self.log = self.open()

    def open(self) -> PartitionLog:
        return PartitionLog.open(
            self.disk, FakeClock(), "/data/events-0", self.config, open_files=OpenFiles(2),
            checkpoint=LogCheckpoint(self.recovery_point, log_start_offset=self.start_checkpoint),
        )

    def live(self, steps: int) -> None:
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.7:
                self.appended.append(b"%d" % len(self.appended) * self.random.randrange(1, 80))
                self.log.append_bytes(batch(self.appended[-1]), len(self.appended) // 10)
            elif choice < 0.8:
                self.log.flush()
                self.promised, self.recovery_point = len(self.appended), self.log.recovery_point
            elif choice < 0.85:
                self.start_checkpoint = self.log.log_start_offset
            elif choice < 0.9:
                self.log.delete_before(
                    self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
                )
            else:
                for path in apply_retention(self.log, self.log.log_end_offset):
                    self.disk.unlink(path)

    def check_reopened(self) -> None:
        """Open the log again and check it."""
        before, self.log = self.log, self.open()
        try:
            self.check(before)
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}") from error

    def check(self, before: PartitionLog) -> None:
        """Check that all records from the old log start to the promised end are there,
        unchanged."""
        log = self.log
        assert log.damage is None, str(log.damage)
        assert self.start_checkpoint <= log.log_start_offset <= log.log_end_offset
        assert log.log_start_offset <= max(before.log_start_offset, self.start_checkpoint)
        assert log.log_end_offset >= self.promised
        found = [(record.offset, record.value) for record in records_of(log)]
        expected = list(enumerate(self.appended))[log.log_start_offset : log.log_end_offset]
        assert found == expected
        assert not [name for name in self.disk.listdir("/data/events-0") if "deleted" in name]


def crashed(seed: int) -> Story:
    """A story that stopped at some operation. The caller then calls `kill` or `cut_power` of its
    disk."""
    story = Story(seed)
    with story.disk.stops_at(story.random.randrange(20, 300)):
        story.live(80)
    return story


@pytest.mark.parametrize("part", range(4))
def test_what_retention_left_survives_a_power_cut_at_any_operation(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        story = crashed(seed)
        story.disk.cut_power()
        if not story.disk.exists("/data/events-0"):
            continue
        story.check_reopened()


def test_what_retention_left_survives_kill_9_at_any_operation() -> None:
    for seed in range(500):
        story = crashed(seed)
        story.promised = min(story.log.log_end_offset, len(story.appended) - 1)
        story.disk.kill()
        story.check_reopened()
