"""Which brokers have gone so recently that others may have stopped with them.

Where the power of two machines fails at one moment, their sessions with ZooKeeper end one after the
other. The broker whose session ends last remains alone in in-sync sets without learning of it. Its
record says which brokers were gone shortly before: so a replica that has lost the end of its log
does not lead before the others were asked for the ends of their logs
(`replication/controller/elections`).

The time between two ends is never derived from when they are noticed. A broker has outlived another
one's end if ZooKeeper still lists it in an answer that was requested long enough after that end.
Every broker keeps account, since it may be the next controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ottla.broker.cluster.continuity import lasting
from ottla.broker.cluster.metadata_log import Metadata
from ottla.replication.coordination import Coordination, CoordinationError
from ottla.replication.metadata import MetadataImage
from ottla.replication.registration import IDS

SESSION_LASTS = 1.5
"""A part of the session timeout: ZooKeeper ends sessions at its next tick, of which a timeout has
two."""
LEARNED_WITHIN = 1.0
"""A part of the session timeout, after which a broker that is alive has read that it is alone in
sync, and has flushed what others had in memory with it."""
ASK_AGAIN_SECONDS = 1.0


class RecentEnds:
    """The brokers that were removed from the metadata, until all the others have outlived that."""

    def __init__(
        self, coordination: Coordination, metadata: Metadata, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.coordination, self.metadata, self.loop = coordination, metadata, loop
        self.removed_at: dict[int, float] = {}
        """A broker that has registered again meanwhile is still listed: it may be gone once more
        when the other one returns."""
        self.watch: asyncio.Task[None] | None = None
        metadata.subscribe(self._follow)

    def before(self, image: MetadataImage, gone: Collection[int]) -> tuple[int, ...]:
        """The brokers that may have stopped together with the brokers that are gone now, according
        to the image from which these will be removed. Brokers that are found to be gone at once
        stay in in-sync sets together."""
        # The followers of the image have not seen the newest decision yet.
        decided = _removed(self.metadata.image, image)
        return tuple(sorted({*self.removed_at, *decided} - {*gone}))

    def close(self) -> None:
        """Stop asking ZooKeeper."""
        if self.watch is not None:
            self.watch.cancel()

    def _follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        if new.brokers is old.brokers:
            return
        for node_id in _removed(old, new):
            self.removed_at[node_id] = self.loop.time()
        if self.removed_at and self.watch is None:
            self.watch = self.loop.create_task(lasting(self._until_outlived))

    async def _until_outlived(self) -> None:
        timeout = self.coordination.session_timeout_ms / 1000
        lasts = timeout * (SESSION_LASTS + LEARNED_WITHIN)
        while self.removed_at:
            due = min(self.removed_at.values()) + lasts
            await asyncio.sleep(max(due - self.loop.time(), 0))
            asked_at = self.loop.time()
            if await self._all_are_there():
                self.removed_at = {
                    node: at for node, at in self.removed_at.items() if at + lasts > asked_at
                }
            else:
                await asyncio.sleep(ASK_AGAIN_SECONDS)
        self.watch = None

    async def _all_are_there(self) -> bool:
        """Whether each broker in the metadata has a session. A broker without one is gone as well,
        although the controller has not written it yet."""
        try:
            await self.coordination.sync()
            there = await self.coordination.children(IDS)
        except CoordinationError:
            return False
        return {str(node_id) for node_id in self.metadata.decided.brokers} <= {*there}


def _removed(old: MetadataImage, new: MetadataImage) -> set[int]:
    """The brokers whose registrations were removed, even if they have new ones."""
    return {
        node_id for node_id, broker in old.brokers.items()
        if node_id not in new.brokers or new.brokers[node_id].epoch != broker.epoch
    }
