"""A flush in three steps, so that only kernel calls run beside the loop.

`PartitionLog.begin_flush` collects what has to reach the medium, `FlushTask.run` waits for it in
any thread, `PartitionLog.end_flush` moves the recovery point, on the loop again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.log.disk import Disk, File, is_passing

SYNCS_ONE_BY_ONE_MAX = 20
"""With more, one call for the whole file system costs less."""
LOGS_ONE_BY_ONE_MAX = 20
"""With more, `begin_flush` is to open no files: a thousand logs would be thousands of descriptors.
"""


@dataclass(slots=True)
class FlushTask:
    """What one flush of one log syncs, and up to which offset the log is durable then."""

    disk: Disk
    offset: int
    files: list[File]
    directories: list[str]
    epochs_path: str
    epochs: bytes | None
    by_file_system: bool = False
    error: OSError | None = None
    refused: OSError | None = None

    @property
    def syncs(self) -> int:
        """How many calls of the device it takes."""
        return len(self.files) + len(self.directories) + (2 if self.epochs is not None else 0)

    def run(self) -> None:
        """Sync everything.

        An OSError is kept in `error` for `end_flush`, and no sync is tried again. Where only the
        epochs found no room it is kept in `refused`: another flush may find some.
        """
        try:
            for file in self.files:
                file.sync()
            self.write_epochs(self.disk.write_atomically)
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except OSError as error:
            self.error = error

    def write_epochs(self, write: Callable[[str, bytes], None]) -> None:
        """Write the leader epochs, if they have changed, by one of the disk's ways to do so."""
        if self.epochs is None:
            return
        try:
            write(self.epochs_path, self.epochs)
        except OSError as error:
            if not is_passing(error):
                raise
            self.refused = error


def run_all(disk: Disk, directory: str, tasks: list[FlushTask]) -> None:
    """Run many tasks of one file system; a single `syncfs` where that is less than file by file."""
    together = any(task.by_file_system for task in tasks)
    if not together and sum(task.syncs for task in tasks) <= SYNCS_ONE_BY_ONE_MAX:
        for task in tasks:
            task.run()
        return
    error = None
    try:
        for task in tasks:
            task.write_epochs(disk.write_and_rename)
        disk.sync_file_system(directory)
    except OSError as failure:
        error = failure
    for task in tasks:
        task.error = error
