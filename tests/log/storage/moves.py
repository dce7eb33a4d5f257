"""Moves of one log between two log directories, in steps that tests choose."""

from __future__ import annotations

from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.move_transfer import Move
from ottla.log.storage.storage import Storage
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS
from tests.log.faulty_disk import FaultyDisk

KEY = "events", 0
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=400)
COMPACT = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}))


def open_storage(disk: FaultyDisk) -> Storage:
    return Storage.open(disk, FakeClock(), ["/a", "/b"])


def open_log(storage: Storage, config: LogConfig = SMALL) -> PartitionLog:
    return storage.get_or_create(*KEY, TOPIC_ID, config)


def other(storage: Storage) -> int:
    """The directory in which the log is not."""
    return 1 - storage.directories.index(storage.homes[KEY])


def begin(storage: Storage) -> Move:
    """Begin to move the log to the other directory."""
    move = Move(storage, KEY, storage.directories[other(storage)])
    storage.moves[KEY] = move
    move.begin()
    return move


def step(move: Move, left: int = 300) -> None:
    """Copy at most `left` bytes of batches."""
    copy = move.plan(left)
    copy.run()
    move.note(copy)


def end(move: Move) -> None:
    """Let the copy take the place of the log, however much is still to be copied."""
    move.prepare()
    move.storage.checkpoint()
    move.swap()
    move.finish()()


def homes_of(disk: FaultyDisk) -> list[str]:
    """The directories with the log under its own name."""
    return [path for path in ("/a", "/b") if "events-0" in disk.listdir(path)]


def keyed(number: int) -> bytes:
    return build_batch([Record(timestamp=NOW_MS, key=b"%d" % (number % 3), value=b"%d" % number)])
