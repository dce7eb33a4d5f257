"""Which brokers have gone so recently that others may have stopped with them.

If two machines lose power at the same moment, their sessions with ZooKeeper end one after the
other. The broker whose session ends last remains alone in in-sync sets without learning of it. So
the record of its removal names the brokers that were gone shortly before. The removed broker's
machine may have lost the end of a log. The broker must then not lead that partition until the named
brokers have been asked for the ends of their logs (`replication/controller/elections`).

Even two brokers whose ends are noticed far apart may have stopped together. Long enough after the
end of broker B, the controller asks ZooKeeper which brokers are there. If broker A is still listed,
A has outlived the end of B. Once all live brokers have outlived an end, the controller writes that
this end is no longer recent. The list of recent ends is in the metadata, so that a controller whose
process has just started knows the list, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from ottla.broker.cluster.metadata_log import Metadata
from ottla.replication.controller.brokers import outlived
from ottla.replication.coordination import Coordination, CoordinationError, SessionState
from ottla.replication.metadata import MetadataImage
from ottla.replication.registration import IDS
from ottla.wire.errors import ProtocolError

SESSION_LASTS = 1.5
"""How many session timeouts a dead broker's session lasts at most: ZooKeeper ends sessions at its
next tick, and a timeout has at least two ticks."""
LEARNED_WITHIN = 1.0
"""How many session timeouts a live broker takes at most to read that it is alone in sync, and to
flush records that were committed only in memory."""
LOOK_SECONDS = 1.0


class RecentEnds:
    """How long ago the brokers of `MetadataImage.recently_gone` were removed."""

    def __init__(
        self, coordination: Coordination, metadata: Metadata, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.coordination, self.metadata, self.loop = coordination, metadata, loop
        self.removed_at = dict.fromkeys(metadata.image.recently_gone, loop.time())
        """For each node id, the time of the latest of these events: this broker read that the node
        was removed or has returned, or this broker reached ZooKeeper again.

        A node stays listed after its return. Suppose brokers A and B stopped together, and A has
        returned before B's removal. The record of B's removal must still name A: if A is gone once
        more when B returns, B must wait for A."""
        metadata.subscribe(self._follow)
        coordination.listen(self._session_changed)

    def _follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        if new.brokers is old.brokers and new.recently_gone is old.recently_gone:
            return
        now = self.loop.time()
        self.removed_at = {
            node_id: now if _has_changed(old, new, node_id) else self.removed_at.get(node_id, now)
            for node_id in new.recently_gone
        }

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            # ZooKeeper's leader may have changed: each session then lasts for another timeout.
            self.removed_at = dict.fromkeys(self.removed_at, self.loop.time())

    async def run(self) -> None:
        """As the controller, take each end out of the metadata once all others have outlived it."""
        timeout = self.coordination.session_timeout_ms / 1000
        lasts = timeout * (SESSION_LASTS + LEARNED_WITHIN)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # `decided` may have changed since this image: brokers may have come or gone. `outlived`
            # then decides nothing.
            asked_at, seen = self.loop.time(), self.metadata.image
            nodes = [node for node, at in self.removed_at.items() if at + lasts <= asked_at]
            if nodes and await self._all_are_there(seen):
                with suppress(ProtocolError):
                    await self.metadata.decide(outlived, nodes, seen)

    async def _all_are_there(self, image: MetadataImage) -> bool:
        """Whether each broker in the metadata has a session. A broker without a session is gone,
        too, even if the controller has not removed it yet."""
        try:
            await self.coordination.sync()
            there = await self.coordination.children(IDS)
        except CoordinationError:
            return False
        return {str(node_id) for node_id in image.brokers} <= {*there}


def _has_changed(old: MetadataImage, new: MetadataImage, node_id: int) -> bool:
    """Whether a broker has come or gone. It may have come and gone between two images."""
    before, after = old.last_known(node_id), new.last_known(node_id)
    return (
        (node_id in old.brokers) != (node_id in new.brokers)
        or (before and before.epoch) != (after and after.epoch)
    )
