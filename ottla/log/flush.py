"""A flush in three steps, so that only kernel calls run beside the loop.

`PartitionLog.begin_flush` collects what has to reach the medium, `FlushTask.run` waits for it in
any thread, `PartitionLog.end_flush` moves the recovery point, on the loop again.
"""

from dataclasses import dataclass, field

from ottla.log.disk import Disk, File

FILES_ONE_BY_ONE_MAX = 20


@dataclass(slots=True)
class FlushTask:
    """What one flush of one log syncs, and up to which offset the log is durable then."""

    disk: Disk
    offset: int
    files: list[File]
    directories: list[str]
    epochs_path: str
    epochs: bytes | None
    sealed: list[int] = field(default_factory=list)
    error: OSError | None = None

    def run(self) -> None:
        """Sync everything; an OSError is kept in `error` for `end_flush`, and never retried."""
        try:
            for file in self.files:
                file.sync()
            if self.epochs is not None:
                self.disk.write_atomically(self.epochs_path, self.epochs)
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except OSError as error:
            self.error = error


def run_all(disk: Disk, directory: str, tasks: list[FlushTask]) -> None:
    """Run many tasks of one file system; a single `syncfs` where that is less than file by file."""
    if sum(len(task.files) for task in tasks) <= FILES_ONE_BY_ONE_MAX:
        for task in tasks:
            task.run()
        return
    error = None
    try:
        for task in tasks:
            if task.epochs is not None:
                disk.write_and_rename(task.epochs_path, task.epochs)
        disk.sync_file_system(directory)
    except OSError as failure:
        error = failure
    for task in tasks:
        task.error = error
