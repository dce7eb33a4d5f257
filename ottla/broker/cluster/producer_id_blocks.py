"""Producer ids, taken from the controller a block at a time and handed out one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ottla.broker.cluster.metadata_log import Metadata
from ottla.replication.controller.producer_ids import take_producer_ids


class ProducerIds:
    """Ids that this broker may give; what is left of a block when it stops is never given."""

    def __init__(self, metadata_log: Metadata) -> None:
        self.metadata_log = metadata_log
        self.block: Iterator[int] = iter(())
        self.refilling = asyncio.Lock()

    async def take(self) -> int:
        """An id that no producer had before."""
        async with self.refilling:
            for producer_id in self.block:
                return producer_id
            block = await self.metadata_log.decide(take_producer_ids)
            self.block = iter(block)
            return next(self.block)
