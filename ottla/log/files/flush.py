"""A flush in three steps, so that only system calls run outside the loop's thread.

`PartitionLog.begin_flush` collects what has to be synced, `FlushTask.run` syncs it in any thread,
`PartitionLog.end_flush` moves the recovery point, on the loop again.
"""

from dataclasses import dataclass

from ottla.log.files.disk import Disk, File, is_passing
from ottla.log.files.names import EPOCHS

SYNCS_ONE_BY_ONE_MAX = 20
"""Above this number of syncs, one call for the whole file system is cheaper."""
LOGS_ONE_BY_ONE_MAX = 20
"""Above this number of logs, `begin_flush` opens no files: it would need thousands of
descriptors."""


class EpochsFile:
    """A log's `leader-epoch-checkpoint`, which several flushes in several threads may write.

    The newest epochs win, whichever flush ends last. After `close` nothing is written, because the
    path may belong to another topic by then.
    """

    __slots__ = ("data", "disk", "durable", "lock", "newest", "path", "versions")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk, self.lock = disk, disk.new_lock()
        self.path: str | None = f"{directory}/{EPOCHS}"
        self.versions = self.newest = self.durable = 0
        self.data = b""

    def next_version(self) -> int:
        """A version number for the next content to be written."""
        self.versions += 1
        return self.versions

    def write(self, version: int, data: bytes, durable: bool) -> None:
        """Writes the newest data passed so far, unless `version` or a newer one is durable already.
        Raises OSError."""
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
        """Called before the log's directory is renamed. Waits for a write in progress."""
        with self.lock:
            self.path = None


@dataclass(slots=True, eq=False, repr=False)
class FlushTask:
    """The files that a flush of one log has to sync, and the offset up to which the log is durable
    afterwards."""

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
        """The number of sync calls that the task needs."""
        return len(self.files) + len(self.directories) + (2 if self.epochs is not None else 0)

    def run(self) -> None:
        """Syncs the task's files and directories.

        An OSError is kept in `error` for `end_flush`, and no sync is retried. A temporary error,
        such as a full disk, may prevent writing the leader epochs. It is kept in `refused`, and the
        rest is synced: another flush may succeed in writing the epochs.
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
        """Writes the leader epochs if they have changed, and syncs them if `durable`."""
        if self.epochs is None:
            return
        try:
            self.epochs_file.write(self.epochs_version, self.epochs, durable)
        except OSError as error:
            if not is_passing(error):
                raise
            self.refused = error


def run_all(disk: Disk, directory: str, tasks: list[FlushTask]) -> None:
    """Runs the tasks of one file system. One `syncfs` replaces their sync calls if there are many,
    or if a task has `by_file_system` set."""
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
