"""All logs of a broker, in all its log directories.

A log is opened when `get_or_create` asks for it. The directories' checkpoints and clean-shutdown
markers are read once, at the start. After a clean stop these are enough: a log's own files are read
only when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from errno import ENOSPC
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.files.checkpoints import Partition
from ottla.log.files.clock import Clock
from ottla.log.files.closed_logs import ClosedLog
from ottla.log.files.disk import Disk, is_passing
from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.config import LogConfig
from ottla.log.partition.index_rebuilds import IndexRebuilds
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.quarantine import put_all_aside
from ottla.log.storage import clean_stop, known_directories, void_copies
from ottla.log.storage.checkpoint_task import CheckpointTask, checkpoint_steps
from ottla.log.storage.deletions import Deletions
from ottla.log.storage.log_directory import LogDirectory, StorageRefused
from ottla.log.storage.move_record import finish_moves
from ottla.log.storage.placement import Placement
from ottla.log.storage.recovery_task import LogRecovery, Wanted
from ottla.log.storage.reserve import Reserve
from ottla.wire.errors import StorageFailed
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.log.storage.move_transfer import Move


class Hooks(NamedTuple):
    """Functions of the broker that its storage calls."""

    on_failure: Callable[[str, str], object] = lambda path, reason: None
    """Called with a path and a reason. The path is that of a directory that goes offline, or
    `.ottla-directories` if `Storage.open` cannot write that file."""
    on_full: Callable[[], object] = lambda: None
    """Called when a directory becomes full."""
    is_cordoned: Callable[[str], bool] = lambda path: False
    """Whether the directory with this path gets no new partitions (KIP-1066)."""


NO_HOOKS = Hooks()


class Storage:
    """The logs by partition, and the directories that they are in."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: list[LogDirectory],
        open_segments_max: int,
        hooks: Hooks,
    ) -> None:
        self.disk, self.clock = disk, clock
        self.directories = directories
        self.logs: dict[Partition, PartitionLog] = {}
        self.open_files = OpenFiles(open_segments_max)
        self.open_files.rebuilds = IndexRebuilds()
        self.hooks = hooks
        self.deletions = Deletions(disk, clock)
        self.placement = Placement(directories, hooks.is_cordoned)
        self.homes = self.placement.homes
        self.rivals = self.placement.rivals
        self.recovered: dict[Partition, LogRecovery] = {}
        self.moves: dict[Partition, Move] = {}
        """Partitions that are being moved, or wait for their move (`broker/upkeep`)."""
        self.reserve: Reserve | None = None
        self.failures = {each.path: partial(self.fail, each) for each in directories}
        self.refusals = {each.path: partial(self.refuse, each) for each in directories}
        self.started = False
        for directory in directories:
            self.deletions.add_left(directory.deleted())

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        directories: Sequence[str],
        *,
        node_id: int = 0,
        cluster_id: str | None = None,
        clustered: bool = False,
        open_segments_max: int = 300,
        forgotten: Collection[str] = (),
        hooks: Hooks = NO_HOOKS,
    ) -> Storage:
        """Locks and checks every directory; new directories get their ids.

        A directory that cannot be read or written is offline until the next start; the others
        are used. A missing directory that the others remember is offline too, unless its id is in
        `forgotten`. `clustered` says that the metadata are in ZooKeeper, which knows the cluster's
        id. Raises StorageRefused.
        """
        if not directories:
            raise StorageRefused("log.dirs is empty: it must name at least one directory")
        opened: list[LogDirectory] = []
        for path in directories:
            try:
                opened.append(LogDirectory(disk, path))
            except OSError as error:
                opened.append(LogDirectory.unusable(disk, path, error))
        known = known_directories.remembered_by_readable(disk, opened)
        cluster_id = cluster_id or known_directories.cluster_of(opened)
        for at, directory in enumerate(opened):
            try:
                was = known_directories.away(directory, known, forgotten)
                if was:
                    raise FileNotFoundError(
                        f"it has no meta.properties, but was the log directory with the id {was}."
                        " Is it mounted? If it is lost for good, set"
                        f" ottla.forget.directories={was}; its partitions then begin empty"
                    )
                if directory.offline is None:
                    directory.identify(node_id, cluster_id, clustered)
                    cluster_id = directory.cluster_id
            except OSError as error:
                directory.close()
                opened[at] = LogDirectory.unusable(disk, directory.path, error)
        opened += known_directories.missing(disk, opened, known, forgotten)
        # Marks of a clean stop are removed only once all directories are known to be this broker's.
        for at, directory in enumerate(opened):
            try:
                directory.remove_marker()
                directory.remember_topics()
            except OSError as error:
                directory.close()
                opened[at] = LogDirectory.unusable(disk, directory.path, error)
        known_directories.name(opened, known)
        try:
            known_directories.remember(disk, opened, known, forgotten)
        except OSError as error:
            hooks.on_failure(known_directories.DIRECTORIES, f"it could not be written: {error}")
        failed = [directory for directory in opened if directory.offline is not None]
        try:
            finish_moves(disk, opened)
        except OSError as error:
            raise StorageRefused(f"a move of a partition could not be finished: {error}") from error
        if len(failed) == len(opened):
            raise StorageRefused("; ".join(str(each.offline) for each in failed))
        for directory in failed:
            hooks.on_failure(directory.path, str(directory.offline))
        return cls(disk, clock, opened, open_segments_max, hooks)

    def keep_reserve(self, directory: LogDirectory) -> Reserve:
        """Reserve space in a directory for records that free space on a full disk."""
        self.reserve = Reserve(self.disk, directory.path)
        return self.reserve

    @property
    def cluster_id(self) -> str:
        """The cluster that the directories belong to."""
        return next(each.cluster_id for each in self.directories if each.cluster_id)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log if it is open, or None."""
        return self.logs.get((topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig
    ) -> PartitionLog:
        """The log of a partition, opened and recovered if necessary; the first append creates its
        files.

        First renames a directory of the same name that belongs to another topic id. Raises
        StorageFailed if no directory is online, or on a disk error.
        """
        key = topic, partition
        if (log := self.logs.get(key)) is not None:
            return log
        try:
            log = self.open_log(key, topic_id, config)
        except OSError as error:
            if key in self.homes:
                self.homes[key].unopened.add(key)
            raise StorageFailed(f"{topic}-{partition} could not be opened: {error}") from error
        assert key in self.homes and key not in self.rivals
        self.homes[key].unopened.discard(key)
        self.logs[key] = log
        return log

    def recoveries(self, wanted: Wanted) -> list[list[LogRecovery]]:
        """Recoveries for the logs in `wanted` that need recovery, one list for each directory.

        Running them is optional: `get_or_create` recovers the remaining logs when it opens them.
        """
        by_directory: dict[str, list[LogRecovery]] = {}
        if all(directory.clean for directory in self.directories if directory.offline is None):
            return []
        for key, topic_id, config in wanted:
            home = self.homes.get(key)
            if home is None or home.offline or home.clean or key in self.logs or key in self.rivals:
                continue
            home.claim(key[0], topic_id)
            recovery = LogRecovery(self.disk, self.clock, home, key, topic_id, config)
            by_directory.setdefault(home.path, []).append(recovery)
        return list(by_directory.values())

    def end_recovery(self, recovery: LogRecovery) -> None:
        """Keeps the result of a recovery for `get_or_create`. Calls come one at a time."""
        if recovery.log is not None:
            recovery.log.share(self.open_files)
        assert recovery.key not in self.logs, "the log is already open"
        if recovery.log is not None or recovery.error is not None:
            self.recovered[recovery.key] = recovery

    def open_log(self, key: Partition, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        home, closed = self.homes.get(key), None
        if key in self.deletions.in_place:
            raise OSError(
                ENOSPC,
                "the files of a deleted topic of the same name are still being removed",
                self.deletions.in_place[key],
            )
        if key in self.rivals:
            home = self.settle_rivals(key, topic_id)
        elif home is not None:
            closed = home.closed.pop(key, None)
            if closed is not None and closed.topic_id is not None:
                right = topic_id in (None, closed.topic_id)
            else:
                right = home.is_of(key, topic_id)
            if not right:
                self.put_aside(key, home)
                home = closed = None
        if home is None:
            if not self.started:
                self.placement.refuse_to_guess(key)
            home = self.placement.choose(key, topic_id)
            self.homes[key] = home
        if home.offline is not None:
            raise StorageFailed(home.offline)
        home.claim(key[0], topic_id)
        if closed is None and key not in home.partitions:
            start = home.log_starts.get(key, 0)
            closed = ClosedLog(topic_id, start, start, -1, 0, 0, -1)
        if closed is not None:
            log = PartitionLog.rest(
                self.disk,
                self.clock,
                home.file(f"{key[0]}-{key[1]}"),
                config,
                open_files=self.open_files,
                topic_id=topic_id,
                closed=closed,
                first_dirty_offset=home.cleaned.get(key, 0),
                aborted_sizes=home.aborted_sizes.get(key),
            )
        elif key in self.recovered:
            log = self.recovered.pop(key).result()
        else:
            recovery = LogRecovery(self.disk, self.clock, home, key, topic_id, config)
            log = recovery.open(self.open_files)
        log.health.watch(self.failures[home.path], self.refusals[home.path])
        away = [each for each in self.directories if each.offline is not None]
        if self.started and key not in home.partitions and away:
            reached("a partition began while a log directory was away")
            void_copies.begin(home, key, topic_id, away)
        home.partitions.add(key)
        return log

    def unavailable_log(
        self, key: Partition, topic_id: bytes | None, config: LogConfig, reason: str
    ) -> PartitionLog:
        """A placeholder for a log that could not be opened: empty, and offline for `reason`."""
        home = self.homes.get(key) or self.directories[0]
        log = PartitionLog.rest(
            self.disk,
            self.clock,
            home.file(f"{key[0]}-{key[1]}"),
            config,
            open_files=self.open_files,
            topic_id=topic_id,
            closed=ClosedLog(topic_id, 0, 0, -1, 0, 0, -1),
        )
        log.fail(reason)
        return log

    def put_unreadable_aside(self, key: Partition) -> list[str]:
        """Rename all segments of a log that cannot be opened; the next attempt finds an empty log.
        Returns their new paths. Raises StorageFailed."""
        home = self.homes[key]
        try:
            aside = put_all_aside(self.disk, home.file(f"{key[0]}-{key[1]}"))
        except OSError as error:
            raise StorageFailed(f"log {key[0]}-{key[1]} could not be renamed: {error}") from error
        for known in home.checkpointed():
            known.pop(key, None)
        return aside

    def settle_rivals(self, key: Partition, topic_id: bytes | None) -> LogDirectory | None:
        """Of several log directories that have the partition, returns the one whose copy belongs to
        this topic; None if there is none. Renames the directories of the other copies."""
        # If the topic of the copy in `homes` was deleted meanwhile, that entry is gone.
        homes = [self.homes.pop(key)] if key in self.homes else []
        reached("a partition was found in two log directories")
        named = [*homes, *self.rivals.pop(key)]
        right = next((each for each in named if each.topic_id(key) == topic_id), None)
        for each in named:
            each.closed.pop(key, None)
            if each is not right:
                self.put_aside(key, each)
        if right is not None:
            self.homes[key] = right
        assert self.homes.get(key) is right
        return right

    def put_aside(self, key: Partition, home: LogDirectory) -> None:
        """Renames a directory that belongs to an older topic of this name."""
        self.deletions.put_aside(home, f"{key[0]}-{key[1]}")
        if self.homes.get(key) is home:
            self.forget(key)
        else:
            home.forget(key)

    def forget(self, key: Partition) -> None:
        move = self.moves.pop(key, None)
        self.homes.pop(key, None)
        if move is not None:
            move.give_up()
        for directory in self.directories:
            directory.forget(key)

    def delete(self, topic: str, partition: int, topic_stays: bool = False) -> None:
        """Deletes a log: its directory is renamed now, and its files are removed when they are due.
        With `topic_stays`, other partitions of the topic stay, and keep their checkpoints.

        Many deletions share one later sync of the log directory (`deletions.take_unsynced`). A
        power cut before that sync restores directories of deleted topics; their topic ids
        distinguish them from directories of new topics.

        Raises StorageFailed.
        """
        key = topic, partition
        home = self.homes.get(key)
        log = self.logs.pop(key, None)
        if not topic_stays:
            for directory in self.directories:
                directory.topic_ids.pop(topic, None)
        if home is None:
            self.forget(key)            # its checkpoints belong to the topic that is deleted
            return
        if home.offline is not None:
            reached("a topic was deleted whose log directory is offline")
            # Its files stay. If they reappear, they belong to no topic, or to an older one.
            self.forget(key)
            return
        name = f"{topic}-{partition}"
        self.deletions.forget_files(home.file(name))
        target = home.file(self.deletions.unique_name(name, "delete"))
        delay_ms = LogConfig().file_delete_delay_ms
        try:
            if log is not None:
                delay_ms = log.config.file_delete_delay_ms
                log.health.watch(None)
                log.fail("its topic was deleted")
                log.move_to(target)
            elif self.disk.exists(home.file(name)):
                self.disk.rename(home.file(name), target)
            self.deletions.note_renamed(home.path)
        except OSError as error:
            if not is_passing(error):
                self.fail(home, f"{name} could not be renamed for its deletion: {error}")
                self.forget(key)        # as above: the log directory is offline now
                raise StorageFailed(str(home.offline)) from error
            # A full disk may have no space for a new name: the directory keeps its name until its
            # files are removed.
            self.deletions.keep_in_place(key, home.file(name))
        else:
            self.deletions.add(target, delay_ms)
        self.forget(key)
        assert key not in self.logs and key not in self.homes

    def unclaimed(self) -> list[Partition]:
        """Partitions that have a directory and were never requested."""
        return [key for key in self.homes if key not in self.logs]

    def fail(self, directory: LogDirectory, reason: str) -> None:
        """Takes a directory and all its logs offline. Only a restart brings them back."""
        if directory.offline is not None:
            return
        reached("a log directory failed")
        directory.offline = f"log directory {directory.path} is offline: {reason}"
        for key, log in self.logs.items():
            if self.homes[key] is directory:
                log.fail(directory.offline)
        self.hooks.on_failure(directory.path, reason)

    def refuse(self, directory: LogDirectory, error: OSError) -> None:
        """Notes that a write in a directory failed with a temporary error."""
        if directory.space.refused(error):
            self.hooks.on_full()

    def begin_checkpoint(
        self, high_watermarks: Iterable[tuple[Partition, int]] = ()
    ) -> CheckpointTask:
        """Gathers the checkpoints now; the result's `run` writes the files, in any thread."""
        task = CheckpointTask(self.disk)
        for _ in self.checkpoint_steps(task, high_watermarks):
            pass
        return task

    def checkpoint_steps(
        self, task: CheckpointTask, high_watermarks: Iterable[tuple[Partition, int]] = ()
    ) -> Iterator[None]:
        """Like `begin_checkpoint`, but in steps: `task` is complete after the last step.

        Changes between the steps may be included or not: each entry is valid by itself.
        """
        return checkpoint_steps(self, task, high_watermarks)

    def end_checkpoint(self, task: CheckpointTask) -> None:
        """Handles a checkpoint's errors: after a temporary error, the next checkpoint tries again;
        any other error takes its directory offline. Raises StorageFailed if there was any error.
        """
        failed = [directory for directory, _ in task.failures]
        for directory, ids in task.topic_ids:
            if directory not in failed:
                directory.written_ids = ids
        for directory, error in task.failures:
            if is_passing(error):
                self.refuse(directory, error)
            else:
                self.fail(directory, f"a checkpoint could not be written: {error}")
        if task.failures:
            raise StorageFailed(
                "; ".join(
                    f"the checkpoint of {directory.path} could not be written: {error}"
                    for directory, error in task.failures
                )
            ) from task.failures[0][1]

    def checkpoint(self, high_watermarks: Iterable[tuple[Partition, int]] = ()) -> None:
        """Write the checkpoint files. Blocks. Raises StorageFailed."""
        task = self.begin_checkpoint(high_watermarks)
        task.run()
        self.end_checkpoint(task)

    def close(self, high_watermarks: Iterable[tuple[Partition, int]] = ()) -> None:
        """Flush and close every log, and mark this as a clean stop. Blocks."""
        clean_stop.close(self, high_watermarks)
