"""The records of this run in the log directories, from which the next start judges the contents of
the directories (`last_run`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.log.files.disk import Disk
from ottla.log.storage import run_record
from ottla.log.storage.log_directory import CLEAN_MARKER

log = logging.getLogger("ottla.member")


class RunRecords:
    """The records of one process; `flush` is `ottla.acks.all.flush`."""

    def __init__(self, disk: Disk, flush: bool) -> None:
        self.disk, self.flush = disk, "true" if flush else "false"
        self.epoch = -1
        """The broker epoch in the records, -1 before there are any."""
        self.failed: set[str] = set()
        """Log directories that have failed in this run."""
        self.away: tuple[str, ...] = ()
        """The ids of log directories that were missing when this run began."""
        self.directories: tuple[str, ...] = ()
        """The paths of the log directories that were present when this run began."""

    def begin(self, away: tuple[str, ...], directories: Iterable[str]) -> None:
        """Note the directories with which this broker is about to register."""
        self.away, self.directories = away, tuple(directories)

    def write(self, epoch: int, clean: bool = False) -> None:
        """Write what the next start has to know of this run."""
        assert epoch >= self.epoch, "the broker epoch is lower than the one already written"
        self.epoch = epoch
        record = run_record.RunRecord(epoch, self.disk.boot_id(), self.flush, clean, self.away)
        for path in self.directories:
            if path in self.failed:
                continue                        # the disk may have lost what the record vouches for
            try:
                if not clean or self.disk.exists(f"{path}/{CLEAN_MARKER}"):
                    run_record.write(self.disk, path, record)
            except OSError as error:
                log.warning("%s/%s, which describes this run, could not be written: %s",
                            path, run_record.RUN, error)

    def end(self) -> None:
        """The run has ended cleanly: say so in each directory that has a clean shutdown marker."""
        if self.epoch >= 0:
            self.write(self.epoch, clean=True)

    def forget(self, path: str) -> None:
        """A log directory has failed: remove the record from it. With the record, the next start
        would trust the directory's logs, but the disk may have lost writes."""
        self.failed.add(path)
        try:
            self.disk.unlink(f"{path}/{run_record.RUN}")
        except OSError as error:
            log.warning("%s/%s, which describes this run, could not be removed: %s",
                        path, run_record.RUN, error)
