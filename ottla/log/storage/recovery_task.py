"""Opens logs after an unclean stop, several at a time.

`Storage.recoveries` lists these logs. `LogRecovery.run` opens and recovers one log, in any thread:
the expensive parts, reading and checksums, run without the interpreter lock. `Storage.end_recovery`
keeps the result until `get_or_create` asks for that log. So logs are returned, and errors reported,
in the order of these calls, whichever recovery ends first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.log.files.checkpoints import Partition
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.log_directory import LogDirectory

Wanted = Iterable[tuple[Partition, bytes | None, LogConfig]]
"""Partitions with their topics' ids and settings."""
OPEN_SEGMENTS = 20
"""Segments that may be open in each log being recovered. Each recovery has its own `OpenFiles`,
because an `OpenFiles` is for one thread only."""


@dataclass(slots=True, eq=False, repr=False)
class LogRecovery:
    """The recovery of one log. `error` is the disk error that ended `run`. If `run` sets neither
    `log` nor `error`, the directory belongs to another topic."""

    disk: Disk
    clock: Clock
    home: LogDirectory
    key: Partition
    topic_id: bytes | None
    config: LogConfig
    log: PartitionLog | None = None
    error: OSError | None = None

    def run(self) -> None:
        """Opens the log, unless its directory belongs to another topic. May run in any thread."""
        try:
            if self.home.is_of(self.key, self.topic_id):
                self.log = self.open(OpenFiles(OPEN_SEGMENTS))
        except OSError as error:
            self.error = error

    def open(self, open_files: OpenFiles) -> PartitionLog:
        """The log, recovered unless the stop was clean. Raises OSError."""
        home, key = self.home, self.key
        return PartitionLog.open(
            self.disk, self.clock, home.file(f"{key[0]}-{key[1]}"), self.config,
            open_files=open_files, topic_id=self.topic_id,
            checkpoint=LogCheckpoint(
                home.recovery_points.get(key, 0), home.log_starts.get(key, 0),
                home.cleaned.get(key, 0), home.written_upto(key), home.aborted_sizes.get(key),
            ),
            clean=home.clean,
        )

    def result(self) -> PartitionLog:
        """The result of `run`. Raises OSError."""
        if self.error is not None:
            raise self.error
        assert self.log is not None
        return self.log
