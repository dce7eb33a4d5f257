"""A flush in three steps, so that only kernel calls run beside the loop.

`PartitionLog.begin_flush` collects what has to reach the medium, `FlushTask.run` waits for it in
any thread, `PartitionLog.end_flush` moves the recovery point, on the loop again.
"""

from dataclasses import dataclass

from ottla.log.disk import Disk, File, is_passing

SYNCS_ONE_BY_ONE_MAX = 20
"""With more, one call for the whole file system costs less."""
LOGS_ONE_BY_ONE_MAX = 20
"""With more, `begin_flush` is to open no files: a thousand logs would be thousands of descriptors.
"""


class EpochsFile:
    """A log's `leader-epoch-checkpoint`, which several flushes in several threads may write.

    The newest epochs win, whichever flush comes last. After `close` nobody writes to the path: it
    may be another topic's by then.
    """

    __slots__ = ("data", "disk", "durable", "lock", "newest", "path", "versions")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk, self.lock = disk, disk.new_lock()
        self.path: str | None = f"{directory}/leader-epoch-checkpoint"
        self.versions = self.newest = self.durable = 0
        self.data = b""

    def next_version(self) -> int:
        """The number of what is to be written next."""
        self.versions += 1
        return self.versions

    def write(self, version: int, data: bytes, durable: bool) -> None:
        """Write `data`, or what is newer, unless it is on the medium. Raises OSError."""
        with self.lock:
            if self.path is None or version <= self.durable:
                return
            if version > self.newest:
                self.newest, self.data = version, data
            if durable:
                self.disk.write_atomically(self.path, self.data)
                self.durable = self.newest
            else:
                self.disk.write_and_rename(self.path, self.data)

    def close(self) -> None:
        """The log's directory is about to lose its name. Waits for a write that is under way."""
        with self.lock:
            self.path = None


@dataclass(slots=True)
class FlushTask:
    """What one flush of one log syncs, and up to which offset the log is durable then."""

    disk: Disk
    offset: int
    files: list[File]
    directories: list[str]
    epochs_file: EpochsFile
    epochs_version: int
    epochs: bytes | None
    by_file_system: bool = False
    ended: bool = False
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
            self.write_epochs(durable=True)
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except OSError as error:
            self.error = error

    def write_epochs(self, durable: bool) -> None:
        """Write the leader epochs, if they have changed; on the medium at once where `durable`."""
        if self.epochs is None:
            return
        try:
            self.epochs_file.write(self.epochs_version, self.epochs, durable)
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
            task.write_epochs(durable=False)
        disk.sync_file_system(directory)
    except OSError as failure:
        error = failure
    for task in tasks:
        task.error = error
