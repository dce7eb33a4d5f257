"""Schedules removals from the log directories: directories of partitions and files of segments.

A deletion first renames the directory or file, which frees its name at once. The files are removed
later, in any thread, so that readers can finish. Due removals are returned once; a caller that
fails adds them again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.log.files.names import PARTITION_METADATA
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.log.files.checkpoints import Partition
    from ottla.log.files.clock import Clock
    from ottla.log.files.disk import Disk
    from ottla.log.storage.log_directory import LogDirectory

NAME_BYTES_MAX = 255


class Deletions:
    """The removals of one broker that are not due yet, or not done.

    Due times are those of `Clock.monotonic_ms`: setting back the wall clock must not delay a
    deletion.
    """

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self.disk, self.clock = disk, clock
        self.directories: list[tuple[int, str]] = []
        self.files: list[tuple[int, str]] = []
        self.in_place: dict[Partition, str] = {}
        """Directories that a full disk could not rename. Their names are not reused until the
        directories are removed."""
        self.stray_retention_ms = -1
        """How long directories without a topic are kept (`strays`); -1 means for ever."""
        self.unsynced: set[str] = set()
        self.renamed = 0

    def unique_name(self, name: str, suffix: str) -> str:
        """A unique name for a renamed directory."""
        self.renamed += 1
        unique = f"{self.clock.now_ms():016x}{self.renamed:016x}"
        # The name is shortened: a topic name of 249 bytes leaves too little room for the rest.
        return f"{name[: NAME_BYTES_MAX - len(unique) - len(suffix) - 2]}.{unique}-{suffix}"

    def add_left(self, paths: Iterable[str]) -> None:
        """Schedule the immediate removal of directories that earlier runs did not remove."""
        self.directories += [(0, path) for path in paths]

    def add(self, path: str, delay_ms: int) -> None:
        """Schedule a directory's removal in `delay_ms`."""
        self.directories.append((self.clock.monotonic_ms() + delay_ms, path))

    def add_stray(self, path: str) -> None:
        """Schedule the removal of a directory that belongs to no topic, unless it is kept for ever.
        """
        if self.stray_retention_ms >= 0:
            self.add(path, self.stray_retention_ms)

    def put_aside(self, home: LogDirectory, name: str) -> None:
        """Rename a partition's directory that belongs to an older topic: its new name ends with
        `-stray` (`strays`). It is removed later, unless stray directories are kept for ever."""
        stray = home.file(self.unique_name(name, "stray"))
        self.disk.rename(home.file(name), stray)
        self.disk.sync_directory(home.path)
        self.add_stray(stray)
        reached("a directory of an older topic was put aside")

    def add_files(self, paths: Iterable[str], delay_ms: int) -> None:
        """Schedule the deletion of removed segments' files in `delay_ms` (file.delete.delay.ms)."""
        at = self.clock.monotonic_ms() + delay_ms
        self.files += [(at, path) for path in paths]

    def keep_stray(self, retention_ms: int) -> None:
        """Set how long directories without a topic are kept from now on."""
        self.stray_retention_ms = retention_ms

    def keep_in_place(self, key: Partition, path: str) -> None:
        """Schedule the removal of a directory that keeps its name until then."""
        self.in_place[key] = path
        reached("a full disk keeps a deleted directory under its name")

    def removed_in_place(self, key: Partition) -> None:
        """Note that a directory of `keep_in_place` is gone: its name may be used again."""
        del self.in_place[key]

    def hasten(self, parent: str) -> None:
        """Make the deleted files of a full log directory due now. Directories without a topic stay
        for as long as they are configured to stay."""
        inside = parent + "/"
        reached("a full disk hastens deletions")
        self.files = [(0 if path.startswith(inside) else at, path) for at, path in self.files]
        self.directories = [
            (0 if path.startswith(inside) and path.endswith("-delete") else at, path)
            for at, path in self.directories
        ]

    def forget_files(self, directory: str) -> None:
        """Drop the removals of a directory's files: the paths may soon belong to another topic."""
        inside = directory + "/"
        self.files = [due for due in self.files if not due[1].startswith(inside)]

    def note_renamed(self, parent: str) -> None:
        """Note that names in a log directory have changed, and are not durable yet."""
        self.unsynced.add(parent)

    def take_unsynced(self) -> list[str]:
        """Directories to sync now, in any thread, because of renames; each is returned once."""
        unsynced, self.unsynced = list(self.unsynced), set()
        return unsynced

    def due(self) -> list[str]:
        """Directories due for `remove_directory`, in any thread; each is returned once."""
        now_ms = self.clock.monotonic_ms()
        due = [path for at, path in self.directories if at <= now_ms]
        self.directories = [entry for entry in self.directories if entry[0] > now_ms]
        return due

    def due_files(self) -> list[str]:
        """Files to unlink now, in any thread; each is returned once."""
        now_ms = self.clock.monotonic_ms()
        due = [path for at, path in self.files if at <= now_ms]
        if due:
            self.files = [entry for entry in self.files if entry[0] > now_ms]
        return due

    def remove_files(self) -> None:
        """Unlink all scheduled files now, at the stop: they have no readers any more. Blocks.

        Without this call they would stay until the log is used after the next start.
        """
        for _, path in self.files:
            with suppress(OSError):     # the next opening of the log tries again
                self.disk.unlink(path)
        self.files.clear()

    def remove(self) -> None:
        """Delete the directories that are due. Blocks; raises OSError."""
        for key, path in list(self.in_place.items()):
            remove_directory(self.disk, path)
            self.removed_in_place(key)
        for path in self.due():
            remove_directory(self.disk, path)


def remove_directory(disk: Disk, directory: str) -> None:
    """Deletes a partition's directory with all files in it; a missing one is not an error.

    The file with the topic id is removed last. So if a crash interrupts this, the directory cannot
    be taken for a directory of a new topic.
    """
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        return
    for name in sorted(names, key=PARTITION_METADATA.__eq__):
        disk.unlink(f"{directory}/{name}")
    disk.remove_directory(directory)
