"""Consumers that read from followers (KIP-392): what they see is committed, as at the leader."""

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
"""A follower may lack an offset that its leader has, and then the consumer asks the leader."""


class NearConsumer(Client):
    """Reads at random offsets: from the replica to which the leader sends a consumer of some rack,
    or from any broker, as a consumer does that was sent there before."""

    async def work(self) -> None:
        random = self.story.random
        while not self.story.over:
            await self.story.rest(0.5)
            part = random.choice(self.story.parts)
            # Mostly behind the newest record, as a fetch stays in a segment and segments are small:
            # what is not committed comes next.
            offset = max(part.seen, default=-1) + 1
            if part.seen and random.random() < 0.3:
                offset = random.choice(list(part.seen))
            if await self.leader(part) is None:
                continue
            # Some clients know no epochs.
            epoch = self.epochs[part.topic, part.index] if random.random() < 0.8 else -1
            node_id: int | None = random.choice(self.world.brokers).node_id
            if random.random() < 0.5:
                node_id = await self._sent_to(part, offset, epoch)
            if node_id is not None:
                await self._read(part, node_id, offset, epoch)

    async def _ask(
        self, part: Part, node_id: int, offset: int, epoch: int, rack: str = ""
    ) -> Any | None:
        """What a broker answers; None if it is not there, or has another epoch."""
        try:
            answer = await self.call(node_id, fetch_of(part, offset, epoch, rack), 12)
        except Broken:
            self.lost(part)
            return None
        found = answer.responses[0].partitions[0]
        code = ErrorCode(found.error_code)
        if code not in EXPECTED:
            raise Violation(f"{part}: a fetch from {node_id} is answered {code.name}")
        if code is not ErrorCode.NONE:
            self.lost(part)
            return None
        return found

    async def _sent_to(self, part: Part, offset: int, epoch: int) -> int | None:
        """Where the leader sends a consumer in the rack of some broker."""
        leader, near = await self.leader(part), self.story.random.choice(self.world.brokers)
        if leader is None:
            return None
        found = await self._ask(part, leader, offset, epoch, f"rack {near.node_id}")
        if found is None or found.preferred_read_replica < 0:
            return None
        if found.preferred_read_replica != near.node_id or found.records:
            raise Violation(f"{part}: a consumer near {near.node_id} is answered {found}")
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
                    raise Violation(f"{part}: {node_id} shows {record.offset}, not committed there")
                if record.offset >= offset:
                    part.saw(record.offset, record.value or b"", view.leader_epoch)


class FollowerRouter(Router):
    """Sends fetches to any broker, whether or not it leads the partition, and returns what that
    answers."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.anywhere = Client(story, name)

    async def call(self, request: Any, version: int, link: None = None) -> Any:
        """Send a request. Broken: there was no answer."""
        if not isinstance(request, FetchRequest) or version < 11:
            return await super().call(request, version)
        node_id = self.story.random.choice(self.world.brokers).node_id
        answer = await self.anywhere.call(node_id, request, version)
        if self.spoilt(request, answer):
            raise Broken
        return answer
