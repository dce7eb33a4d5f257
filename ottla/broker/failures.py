"""Ends the broker after a failure that it cannot survive. The broker survives the failure of a log
directory if another directory is left and the failed one does not hold the metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.standalone import TOPIC as METADATA

if TYPE_CHECKING:
    from ottla.broker.coordination.coordinators import Coordinators
    from ottla.broker.role import Role
    from ottla.log.storage.storage import Storage
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.server")

Result = TypeVar("Result")

REPORT_SECONDS = 5.0
"""How long a broker whose last log directory has failed tries to report the failure before it
ends."""


class Failure:
    """Keeps the first failure that the broker cannot survive. The future `reason` is done once
    there is such a failure; its result is the text that explains the failure."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.reason: asyncio.Future[str] = loop.create_future()

    def fail(self, reason: str) -> None:
        """End the broker."""
        if not self.reason.done():
            self.reason.set_result(reason)

    async def unless_it_fails(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work`, which depends on other brokers and may take any time. If this broker has
        to end first, cancel the work and raise StorageRefused with the reason."""
        task = self.loop.create_task(work)
        try:
            await asyncio.wait((task, self.reason), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waited_in_vain = not task.done()
            task.cancel()
            await asyncio.wait((task,))
        if waited_in_vain:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("the start was cancelled because this broker has to end: %r", error)
            raise StorageRefused(self.reason.result())
        return await task


class DirectoryFailures:
    """Lets a broker serve from its other log directories when one fails. Ends the broker if no
    directory is left, or if the failed one holds the metadata."""

    def __init__(
        self, storage: Storage, replicas: Replicas, coordinators: Coordinators, role: Role,
        failure: Failure,
    ) -> None:
        self.storage, self.replicas, self.coordinators = storage, replicas, coordinators
        self.role, self.failure = role, failure
        self.reporting: asyncio.Task[None] | None = None

    def directory_failed(self, path: str, reason: str) -> None:
        """Handle the failure of a log directory (`Hooks.on_failure`)."""
        log.error("log directory %s is offline until a restart: %s", path, reason)
        self.role.forget_run(path)
        self.replicas.note_failures()
        self.coordinators.let_go_of(self.replicas.offline)
        if all(directory.offline is not None for directory in self.storage.directories):
            self._fail_after_report(f"the last log directory has failed: {path}: {reason}")
        elif self.role.keeps_metadata and self.storage.homes[METADATA, 0].path == path:
            self.failure.fail(f"the log directory with the metadata has failed: {path}: {reason}")

    def _fail_after_report(self, reason: str) -> None:
        """End the broker; in a cluster, report the failure to the other brokers first. The file
        that describes this run often cannot be removed from a failed disk (`Role.forget_run`). If
        the failure were not reported, the next start would find this file and trust the logs next
        to it."""
        async def reported() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self.role.failure_reported()
            self.failure.fail(reason)

        self.reporting = self.failure.loop.create_task(reported())
