"""Consumers that read from followers (KIP-392). Like a leader, a follower may return only committed
records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.wire.batch import batches
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FetchRequest
from tests.simulation.cluster.clients import AGAIN, Client, Part, fetch_of
from tests.simulation.cluster.router import Router
from tests.simulation.network import Broken
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory

EXPECTED = {*AGAIN, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}
"""The errors that a fetch may get. OFFSET_OUT_OF_RANGE is one of them, because a follower may lack
an offset that its leader has: a consumer then asks the leader."""


class NearConsumer(Client):
    """A consumer that reads at random offsets. It reads either from the replica that the leader
    names for a consumer's rack, or from a random broker, like a consumer that was sent there
    earlier."""

    async def work(self) -> None:
        random = self.story.random
        while not self.story.over:
            await self.story.rest(0.5)
            part = random.choice(self.story.parts)
            # Mostly start right after the newest record that was read: the next records may not be
            # committed yet. From an older offset a fetch would seldom reach them, because it
            # returns at most one segment, and segments are small.
            offset = max(part.seen, default=-1) + 1
            if part.seen and random.random() < 0.3:
                offset = random.choice(list(part.seen))
            if await self.leader(part) is None:
                continue
            # Some clients send no leader epoch.
            epoch = self.epochs[part.topic, part.index] if random.random() < 0.8 else -1
            node_id: int | None = random.choice(self.world.brokers).node_id
            if random.random() < 0.5:
                node_id = await self._sent_to(part, offset, epoch)
            if node_id is not None:
                await self._read(part, node_id, offset, epoch)

    async def _ask(
        self, part: Part, node_id: int, offset: int, epoch: int, rack: str = ""
    ) -> Any | None:
        """The part of a broker's answer to a fetch that concerns the partition; None if there is no
        answer, or an error."""
        try:
            answer = await self.call(node_id, fetch_of(part, offset, epoch, rack), 12)
        except Broken:
            self.lost(part)
            return None
        found = answer.responses[0].partitions[0]
        code = ErrorCode(found.error_code)
        if code not in EXPECTED:
            raise Violation(
                f"partition {part}: a fetch from broker {node_id} is answered {code.name}"
            )
        if code is not ErrorCode.NONE:
            self.lost(part)
            return None
        return found

    async def _sent_to(self, part: Part, offset: int, epoch: int) -> int | None:
        """The replica that the leader names for a consumer in the rack of a random broker; None if
        it names none."""
        leader, near = await self.leader(part), self.story.random.choice(self.world.brokers)
        if leader is None:
            return None
        found = await self._ask(part, leader, offset, epoch, f"rack {near.node_id}")
        if found is None or found.preferred_read_replica < 0:
            return None
        if found.preferred_read_replica != near.node_id or found.records:
            raise Violation(
                f"partition {part}: a consumer in the rack of broker {near.node_id} is not just"
                f" sent to this broker: {found}"
            )
        return near.node_id

    async def _read(self, part: Part, node_id: int, offset: int, epoch: int) -> None:
        asked_at = self.world.now
        found = await self._ask(part, node_id, offset, epoch)
        lost = part.lost_at >= 0 and epoch <= part.lost_in
        if found is None or asked_at < part.lost_at or lost:
            return
        if self.story.damage.spoils(part.topic, part.index, found.records):
            return
        for view in batches(found.records or b""):
            for record in view.records():
                if record.offset >= found.high_watermark:
                    raise Violation(
                        f"partition {part}: broker {node_id} shows consumers offset"
                        f" {record.offset}, though its high watermark is {found.high_watermark}"
                    )
                if record.offset >= offset:
                    part.saw(record.offset, record.value or b"", view.leader_epoch)


class FollowerRouter(Router):
    """A router that sends a fetch to a random broker, whether or not it leads the partition, and
    returns that broker's answer."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.anywhere = Client(story, name)

    async def call(self, request: Any, version: int, link: None = None) -> Any:
        """Send a request. Raises Broken if there was no answer, or if fetched records were changed
        on a disk."""
        if not isinstance(request, FetchRequest) or version < 11:
            return await super().call(request, version)
        node_id = self.story.random.choice(self.world.brokers).node_id
        answer = await self.anywhere.call(node_id, request, version)
        if self.spoilt(request, answer):
            raise Broken
        return answer
