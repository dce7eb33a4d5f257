"""Which log directory each partition is in, and which one gets a new partition."""

from __future__ import annotations

from collections.abc import Callable

from ottla.log.files.checkpoints import Partition
from ottla.log.storage import void_copies
from ottla.log.storage.log_directory import LogDirectory, StorageRefused
from ottla.wire.errors import StorageFailed
from ottla.wire.wording import counted


class Placement:
    """The partitions of all log directories. Raises StorageRefused if a partition is in two
    directories, except in the cases that `note_rival` names.

    `is_cordoned(path)` says whether the log directory at `path` gets no new partitions (KIP-1066).
    """

    def __init__(
        self, directories: list[LogDirectory], is_cordoned: Callable[[str], bool]
    ) -> None:
        self.directories, self.is_cordoned = directories, is_cordoned
        self.homes: dict[Partition, LogDirectory] = {}
        self.rivals: dict[Partition, list[LogDirectory]] = {}
        """For each partition that is in several log directories: those that are not its home. The
        entry is removed once the right copy has been chosen."""
        self.complete = all(each.known for each in directories)
        for directory in directories:
            for partition in directory.partitions:
                if partition in self.homes:
                    self.note_rival(partition, directory)
                else:
                    self.homes[partition] = directory

    def note_rival(self, key: Partition, directory: LogDirectory) -> None:
        """Handles a partition that is in two log directories. Raises StorageRefused, except in
        three cases: the topic was deleted and recreated; one copy was begun while the other was
        missing; a failed write left one copy without an id and without records."""
        first = self.homes[key]
        homes = first, directory
        ids = [home.topic_id(key) for home in homes]
        if ids[0] == ids[1] and (right := void_copies.later(key, *homes)) is not None:
            former = first if right is directory else directory
            for offsets in former.checkpointed():
                offsets.pop(key, None)
            self.homes[key] = right
            self.rivals.setdefault(key, []).append(former)
            return
        unnamed = [home for home, topic_id in zip(homes, ids, strict=True) if topic_id is None]
        if ids[0] == ids[1] or any(home.has_records(key) for home in unnamed):
            raise StorageRefused(
                f"partition {key[0]}-{key[1]} is in {directory.path} and in {first.path}. Move the"
                " wrong copy out of its log directory: the broker cannot know which copy is right."
            )
        self.rivals.setdefault(key, []).append(directory)

    @property
    def high_watermarks(self) -> dict[Partition, int]:
        """The high watermarks that the last run saved, each from the partition's own log directory.
        Partitions that are in several log directories are left out."""
        return {
            key: offset
            for directory in self.directories
            for key, offset in directory.high_watermarks.items()
            if self.homes.get(key, directory) is directory and key not in self.rivals
        }

    def vanished(self, key: Partition, topic_id: bytes | None) -> list[LogDirectory]:
        """The log directories that had durable records of a partition according to their
        checkpoints, but no longer have its directory: another program removed it. Empty while the
        partition may be in a log directory that is missing."""
        return [] if not self.complete else [
            each for each in self.directories
            if key in each.recovery_points and key not in each.partitions
            and each.offline is None and each.topic_ids.get(key[0]) == topic_id
            and each.recovery_points[key] > each.log_starts.get(key, 0)
        ]

    def refuse_vanished(self, key: Partition, topic_id: bytes | None) -> None:
        """Raises StorageFailed if the directory of a partition's only replica is gone. An empty log
        in its place would assign offsets again that records of the old log had."""
        for home in self.vanished(key, topic_id):
            start, end = home.log_starts.get(key, 0), home.recovery_points[key]
            raise StorageFailed(
                f"{home.file(f'{key[0]}-{key[1]}')} is missing; it had the offsets {start} to"
                f" {end - 1} ({counted(end - start, 'record')} at most):"
                f" {key[0]}-{key[1]} is offline. Put the directory back and restart, or delete the"
                " topic."
            )

    def refuse_to_guess(self, key: Partition) -> None:
        """Raises StorageFailed if the partition may be in a directory that could not be opened.

        An empty log in another directory would hide the partition's records.
        """
        hidden = [each for each in self.directories if not each.known]
        if hidden:
            raise StorageFailed(
                f"{key[0]}-{key[1]} may be in a log directory that is not available:"
                f" {hidden[0].offline}"
            )

    def choose(self, key: Partition, topic_id: bytes | None) -> LogDirectory:
        """The log directory for a new log: the online one with the fewest partitions. A cordoned or
        full one is chosen only if no other is online. If a directory's checkpoint has a log start
        for the partition, this directory is chosen before all others. A power cut has removed the
        log's files there, and the log's offsets must not be reused."""
        online = [directory for directory in self.directories if directory.offline is None]
        if len(online) == 1:
            return online[0]
        if not online:
            raise StorageFailed("every log directory is offline; see the log for the reasons")
        for directory in online:
            if key in directory.log_starts and directory.topic_ids.get(key[0]) == topic_id:
                return directory
        return min(online, key=lambda each: (
            self.is_cordoned(each.path), each.space.full, len(each.partitions),
        ))
