"""Producer ids, requested from the controller in blocks and assigned one by one.

In a cluster, a broker requests the next block before it needs it. So producers can begin while
there is no controller, for instance while ZooKeeper is not reachable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.threads.unawaited import retrieve_error
from ottla.replication.controller.producer_ids import take_producer_ids
from ottla.wire.errors import ErrorCode, ProtocolError, RequestTimedOut

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.role import Role

log = logging.getLogger("ottla.producers")

REFILL_SECONDS = 10.0
"""The longest wait for a block. It ends before clients give up waiting for an answer and close the
connection."""
AGAIN_SECONDS = 1.0
"""The pause after a failed request for the next block."""


class NoProducerIds(ProtocolError):
    """The controller assigns no ids at present. For a producer without a transactional id,
    `code` is the only code that all clients retry. After NOT_COORDINATOR and
    COORDINATOR_NOT_AVAILABLE, Java clients look for a coordinator and fail; after
    REQUEST_TIMED_OUT, older Java clients fail."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ProducerIds:
    """The ids that this broker may assign; ids that it has not assigned are lost when it stops."""

    def __init__(self, node_id: int, metadata: Metadata, role: Role) -> None:
        self.node_id, self.metadata, self.role = node_id, metadata, role
        self.block: Iterator[int] = iter(())
        self.ahead: range | None = None
        """The next block, requested ahead."""
        self.keeps_ahead = False
        self.refilling: asyncio.Task[None] | None = None
        self.keeping: asyncio.Task[None] | None = None
        """The task that requests the next block until it gets one."""

    async def take(self) -> int:
        """An id that no producer has had before. If a request for a block fails, all callers that
        wait for it get the same NoProducerIds. So no client waits longer than the first one."""
        while True:
            for producer_id in self.block:
                return producer_id
            if self.ahead is not None:
                self.block, self.ahead = iter(self.ahead), None
                self._request_ahead()
            else:
                await self._refilled()

    def keep_ahead(self) -> None:
        """Request each next block before it is needed, from now on."""
        self.keeps_ahead = True
        self._request_ahead()

    def _request_ahead(self) -> None:
        if self.keeps_ahead and self.keeping is None:
            self.keeping = asyncio.create_task(self._keep_ahead())
            self.keeping.add_done_callback(retrieve_error)

    def close(self) -> None:
        """Stop requesting blocks."""
        for task in (self.keeping, self.refilling):
            if task is not None:
                task.cancel()

    async def _keep_ahead(self) -> None:
        try:
            while self.ahead is None:
                try:
                    await self._refilled()
                except NoProducerIds as error:
                    log.info("the next producer ids could not be requested: %s", error)
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self.keeping = None

    async def _refilled(self) -> None:
        """Wait until a request for a block is answered; all waiting callers share one request."""
        if self.refilling is None:
            self.refilling = asyncio.create_task(self._refill())
            # Without this callback, nobody would retrieve the task's error if all waiting clients
            # have disconnected.
            self.refilling.add_done_callback(retrieve_error)
        await asyncio.shield(self.refilling)

    async def _refill(self) -> None:
        try:
            self.ahead = await self._take_block()
        finally:
            self.refilling = None

    async def _take_block(self) -> range:
        """A block from the controller, which may be this broker. Raises NoProducerIds."""
        if self.role.decides():
            try:
                return await self.metadata.decide(take_producer_ids)
            except ProtocolError as error:
                if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise                                   # no ids are left
                # The disk refuses the record, or this broker is no longer the controller.
                raise NoProducerIds(f"no producer ids were allocated: {error}") from error
        from ottla.wire.messages import AllocateProducerIdsRequest

        registered = self.metadata.image.brokers.get(self.node_id)
        request = AllocateProducerIdsRequest(
            broker_id=self.node_id,
            broker_epoch=-1 if registered is None else registered.epoch,
        )
        try:
            answer = await self.role.ask(request, 0, REFILL_SECONDS)
        except RequestTimedOut as error:
            raise NoProducerIds(str(error)) from error
        if answer.error_code != 0:
            # For example, this broker's epoch is stale until the broker is registered again.
            raise NoProducerIds(
                f"the controller did not allocate producer ids: {ErrorCode(answer.error_code).name}"
            )
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
