"""The schedule of a broker's periodic work: checkpoints, retention, compaction, the scrub, removal
of deleted files, expiry of producers.

Each part checks everything in slices on the loop, and passes to a thread only calls that block in
the kernel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.log.storage.reserve import is_full
from ottla.wire.errors import StorageFailed

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig
    from ottla.broker.upkeep.compactor import LogCleaner
    from ottla.broker.upkeep.due_flushes import DueFlushes
    from ottla.broker.upkeep.file_removal import FileRemoval
    from ottla.broker.upkeep.retention import Retention
    from ottla.broker.upkeep.scrubber import Scrubber
    from ottla.broker.upkeep.space_watch import SpaceWatch

log = logging.getLogger("ottla.housekeeping")

SEALED_SECONDS = 1.0
DELETIONS_SECONDS = 5.0
EXPIRY_SECONDS = 600.0
REOPENING_SECONDS = 2.0
SPACE_SECONDS = 2.0
CERTIFICATES_SECONDS = 86_400.0
PAUSE_SECONDS_MIN = 0.1
"""The shortest time between two checkpoints or two rounds of the cleaner. A setting of 0 would
leave no time for other work."""
BACKOFF_SECONDS_MAX = 1.0
"""How long the cleaner waits before it reads log.cleaner.backoff.ms again, so that a shorter time
applies soon."""

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PeriodicWork:
    """The periodic work of a broker."""

    write_checkpoints: Work
    flushes: DueFlushes
    retention: Retention
    removal: FileRemoval
    space: SpaceWatch
    cleaner: LogCleaner
    scrubber: Scrubber
    expire_producers: Work
    expire_tokens: Work | None
    """None if there are no delegation tokens."""
    reopen_logs: Work
    """Opens logs that could not be opened at the start because of a full disk or a lack of
    descriptors."""
    warn_of_certificates: Callable[[], None]


class Housekeeping:
    """Runs a broker's periodic work, from start to `close`. `became_full` is set when a log
    directory becomes full."""

    def __init__(
        self, work: PeriodicWork, config: BrokerConfig, checkpoint_seconds: float,
        became_full: asyncio.Event, loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.work, self.config, self.became_full = work, config, became_full
        flush_seconds = max(10, min(config.log_flush_scheduler_interval_ms, 1000)) / 1000
        retention_seconds = config.log_retention_check_interval_ms / 1000
        running = [
            work.flushes.flush_recovered(),
            self._every(max(PAUSE_SECONDS_MIN, checkpoint_seconds), work.write_checkpoints),
            self._every(retention_seconds, work.retention.apply),
            self._every(flush_seconds, work.flushes.flush_overdue),
            self._every(SEALED_SECONDS, work.flushes.flush_sealed),
            self._every(DELETIONS_SECONDS, work.removal.remove_deleted),
            self._every(EXPIRY_SECONDS, work.expire_producers),
            self._every(REOPENING_SECONDS, work.reopen_logs),
            self._watch_space(),
            self._every(CERTIFICATES_SECONDS, self._warn),
        ]
        if work.expire_tokens is not None:
            seconds = config.delegation_token_expiry_check_interval_ms / 1000
            running.append(self._every(seconds, work.expire_tokens))
        if config.ottla_log_scrub_bytes_per_second:
            running.append(self._scrub())
        if config.log_cleaner_enable:
            running.append(self._clean())
        self.tasks = [loop.create_task(each) for each in running]

    async def _every(self, seconds: float, work: Work) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._try(work)

    async def _try(self, work: Work) -> None:
        try:
            await work()
        except (OSError, StorageFailed) as error:
            # A full directory is reported once, by `space_watch`.
            if not is_full(error):
                log.error("%s", error)
        except Exception:
            log.exception("a periodic task failed and will be tried again: %r", work)

    async def _clean(self) -> None:
        while True:
            await self._back_off()
            await self._try(self.work.cleaner.clean_due)

    async def _back_off(self) -> None:
        slept = 0.0
        while (left := self._backoff_seconds() - slept) > 0:
            seconds = min(left, BACKOFF_SECONDS_MAX)
            await asyncio.sleep(seconds)
            slept += seconds

    def _backoff_seconds(self) -> float:
        return max(PAUSE_SECONDS_MIN, self.config.log_cleaner_backoff_ms / 1000)

    async def _scrub(self) -> None:
        try:
            await self.work.scrubber.scrub_for_ever()
        except Exception:
            log.exception("the background check of segments has failed; it begins again at the"
                          " broker's next start")

    async def _watch_space(self) -> None:
        """Measure the space regularly, and report a full directory at once. It may have become full
        before this task began, since peers and clients are served earlier."""
        while True:
            try:
                async with asyncio.timeout(SPACE_SECONDS):
                    await self.became_full.wait()
            except TimeoutError:
                await self._try(self.work.space.look)
            else:
                self.became_full.clear()
                await self._try(self.work.space.note_full)

    async def _warn(self) -> None:
        """Warn of certificates once a day: a broker may run for longer than they are valid."""
        self.work.warn_of_certificates()

    def close(self) -> None:
        """Stop; the storage's own close writes the last checkpoint."""
        for task in self.tasks:
            task.cancel()
