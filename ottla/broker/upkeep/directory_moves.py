"""Executes AlterReplicaLogDirs: copies one partition after the other to its new directory.

The copying runs in a thread of its own, a few MB at a time and at most as fast as
replica.alter.log.dirs.io.max.bytes.per.second allows; the loop copies the last bytes
(`log/storage/move_transfer`). A broker that stops abandons its moves: they have to be requested
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.upkeep.checkpoint_writer import Checkpoints
from ottla.log.files.checkpoints import Partition
from ottla.log.storage.log_directory import LogDirectory
from ottla.log.storage.move_transfer import STEP_BYTES, LogCut, Move, MoveFailed
from ottla.log.storage.storage import Storage
from ottla.wire.errors import ErrorCode, StorageFailed

log = logging.getLogger("ottla.log_dirs")

TRIES_MAX = 100
"""How many times in a row files may be removed from a log while they are copied."""
RATE_SECONDS = 1.0
"""How often a rate of 0 is checked for a change."""
UNFINISHED = "a partition's move is incomplete; once the disks work, a restart completes the move"


class Moving:
    """The moves of one broker, from start to `close`. They wait in `storage.moves`."""

    pause = staticmethod(asyncio.sleep)

    def __init__(
        self,
        storage: Storage,
        checkpoints: Checkpoints,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.storage, self.checkpoints = storage, checkpoints
        self.config, self.loop = config, loop
        self.task: asyncio.Task[None] | None = None
        self.thread: ThreadPoolExecutor | None = None
        self.refused: str | None = None
        if not all(directory.known for directory in storage.directories):
            # A directory that was not opened may hold the old copy of a partition that was moved.
            self.refused = "a log directory could not be opened at the start"

    def put(self, key: Partition, target: LogDirectory) -> ErrorCode:
        """Queue the move of an open partition to `target`. A move of the partition to another
        directory is cancelled, even if it has begun."""
        storage = self.storage
        move = storage.moves.get(key)
        if move is not None:
            if move.target is target:
                return ErrorCode.NONE
            storage.moves.pop(key).give_up()
        if storage.homes[key] is target:
            return ErrorCode.NONE
        if self.refused is not None or storage.logs[key].offline is not None:
            reason = self.refused or storage.logs[key].offline
            log.error("%s-%d is not moved to %s: %s", *key, target.path, reason)
            return ErrorCode.KAFKA_STORAGE_ERROR
        storage.moves[key] = Move(storage, key, target)
        if self.task is None or self.task.done():
            self.task = self.loop.create_task(self._run())
        return ErrorCode.NONE

    async def _run(self) -> None:
        while self.storage.moves and self.refused is None:
            key, move = next(iter(self.storage.moves.items()))
            anew = False
            try:
                await self._move(move)
            except LogCut as cut:
                log.info("%s", cut)
                anew = True
            except (MoveFailed, OSError, StorageFailed) as error:
                log.error("%s", error)
            except Exception:
                log.exception("the move of %s-%d failed", *key)
            finally:
                if self.storage.moves.get(key) is move:
                    self.storage.moves.pop(key).give_up()
                    if anew:
                        self.storage.moves[key] = Move(self.storage, key, move.target)
                move.discard()
        if self.refused is not None:
            log.error("no further partitions are moved: %s", self.refused)
            for key in list(self.storage.moves):
                self.storage.moves.pop(key).give_up()

    async def _move(self, move: Move) -> None:
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-moves")
        move.check()
        # `_copy` would not wait for the rate if the partition is small.
        while not self.config.replica_alter_log_dirs_io_max_bytes_per_second:
            await self.pause(RATE_SECONDS)
            move.check()
        await self._in_thread(move.begin)
        await self._copy(move)
        while True:
            move.prepare()
            await self.checkpoints.write_of(move.target)    # not the source: it may be full
            await self._copy(move)
            if move.prepared():
                break
        try:
            move.swap()
            log.info("%s was moved from %s to %s", move.name, move.source.path, move.target.path)
            await self._in_thread(move.finish())
        except BaseException:
            # If this move is committed but could not be finished, no other move may start.
            if move.committed:
                self.refused = UNFINISHED
            raise

    async def _copy(self, move: Move) -> None:
        """Copy until almost nothing is left. If clients append faster than the disk copies, this
        never ends, and the partition stays where it is."""
        tries = 0
        move.check()
        while not move.nearly_done():
            rate = self.config.replica_alter_log_dirs_io_max_bytes_per_second
            copy, began = move.plan(min(STEP_BYTES, rate)), self.loop.time()
            try:
                await self._in_thread(copy.run)
            except OSError:
                move.check()            # raises LogCut if a truncation has made files shorter
                raise
            move.note(copy)
            # A step takes at most a second, so that a new rate applies soon. With a rate of 0 the
            # move waits.
            due = copy.batch_bytes / rate if rate else RATE_SECONDS
            await self.pause(max(0.0, due - (self.loop.time() - began)))
            move.check()
            tries = tries + 1 if copy.vanished else 0
            if tries == TRIES_MAX:
                raise MoveFailed(
                    f"{move.name} is not moved: its files disappeared while they were copied"
                )

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await self.loop.run_in_executor(self.thread, work)

    def close(self) -> None:
        """Stop. Unfinished moves are abandoned; the next start removes their copies."""
        if self.task is not None:
            self.task.cancel()
        if self.thread is not None:
            self.thread.shutdown(wait=True)
