"""The record of a partition's move to another log directory. It makes the move final; a start
completes such moves.

A move copies the partition into `<topic>-<partition>.<unique>-future` of the target directory. Once
the copy is complete and durable, the file `.ottla-move` of the target is written. From then on the
copy counts as the partition, even before the renames that follow.

    0                                       the version
    events 0 events-0.0000018f-future       topic, partition, name of the copy

A start completes the moves that have a record, and removes copies without a record.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import TORN_ID, LogDirectory, StorageRefused

MOVE_RECORD = ".ottla-move"


class MoveRecord(NamedTuple):
    """A move that is final: its partition, and the name of the copy."""

    topic: str
    partition: int
    copy: str


def encode(record: MoveRecord) -> bytes:
    """The text of the file."""
    return f"0\n{' '.join(map(str, record))}\n".encode()


def decode(data: bytes) -> MoveRecord:
    """Parses the text of the file. Raises ValueError."""
    version, line, rest = data.decode().split("\n")
    if version != "0":
        raise ValueError(f"the record of a move has version {version!r}, expected '0'")
    if rest:
        raise ValueError(f"the record of a move has a third line: {rest!r}")
    topic, partition, copy = line.split(" ")
    return MoveRecord(topic, int(partition), copy)


def finish_moves(disk: Disk, directories: Sequence[LogDirectory]) -> None:
    """Completes the moves that have a record. May be interrupted and run again.

    A record is kept while another directory, which may have the old copy, is not available. Raises
    OSError; StorageRefused if a record cannot be read.
    """
    online = [each for each in directories if each.offline is None]
    for target in online:
        path = target.file(MOVE_RECORD)
        try:
            record = decode(disk.read_bytes(path))
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise StorageRefused(
                f"{path} is damaged ({error}). It names a partition that was moved to "
                f"{target.path}, where its valid copy is. If the name of this copy ends with "
                "-future, rename the copy to TOPIC-PARTITION. Move the partition's old copy out of "
                f"its former log directory. Then remove {path}."
            ) from error
        finish_move(disk, target, [each for each in online if each is not target], record)
        if len(online) == len(directories):
            disk.unlink(path)
            disk.sync_directory(target.path)
    for each in online:
        forget_copies(each, online)


def finish_move(
    disk: Disk, target: LogDirectory, others: Sequence[LogDirectory], record: MoveRecord
) -> None:
    """Removes the old copy, and renames the new one."""
    key = record.topic, record.partition
    name = f"{record.topic}-{record.partition}"
    if record.copy not in target.names and key not in target.partitions:
        return                          # the partition's topic has been deleted since
    moved = target.topic_id_in(record.copy if record.copy in target.names else name)
    for other in others:
        # A directory of another topic id is not the old copy: the topic was recreated since.
        if key in other.partitions and other.topic_id(key) in (None, TORN_ID, moved):
            away = record.copy.removesuffix("future") + "delete"
            disk.rename(other.file(name), other.file(away))
            disk.sync_directory(other.path)
            other.names = [each for each in other.names if each != name] + [away]
            other.forget(key)
    if record.copy in target.names:
        disk.rename(target.file(record.copy), target.file(name))
        disk.sync_directory(target.path)
        target.names = [each for each in target.names if each != record.copy] + [name]
        target.partitions.add(key)


def forget_copies(target: LogDirectory, directories: Sequence[LogDirectory]) -> None:
    """Drops the checkpoint entries of partitions that another log directory has: the copy in this
    one never became final, or has moved away."""
    for other in directories:
        if other is not target:
            for offsets in (target.recovery_points, target.log_starts):
                for key in (offsets.keys() & other.partitions) - target.partitions:
                    target.forget(key)
