"""A consumer with a fetch session (KIP-227). It must get every record in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FetchRequest
from tests.simulation.checker import check_soundness
from tests.simulation.model import LIVE, PartitionModel
from tests.simulation.network import Broken
from tests.simulation.producers import AGAIN
from tests.simulation.reading import EARLIEST, Content, Missing, ask_offset, take
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

CAUGHT_UP_SECONDS = 30.0


class Follower:
    """One consumer of every existing partition, by topic ids, in one session."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.session = story, story.session(name)
        self.positions: dict[PartitionModel, int] = {}
        self.isolation = story.random.choice((0, 1))
        self.begin()

    def begin(self) -> None:
        """Begin a new session: the next fetch names all partitions."""
        self.id, self.epoch = 0, 0
        self.told: dict[PartitionModel, int] = {}

    async def follow(self) -> None:
        while not self.story.finished:
            await self.subscribe()
            try:
                await self.fetch()
            except (Broken, Missing):
                self.begin()
                await asyncio.sleep(0.1)
            await asyncio.sleep(2.0 if self.may_rest() else 0.01)

    def may_rest(self) -> bool:
        """Whether the consumer may pause. In a short life it may do so only after it has read
        everything."""
        return self.story.calm and (self.story.options.thorough or not self.behind())

    async def subscribe(self) -> None:
        """Add new partitions and remove deleted ones."""
        live = {p for topic in self.story.model.live() for p in topic.partitions}
        self.positions = {p: at for p, at in self.positions.items() if p in live}
        for topic in self.story.model.live():
            for partition in topic.partitions:
                self.positions.setdefault(partition, 0)

    async def fetch(self) -> None:
        made = FetchRequest.Topic
        wanted = [p for p, at in self.positions.items() if self.told.get(p) != at]
        gone = [p for p in self.told if p not in self.positions]
        for partition in gone:
            del self.told[partition]
        answer = await self.session.call(FetchRequest(
            replica_id=-1, max_wait_ms=self.story.random.choice((200, 200, 200, 100_000)),
            min_bytes=1, max_bytes=1 << 20,
            isolation_level=self.isolation, session_id=self.id, session_epoch=self.epoch,
            topics=[
                made(topic_id=p.topic.topic_id, partitions=[made.Partition(
                    partition=p.index, fetch_offset=self.positions[p],
                    partition_max_bytes=1 << 20,
                )])
                for p in wanted
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopicsData(topic_id=p.topic.topic_id, partitions=[p.index])
                for p in gone
            ],
        ), 13)
        code = ErrorCode(answer.error_code)
        if code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_TOPIC_ID,
        ):
            self.begin()
            return
        if code != ErrorCode.NONE:
            raise Violation(f"a fetch in a fetch session is answered {code.name}")
        self.id, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        for partition in wanted:
            self.told[partition] = self.positions[partition]
        by_place = {(p.topic.topic_id, p.index): p for p in self.positions}
        for topic in answer.responses:
            for part in topic.partitions:
                partition = by_place.get((topic.topic_id, part.partition_index))
                if partition is not None:
                    await self.note(partition, part)

    async def note(self, partition: PartitionModel, part: object) -> None:
        """Process one partition's part of an answer."""
        code = ErrorCode(part.error_code)           # type: ignore[attr-defined]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            found = await ask_offset(self.session, partition, EARLIEST, 0)
            self.positions[partition] = found.offset
        elif code == ErrorCode.NONE:
            at = self.positions[partition]
            seen = Content(at, at)
            self.positions[partition] = take(seen, part, at, self.isolation, partition)
            if partition.topic.state == LIVE:
                check_soundness(partition, seen)
        elif code not in AGAIN and partition.topic.state == LIVE and code not in (
            ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ):
            raise Violation(f"partition {partition!r} is answered {code.name} in a fetch session")
        if code != ErrorCode.NONE:
            self.told.pop(partition, None)

    def behind(self) -> list[str]:
        """The partitions that have more records to read, each with its position and its high
        watermark."""
        server = self.story.world.server
        found = []
        for partition in self.positions:
            here = None if server is None else server.replicas.partition(
                partition.topic.name, partition.index
            )
            if here is not None and self.positions[partition] < here.high_watermark:
                found.append(f"{partition!r} at {self.positions[partition]}"
                             f" of {here.high_watermark}")
        return found

    async def catch_up(self) -> None:
        """Check that all records arrive, after the clients have stopped writing."""
        await self.story.world.until(
            lambda: not self.behind(), f"a consumer reads {self.behind()}", CAUGHT_UP_SECONDS
        )
