"""Checkpoints of a running broker: gathered in steps on the loop, written by any thread.

Each entry of a checkpoint file names a topic and a partition. A further file (`topic_ids`) has the
ids of these topics, and is written after the checkpoint files. A topic that is recreated between
two steps is left to the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.log.files import aborted_sizes, checkpoints, topic_ids
from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.log.storage.storage import Storage

ENTRIES_PER_STEP = 200
"""Partitions that a checkpoint handles before it yields to the loop, after a fraction of a ms."""


class CheckpointTask:
    """Checkpoint files, which any thread may write."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.files: list[tuple[LogDirectory, str, bytes]] = []
        self.topic_ids: list[tuple[LogDirectory, dict[str, bytes | None]]] = []
        self.failures: list[tuple[LogDirectory, OSError]] = []

    def run(self) -> None:
        """Writes the files; a directory's error is kept in `failures` for `end_checkpoint`."""
        failed = None
        for directory, name, data in self.files:
            if directory is failed:
                continue
            try:
                self.disk.write_atomically(directory.file(name), data)
            except OSError as error:
                self.failures.append((directory, error))
                failed = directory


def checkpoint_steps(
    storage: Storage, task: CheckpointTask, high_watermarks: Iterable[tuple[Partition, int]]
) -> Iterator[None]:
    """Gathers every directory's files: `task` is complete after the last step."""
    for count, (key, offset) in enumerate(high_watermarks):
        if key in storage.homes:
            storage.homes[key].high_watermarks[key] = offset
        if count % ENTRIES_PER_STEP == 0:
            yield
    for directory in storage.directories:
        if directory.offline is not None:
            continue
        yield from directory_steps(storage, task, directory)


def directory_steps(
    storage: Storage, task: CheckpointTask, directory: LogDirectory
) -> Iterator[None]:
    """Gathers all checkpoints of one directory."""
    ids = dict(directory.topic_ids)
    recovery_points, starts = dict(directory.recovery_points), dict(directory.log_starts)
    cleaned, marks = dict(directory.cleaned), dict(directory.high_watermarks)
    aborted = dict(directory.aborted_sizes)
    for count, (key, log) in enumerate(list(storage.logs.items())):
        # A topic that was recreated between two steps is left to the next checkpoint.
        known = key[0] in ids and ids[key[0]] == log.topic_id
        if known and storage.homes.get(key) is directory and log.segment_count:
            assert log.damage is not None or log.checkpoint_offset <= log.log_end_offset
            recovery_points[key] = log.checkpoint_offset
            starts[key] = log.log_start_offset
            if log.first_dirty_offset or key in cleaned:
                cleaned[key] = log.first_dirty_offset
            note_aborted(aborted, key, log.aborted_sizes())
        if count % ENTRIES_PER_STEP == 0:
            yield
    files = [
        (checkpoints.RECOVERY_POINTS, recovery_points),
        (checkpoints.LOG_STARTS, starts),
    ]
    for name, offsets in ((checkpoints.CLEANED, cleaned), (checkpoints.HIGH_WATERMARKS, marks)):
        if offsets or storage.disk.exists(directory.file(name)):
            files.append((name, offsets))
    whose = (directory, topic_ids.TOPIC_IDS, topic_ids.encode(ids))
    if directory.written_ids is None:
        task.files.append(whose)
    # The sizes of transaction indexes are written before the recovery points, because recovery does
    # not check indexes below the recovery points.
    if aborted or storage.disk.exists(directory.file(aborted_sizes.ABORTED_SIZES)):
        name = aborted_sizes.ABORTED_SIZES
        yield from file_steps(task, directory, name, aborted_sizes.lines_of(aborted))
    for name, offsets in files:
        yield from file_steps(task, directory, name, checkpoints.offset_lines(offsets))
    if ids != directory.written_ids:
        task.files.append(whose)    # last: new entries are used only if this file has their topics
        task.topic_ids.append((directory, ids))


def note_aborted(
    aborted: dict[Partition, dict[int, int]], key: Partition, sizes: dict[int, int] | None
) -> None:
    """Replaces one log's sizes of transaction indexes. None (a log at rest) keeps the old sizes."""
    if sizes:
        aborted[key] = sizes
    elif sizes is not None:
        aborted.pop(key, None)


def log_start_steps(
    storage: Storage, task: CheckpointTask, paths: Collection[str]
) -> Iterator[None]:
    """Gathers only the log starts of the directories with these paths. If a directory's file of
    topic ids is outdated, gathers all checkpoints of this directory instead."""
    for directory in storage.directories:
        if directory.offline is not None or directory.path not in paths:
            continue
        if directory.topic_ids != directory.written_ids:
            yield from directory_steps(storage, task, directory)
            continue
        ids, starts = dict(directory.topic_ids), dict(directory.log_starts)
        for count, (key, log) in enumerate(list(storage.logs.items())):
            known = key[0] in ids and ids[key[0]] == log.topic_id
            if known and storage.homes.get(key) is directory and log.segment_count:
                starts[key] = log.log_start_offset
            if count % ENTRIES_PER_STEP == 0:
                yield
        lines = checkpoints.offset_lines(starts)
        yield from file_steps(task, directory, checkpoints.LOG_STARTS, lines)


def file_steps(
    task: CheckpointTask, directory: LogDirectory, name: str, all_lines: Iterator[str]
) -> Iterator[None]:
    """Gathers one file of a checkpoint."""
    lines: list[str] = []
    for line in all_lines:
        lines.append(line)
        if len(lines) % ENTRIES_PER_STEP == 0:
            yield
    task.files.append((directory, name, checkpoints.join_lines(lines)))
