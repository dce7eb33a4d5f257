"""Clients that contend for the offsets of one group, and for transactional ids. They commit, read
and delete offsets, and run transactions, all at the same time. No answer is checked alone:
`histories/` checks whether some order of the requests explains all answers."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    DeleteGroupsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from tests.simulation.groups import fetch_offset
from tests.simulation.network import Broken

if TYPE_CHECKING:
    from tests.simulation.session import Session
    from tests.simulation.story import Story

GROUP = "contended"
CONTENDERS = 4
IDS = ("contended0", "contended1")
"""The transactional ids; two contenders share each."""
HEARD_SHARE = 0.75
"""The share of successful answers to InitProducerId and EndTxn that a contender uses. It ignores
the others, as if they were lost. After an ignored answer to EndTxn it sends another EndTxn."""
LOST = {
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


class Contender:
    """One of the contending clients."""

    def __init__(self, story: Story, at: int, second: bool, values: count[int]) -> None:
        self.story, self.second, self.values = story, second, values
        self.transactional_id = IDS[at % len(IDS)]
        self.session: Session = story.session(f"contender{at}")
        self.chance = Random(f"contender {at} {story.world.seed}")
        self.producer = -1, -1
        self.holds = False

    async def act(self) -> None:
        """Send a random request, or two that belong together. Answers may be lost."""
        topics = self.story.model.live()
        if not topics:
            return
        some = topics if self.chance.random() < 0.2 else topics[:1]
        topic, chosen = self.chance.choice(some).name, self.chance.random()
        with contextlib.suppress(Broken):
            if chosen < 0.1:
                await self.commit(topic)
            elif chosen < 0.35:
                await self.read(topic)
            elif chosen < 0.38:
                await self.delete(topic)
            elif chosen < 0.4:
                await self.session.call(DeleteGroupsRequest(groups_names=[GROUP]), 2)
            elif chosen < 0.46 or self.producer[0] < 0:
                await self.initialise()
            elif chosen < 0.7 or not self.holds:
                await self.hold(topic)
            else:
                await self.end()

    async def commit(self, topic: str) -> None:
        made = OffsetCommitRequest
        await self.session.call(made(group_id=GROUP, topics=[
            made.Topic(name=topic, partitions=[made.Topic.Partition(
                partition_index=0, committed_offset=next(self.values), committed_metadata="",
            )])
        ]), 8)

    async def read(self, topic: str) -> None:
        made = OffsetFetchRequest
        stable = not self.story.coordinators_stay or self.chance.random() < 0.5
        await self.session.call(made(
            groups=[made.Group(group_id=GROUP, topics=[
                made.Group.Topic(name=topic, partition_indexes=[0])
            ])],
            require_stable=stable,
        ), 8)

    async def delete(self, topic: str) -> None:
        made = OffsetDeleteRequest
        await self.session.call(made(group_id=GROUP, topics=[
            made.Topic(name=topic, partitions=[made.Topic.Partition(partition_index=0)])
        ]), 0)

    async def initialise(self) -> None:
        """Send InitProducerId: as a new process, or as the process that owns the transactional
        id."""
        recovers = self.chance.random() < 0.5
        answer = await self.session.call(InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.chance.choice(self.story.options.transaction_ms),
            producer_id=self.producer[0] if recovers else -1,
            producer_epoch=self.producer[1] if recovers else -1,
        ), 4)
        self.takes(answer)

    async def hold(self, topic: str) -> None:
        """Commit an offset in the transaction."""
        who: dict[str, Any] = {
            "transactional_id": self.transactional_id, "group_id": GROUP,
            "producer_id": self.producer[0], "producer_epoch": self.producer[1],
        }
        self.holds = True
        if not self.second:
            code = (await self.session.call(AddOffsetsToTxnRequest(**who), 3)).error_code
            self.look(code)
            if code:
                return
        made = TxnOffsetCommitRequest.Topic
        answer = await self.session.call(TxnOffsetCommitRequest(**who, topics=[
            made(name=topic, partitions=[made.Partition(
                partition_index=0, committed_offset=next(self.values), committed_metadata="",
            )])
        ]), 5 if self.second else 3)
        self.look(answer.topics[0].partitions[0].error_code)

    async def end(self) -> None:
        """Send EndTxn. If the answer is ignored, send another EndTxn, which may commit or abort."""
        answer = await self.session.call(EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer[0],
            producer_epoch=self.producer[1], committed=self.chance.random() < 0.7,
        ), 5 if self.second else 3)
        if not self.takes(answer):
            await self.end()

    def takes(self, answer: Any) -> bool:
        """Continue with the producer id and epoch in the answer. False if the answer is ignored."""
        if answer.error_code == 0:
            if self.chance.random() > HEARD_SHARE:
                return False
            self.holds = False
            if answer.producer_id >= 0:
                self.producer = answer.producer_id, answer.producer_epoch
        self.look(answer.error_code)
        return True

    def look(self, code: int) -> None:
        """If the transactional id belongs to another process now, sometimes begin anew. Otherwise
        continue with requests that must be refused."""
        if code in LOST and self.chance.random() < 0.7:
            self.producer, self.holds = (-1, -1), False


async def contend(story: Story) -> None:
    """Let some of the contenders act at the same time, again and again."""
    chance, values = Random(f"contention {story.world.seed}"), count(10_000)
    second = chance.random() < 0.5
    each = [Contender(story, at, second, values) for at in range(CONTENDERS)]
    while not story.over:
        await asyncio.sleep(chance.expovariate(3.0 / story.pace))
        acting = chance.sample(each, chance.choice((1, 2, 3, CONTENDERS)))
        await asyncio.gather(*(contender.act() for contender in acting))


async def read_at_last(story: Story, session: Session) -> None:
    """Read the offsets of the contenders at the end of the run, so that the histories include
    them."""
    for topic in story.model.live():
        await fetch_offset(story, session, GROUP, topic, 0)
