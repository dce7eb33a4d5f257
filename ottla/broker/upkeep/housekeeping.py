"""The broker's periodic work: checkpoints, retention, compaction, the scrub, deletion of files,
expiry of producers.

Each round checks everything in slices on the loop, and passes to a thread only calls that block in
the kernel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import Slices
from ottla.broker.upkeep.compactor import LogCleaner
from ottla.broker.upkeep.expiry import apply_retention
from ottla.broker.upkeep.space_watch import SpaceWatch
from ottla.log.files.checkpoints import Partition as PartitionKey
from ottla.log.files.disk import Disk
from ottla.log.partition.config import FOREVER_MS
from ottla.log.storage.deletions import remove_directory
from ottla.log.storage.reserve import is_full
from ottla.log.storage.storage import Storage
from ottla.replication.controller.tokens import has_expired_tokens, remove_expired_tokens
from ottla.replication.metadata import MetadataImage
from ottla.replication.replicas import Replicas
from ottla.wire.errors import StorageFailed
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.threads.slices import InThread
    from ottla.broker.upkeep.scrubber import Scrubber

log = logging.getLogger("ottla.housekeeping")

SEALED_SECONDS = 1.0
DELETIONS_SECONDS = 5.0
EXPIRY_SECONDS = 600.0
REOPENING_SECONDS = 2.0
SPACE_SECONDS = 2.0
CERTIFICATES_SECONDS = 86_400.0
AGAIN_MS = 60_000
"""The time before another try to remove files whose removal failed."""


def high_watermarks(replicas: Replicas) -> Iterable[tuple[PartitionKey, int]]:
    """The content of replication-offset-checkpoint."""
    for partition in replicas:
        # Between two steps its topic may have been created again. A damaged log keeps the one
        # from before: by that a start sees what it lacks.
        found = replicas.partition(partition.topic, partition.index) is partition
        if found and partition.log.damage is None:
            yield (partition.topic, partition.index), partition.high_watermark


def unlink_all(disk: Disk, paths: list[str]) -> None:
    """Delete files; runs in a thread, since the file system may be slow with large ones."""
    for path in paths:
        disk.unlink(path)


class Housekeeping:
    """The periodic work of one broker, from start to `close`. `in_thread` runs what may block."""

    def __init__(
        self, broker: BrokerContext, storage: Storage, scrubber: Scrubber, in_thread: InThread,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.broker, self.storage, self.scrubber = broker, storage, scrubber
        self.in_thread = in_thread
        self.space = SpaceWatch(
            storage, broker.replicas, broker.role, broker.clock, self.in_thread, self._make_room
        )
        # Later, not amid an append: what the fetchers take in may have met it.
        storage.on_full = lambda directory: loop.call_soon(self.space.note_full, directory)
        for directory in storage.directories:
            self.space.note_full(directory)     # peers and clients were served before
        self.retaining, self.removing = asyncio.Lock(), asyncio.Lock()
        checkpoint_seconds = broker.role.checkpoint_ms(broker.config) / 1000
        retention_seconds = broker.config.log_retention_check_interval_ms / 1000
        flush_seconds = max(10, min(broker.config.log_flush_scheduler_interval_ms, 1000)) / 1000
        self.tasks = [
            loop.create_task(self._flush_what_was_recovered()),
            loop.create_task(self._every(checkpoint_seconds, self._checkpoint)),
            loop.create_task(self._every(retention_seconds, self._retain)),
            loop.create_task(self._every(flush_seconds, self.flush_overdue)),
            loop.create_task(self._every(SEALED_SECONDS, self.flush_sealed)),
            loop.create_task(self._every(DELETIONS_SECONDS, self.remove_deleted)),
            loop.create_task(self._every(EXPIRY_SECONDS, self._expire_producers)),
            loop.create_task(self._every(REOPENING_SECONDS, self.reopen_directories)),
            loop.create_task(self._every(SPACE_SECONDS, self.space.look)),
            loop.create_task(self._every(CERTIFICATES_SECONDS, self._warn)),
        ]
        if broker.token_secrets is not None:
            seconds = broker.config.delegation_token_expiry_check_interval_ms / 1000
            self.tasks.append(loop.create_task(self._every(seconds, self._remove_tokens)))
        if broker.config.ottla_log_scrub_bytes_per_second:
            self.tasks.append(loop.create_task(self._scrub()))
        self.cleaner = LogCleaner(
            broker.config, broker.clock, broker.replicas, storage, broker.workers,
            broker.checkpoints, self.in_thread, broker.doubt,
        )
        if broker.config.log_cleaner_enable:
            self.tasks.append(loop.create_task(self._clean()))

    async def _clean(self) -> None:
        while True:
            # At 0 it would never release the loop.
            seconds = max(0.1, self.broker.config.log_cleaner_backoff_ms / 1000)
            await asyncio.sleep(seconds)
            await self._try(self.cleaner.clean_due)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._try(work)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (OSError, StorageFailed) as error:
            # A full directory is reported once, by `space_watch`.
            if not is_full(error):
                log.error("%s", error)
        except Exception:
            log.exception("%r failed, and is tried again", work)

    async def _warn(self) -> None:
        """Warn of certificates once a day: a broker may run for longer than they are valid."""
        self.broker.security.warn()

    async def _flush_what_was_recovered(self) -> None:
        """After a crash, recovered records are served at once and made durable in the background.
        """
        for partition in self.broker.replicas:
            if partition.log.recovery_point < partition.log.log_end_offset:
                self.broker.flusher.want(partition)
                await asyncio.sleep(0)

    async def flush_overdue(self) -> None:
        """Flush as flush.ms requires. A topic without it costs one check of one of its partitions.
        """
        now_ms = self.broker.clock.monotonic_ms()
        slices = Slices()
        for partitions in list(self.broker.replicas.by_name.values()):
            if slices.over:
                await slices.pause()
            first = next((each for each in partitions if each is not None), None)
            if first is None or first.log.config.flush_ms == FOREVER_MS:
                continue
            for partition in partitions:
                if partition is not None and partition.log.flush_due(now_ms):
                    self.broker.flusher.want(partition)
                if slices.over:
                    await slices.pause()

    async def _scrub(self) -> None:
        try:
            await self.scrubber.scrub_for_ever()
        except Exception:
            log.exception("the scrub ended; the next start begins it again")

    async def flush_sealed(self) -> None:
        """Flush logs that sealed a segment, as Kafka does when it rolls.

        No client waits for it, so it runs in this thread. Without it a log written only with acks=1
        would never become durable: never compacted, and read whole after a crash.
        """
        while self.broker.replicas.with_sealed:
            partition, _ = self.broker.replicas.with_sealed.popitem()
            await self.broker.flusher.flush_apart(partition, self.in_thread)

    async def _checkpoint(self) -> None:
        await self.broker.checkpoints.write(high_watermarks(self.broker.replicas))

    async def _retain(self) -> None:
        async with self.retaining:
            await apply_retention(
                self.broker.replicas, self.storage, self.broker.workers, self.broker.doubt
            )

    async def _make_room(self) -> None:
        """Apply retention now, and in full directories remove what is deleted without delay."""
        await self._retain()
        full = [each.path for each in self.storage.directories if each.space.full]
        for path in full:
            self.storage.deletions.hasten(path)
        if full:
            await self.remove_deleted()

    async def remove_deleted(self) -> None:
        """Delete files that are due. A failed removal is tried again later."""
        async with self.removing:       # else each removes what keeps its name until then
            await self._remove_deleted()

    async def _remove_deleted(self) -> None:
        storage, disk = self.storage, self.storage.disk
        files = storage.deletions.due_files()
        try:
            await self.in_thread(partial(unlink_all, disk, files))
        except OSError as error:
            log.error("deleted files could not be removed: %s", error)
            storage.deletions.add_files(files, AGAIN_MS)
        for path in storage.deletions.take_unsynced():
            await self.in_thread(partial(disk.sync_directory, path))
        for path in storage.deletions.due():
            if not await self._removed(path):
                storage.deletions.add(path, AGAIN_MS)
        for key, path in list(storage.deletions.in_place.items()):
            if await self._removed(path):
                storage.deletions.removed_in_place(key)
        if storage.reserve is not None and storage.reserve.fill():
            await self.in_thread(storage.reserve.sync)

    async def _removed(self, path: str) -> bool:
        """Remove a partition's directory; returns whether it is gone."""
        try:
            await self.in_thread(partial(remove_directory, self.storage.disk, path))
        except OSError as error:
            log.error("%s could not be removed: %s", path, error)
            return False
        return True

    async def reopen_directories(self) -> None:
        """Open logs that a full disk, or a lack of descriptors, kept closed at the start."""
        replicas, image = self.broker.replicas, self.broker.image
        if replicas.put_off and replicas.open_again(image):
            reached("partitions were opened again after a lack of room")
            self.broker.coordinators.follow(
                MetadataImage.empty(), image, image.topics.keys()
            )

    async def _expire_producers(self) -> None:
        slices = Slices()
        for partition in self.broker.replicas:
            partition.log.remove_expired_producers()
            if slices.over:
                await slices.pause()

    async def _remove_tokens(self) -> None:
        """Remove expired delegation tokens; in a cluster, the controller does."""
        broker, now_ms = self.broker, self.broker.clock.now_ms()
        if broker.role.decides() and has_expired_tokens(broker.image, now_ms):
            removed = await broker.metadata_log.decide(remove_expired_tokens, now_ms)
            log.info("%d expired delegation tokens were removed", removed)

    def close(self) -> None:
        """Stop; the storage's own close writes the last checkpoint."""
        for task in self.tasks:
            task.cancel()
