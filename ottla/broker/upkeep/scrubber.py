"""Runs the background scrub, and checks what could not be read: reads in a thread, checks the bytes
on the loop.

A slice is a megabyte, which takes the loop a fraction of a millisecond; between two of them it
waits as `ottla.log.scrub.bytes.per.second` requires.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.broker.context import EVERYWHERE
from ottla.broker.threads.slices import InThread
from ottla.log.files.checkpoints import Partition as PartitionKey
from ottla.log.partition.damage import Damage
from ottla.log.storage.storage import Storage
from ottla.replication.partition import Partition
from ottla.wire.errors import ProtocolError

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.log.scrub.round import Scrub, Steps

log = logging.getLogger("ottla.scrub")

START_SECONDS = 30.0
"""The scrub starts this long after the broker."""
CHECK_BYTES_PER_SECOND = 100 << 20
CHECK_AGAIN_SECONDS = 600.0


async def scrub_for_ever(
    broker: BrokerContext,
    storage: Storage,
    in_thread: InThread,
    start_seconds: float | None = None,
) -> None:
    """Scrub round after round until cancelled."""
    await asyncio.sleep(START_SECONDS if start_seconds is None else start_seconds)
    scrub = _scrub(broker, storage, broker.config.ottla_log_scrub_bytes_per_second)
    await _run(scrub.steps(), in_thread)


def _scrub(broker: BrokerContext, storage: Storage, bytes_per_second: int) -> Scrub:
    from ottla.log.scrub.round import Scrub

    def damaged(key: PartitionKey, damage: Damage) -> None:
        log.error("%s", damage)
        partition = broker.replicas.partition(*key)
        if partition is not None:
            broker.replicas.note_damage(partition)

    return Scrub(
        storage, broker.clock, bytes_per_second, broker.config.ottla_log_scrub_interval_ms, damaged
    )


async def _run(steps: Steps, in_thread: InThread) -> None:
    """Take the steps to their end."""
    step = next(steps, None)
    while step is not None:
        failure = None
        if isinstance(step, float):
            await asyncio.sleep(step)
        else:
            try:
                await in_thread(step.run)
            except OSError as error:
                log.error("the scrub could not read a segment, or note its progress: %s", error)
                failure = error
        try:
            step = next(steps) if failure is None else steps.throw(failure)
        except StopIteration:
            return


class DoubtedSegments:
    """Checks segments that somebody could not read: a follower that asks a leader for the same
    records again and again (the bytes may have changed, or the link's, or the follower's disk
    refuses them), compaction, a coordinator that loads, or a request of a client."""

    def __init__(
        self, broker: BrokerContext, storage: Storage, in_thread: InThread,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.broker, self.storage, self.in_thread, self.loop = broker, storage, in_thread, loop
        self.wanted: dict[Partition, int] = {}
        self.checked: dict[Partition, tuple[int, float]] = {}
        self.task: asyncio.Task[None] | None = None

    def want(self, partition: Partition, offset: int) -> None:
        """Check the segment with an offset, or all for EVERYWHERE, unless that was done a short
        time ago."""
        if (last := self.checked.get(partition)) is not None:
            checked, at = last
            if checked == offset and self.loop.time() - at < CHECK_AGAIN_SECONDS:
                return
        self.wanted[partition] = offset
        if self.task is None:
            self.task = self.loop.create_task(self._check())

    def close(self) -> None:
        """Check nothing more."""
        if self.task is not None:
            self.task.cancel()

    async def _check(self) -> None:
        try:
            while self.wanted:
                partition, offset = self.wanted.popitem()
                now = self.loop.time()
                self.checked = {
                    each: (place, at) for each, (place, at) in self.checked.items()
                    if now - at < CHECK_AGAIN_SECONDS
                }
                self.checked[partition] = offset, now
                key = partition.topic, partition.index
                partition_log = self.storage.get(*key)
                if partition_log is not partition.log or partition_log.offline is not None:
                    continue
                segments = list(partition_log.segments)
                if offset != EVERYWHERE:
                    segments = [each for each in segments if each.base_offset <= offset][-1:]
                log.warning(
                    "%r: %s could not be read, here or by a follower; the bytes are checked",
                    partition, "a part" if offset == EVERYWHERE else f"offset {offset}",
                )
                scrub = _scrub(self.broker, self.storage, CHECK_BYTES_PER_SECOND)
                for segment in segments:
                    if partition_log.offline is None and segment in partition_log.segments:
                        await _run(scrub.check_segment(key, partition_log, segment),
                                   self.in_thread)
                if partition_log.offline is not None:
                    del self.checked[partition]     # once it is repaired, it may change again
        except (OSError, ProtocolError) as error:
            log.error("a segment could not be checked: %s", error)
        finally:
            self.task = None
