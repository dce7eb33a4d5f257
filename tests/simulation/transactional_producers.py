"""Clients that produce in transactions, with the first protocol or with that of KIP-890."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tests.simulation.model import (
    ABORTED,
    ACKED,
    COMMITTED,
    LIVE,
    OPEN,
    UNKNOWN,
    Batch,
    PartitionModel,
    TopicModel,
    Transaction,
)
from tests.simulation.network import Broken
from tests.simulation.producers import AGAIN, Producer
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

AMID_A_WRITE_SHARE = 0.1
"""The share of writes during which an impatient transactional producer dies."""
AMID_A_WRITE_PACE = 1000.0
ABORT_AMID_A_WRITE_SHARE, ABORT_OFTEN_SHARE = 0.1, 0.5
"""The share of writes during which an impatient transactional producer aborts its transaction
before it has the answer. The second share applies if coordinators answer leaders late."""


class Transactional(Producer):
    """A producer of transactions, with the first protocol or, if `second`, with that of
    KIP-890."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self.transactional = name
        # With `slow_verdicts` coordinators answer leaders late. This tests that a late batch does
        # not get into a later transaction. In the second protocol it never could, because each
        # transaction has an epoch of its own.
        self.second = self.random.random() < 0.5 and not story.options.slow_verdicts
        self.meanwhile: Callable[[], Coroutine[Any, Any, None]] = story.admin.act
        self.added: set[PartitionModel] = set()
        self.deletions = Random(f"deletions {story.world.seed} {name}")
        self.later_commits = Random(f"later commits {story.world.seed} {name}")
        self.aborts = Random(f"aborts {story.world.seed} {name}")
        self.aborts_share = (
            ABORT_OFTEN_SHARE if story.options.slow_verdicts else ABORT_AMID_A_WRITE_SHARE
        )
        self.topic: TopicModel | None = None
        """The topic to whose partitions a wide transaction writes, one after the other."""
        self.turn = 0
        self.unanswered: asyncio.Future[Any] | None = None
        """A write whose answer the producer did not await, because it died or aborted."""

    def group(self) -> str:
        """The group whose offset is committed in a transaction."""
        return f"s{self.random.randrange(2)}"

    def choose(self) -> PartitionModel | None:
        topic = self.topic
        if topic is None or topic.state != LIVE:
            return super().choose()
        self.turn += 1
        return topic.partitions[self.turn % len(topic.partitions)]

    async def ask(self, request: Any, version: int, codes: Any) -> ErrorCode:
        """Repeat a request until the answer is final; returns its error code. Raises Broken."""
        while True:
            answer = await self.session.call(request, version)
            code = ErrorCode(codes(answer))
            if code not in AGAIN or self.story.over:
                return code
            await asyncio.sleep(0.05)

    async def add(self, partition: PartitionModel) -> ErrorCode:
        made = AddPartitionsToTxnRequest
        request = made(
            v3_and_below_transactional_id=self.transactional,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                made.Topic(name=partition.topic.name, partitions=[partition.index])
            ],
        )
        return await self.ask(
            request, 3,
            lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0]
            .partition_error_code,
        )

    async def write(self, transaction: Transaction) -> bool:
        """Send one batch; returns False if the transaction must be given up."""
        made = await self.prepare(transaction)
        return made is not None and await self.deliver(*made)

    async def prepare(self, transaction: Transaction) -> tuple[Batch, bytes] | None:
        """Make a batch, and add its partition to the transaction; returns None if this is
        refused."""
        partition = self.choose()
        if partition is None:
            return None
        if not self.second and partition not in self.added:
            if await self.add(partition) != ErrorCode.NONE:
                return None
            self.added.add(partition)
        batch, data = self.batch(partition, -1, True)
        batch.transaction = transaction
        transaction.batches.append(batch)
        return batch, data

    async def deliver(self, batch: Batch, data: bytes) -> bool:
        """Send a batch until the answer is final; returns whether the batch was accepted."""
        partition = batch.partition
        version = 12 if self.second else self.random.choice((7, 11))
        for _ in range(20):
            code = await self.send(batch, data, version)
            if partition.topic.state != LIVE:
                # The request names the topic by its name, so the batch may have reached the next
                # topic of this name, with a sequence number for the deleted topic.
                return False
            if code not in AGAIN:
                break
            await asyncio.sleep(0.05)
        return batch.fate == ACKED

    async def commit_offset(self, transaction: Transaction) -> bool:
        """Commit an offset of a group in the transaction; returns False if the transaction must be
        given up."""
        partition, group = self.choose(), self.group()
        if partition is None:
            return False
        if not self.second:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional, producer_id=self.id,
                producer_epoch=self.epoch, group_id=group,
            )
            if await self.ask(request, 3, lambda a: a.error_code) != ErrorCode.NONE:
                return False
        topic, offset = partition.topic, self.random.randrange(1, 1000)
        key = group, topic, partition.index
        if not self.story.offsets.reserve(key, transaction):
            return True
        transaction.offsets.append((key, offset))
        made = TxnOffsetCommitRequest.Topic
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional, group_id=group, producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[made(name=topic.name, partitions=[
                made.Partition(
                    partition_index=partition.index, committed_offset=offset,
                    committed_metadata="",
                )
            ])],
        )
        version = 5 if self.second else 3
        try:
            code = await self.ask(request, version, lambda a: a.topics[0].partitions[0].error_code)
        except Broken:
            self.story.offsets.blur(key)
            raise
        if topic.state != LIVE:
            self.story.offsets.blur(key)
        if code == ErrorCode.NONE:
            self.story.offsets.wrote(key)
        return code == ErrorCode.NONE

    async def end(self, commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional, producer_id=self.id,
            producer_epoch=self.epoch, committed=commit,
        )
        version = 5 if self.second else 3
        epoch = self.epoch

        def code(answer: Any) -> int:
            if version >= 5 and answer.error_code == 0:
                self.id, self.epoch = answer.producer_id, answer.producer_epoch
                if self.epoch != epoch:
                    self.sequences.clear()
            return int(answer.error_code)

        return await self.ask(request, version, code)

    async def run_one(self) -> bool:
        """Run one transaction; returns False if the producer must get an epoch again."""
        random = self.random
        if self.unanswered is not None:
            # The request of the dead producer is still under way: wait until it has ended.
            with contextlib.suppress(Broken):
                await self.unanswered
            self.unanswered = None
        transaction = Transaction(f"{self.name}/{len(self.model.transactions)}")
        self.model.transactions.append(transaction)
        self.added.clear()
        if self.story.options.wide:
            self.topic = max(
                self.model.live(), key=lambda topic: len(topic.partitions), default=None
            )
        asked = False
        try:
            for _ in range(random.choice((1, 2, 4))):
                if self.story.options.impatient and random.random() < AMID_A_WRITE_SHARE:
                    if (made := await self.prepare(transaction)) is not None:
                        # The producer dies, and comes back while its batch is on its way.
                        self.unanswered = asyncio.ensure_future(self.deliver(*made))
                        await asyncio.sleep(random.expovariate(AMID_A_WRITE_PACE))
                    return False
                if self.story.options.impatient and self.aborts.random() < self.aborts_share:
                    return await self.abort_amid_a_write(transaction)
                good = await (
                    self.commit_offset(transaction) if random.random() < 0.25
                    else self.write(transaction)
                )
                if not good:
                    return False
                await asyncio.sleep(random.expovariate(1 / self.story.pace))
                if random.random() < 0.1:
                    # Change topics while the transaction is open.
                    with contextlib.suppress(Broken):
                        await self.meanwhile()
            if random.random() < 0.1:
                return False                    # as if the producer had stopped and come back
            if not transaction.batches and not transaction.offsets:
                transaction.fate = ABORTED
                return True
            if transaction.offsets and self.deletions.random() < 0.1:
                (group, _, _), _ = transaction.offsets[-1]
                with contextlib.suppress(Broken):
                    await self.story.offsets.delete_group(self.session, group)
            elif transaction.offsets and self.later_commits.random() < 0.3:
                with contextlib.suppress(Broken):
                    await self.story.offsets.overwrite(self.session, transaction.offsets[-1][0])
            commit = random.random() < 0.7
            asked = commit
            self.story.offsets.ends(transaction)
            if self.story.options.rivals and self.deletions.random() < self.story.options.rivals:
                code = await end_beside_a_rival(self, commit)
            else:
                code = await self.end(commit)
            if code == ErrorCode.NONE:
                self.decided(transaction, COMMITTED if commit else ABORTED)
                asked = False
                return True
            return False
        except Broken:
            return False
        finally:
            if transaction.fate == OPEN:
                # When the next InitProducerId is answered, the transaction has certainly ended.
                transaction.fate = UNKNOWN if asked else "to abort"

    async def abort_amid_a_write(self, transaction: Transaction) -> bool:
        """Abort while a batch is on its way, as after a time-out. If the batch reaches its leader
        after the marker, it must not begin a transaction. Returns False: the producer must get an
        epoch again, because it cannot know its next sequence number."""
        if (made := await self.prepare(transaction)) is not None:
            version = 12 if self.second else self.aborts.choice((7, 11))
            self.unanswered = asyncio.ensure_future(
                self.other.call(self.request(*made, version), version))
            await asyncio.sleep(self.aborts.expovariate(AMID_A_WRITE_PACE))
        self.story.offsets.ends(transaction)
        if await self.end(False) == ErrorCode.NONE:
            self.decided(transaction, ABORTED)
        return False

    def decided(self, transaction: Transaction, fate: str) -> None:
        transaction.fate = fate
        self.story.offsets.decided(transaction)


async def end_beside_a_rival(producer: Transactional, commit: bool) -> ErrorCode:
    """Send EndTxn while another process starts with the same transactional id; returns the error
    code of EndTxn. As soon as the other process has its epoch, no request of this producer may be
    accepted. This producer then continues with the id and epoch of the other one."""
    story, old = producer.story, (producer.id, producer.epoch)
    session = story.session(f"{producer.name}'")
    request = InitProducerIdRequest(
        transactional_id=producer.transactional, transaction_timeout_ms=5000,
    )

    async def come_up() -> Any:
        while True:
            answer = await session.call(request, 4)
            if ErrorCode(answer.error_code) not in AGAIN:
                return answer
            await asyncio.sleep(0.05)

    code, answer = await asyncio.gather(
        producer.end(commit), come_up(), return_exceptions=True
    )
    for each in (code, answer):
        if isinstance(each, BaseException) and not isinstance(each, Broken):
            raise each
    if isinstance(answer, Broken):
        raise answer
    if answer.error_code:
        raise Violation(
            f"InitProducerId of a second producer {producer.name!r} is answered"
            f" {ErrorCode(answer.error_code).name}"
        )
    ended, (producer.id, producer.epoch) = (producer.id, producer.epoch), old
    await write_late(producer)
    producer.id, producer.epoch = ended
    producer.takes(answer.producer_id, answer.producer_epoch)
    if isinstance(code, BaseException):
        raise code
    return code


async def write_late(producer: Transactional) -> None:
    """Send one more batch, though another producer has taken the transactional id. It must be
    refused."""
    partition = producer.choose()
    if partition is None:
        return
    batch, data = producer.batch(partition, -1, True)
    batch.transaction = Transaction(f"{producer.name}/late", ABORTED)
    with contextlib.suppress(Broken):
        code = await producer.send(batch, data, 12 if producer.second else 11)
        if code == ErrorCode.NONE:
            raise Violation(
                f"partition {partition!r}: a batch of producer {producer.name!r} was accepted,"
                " though its epoch has ended"
            )
    batch.fate = UNKNOWN


async def produce_transactions(story: Story, name: str) -> None:
    producer = Transactional(story, name)
    ready = False
    while not story.over:
        if not ready:
            ready = await producer.begin(
                story.random.choice(story.options.transaction_ms), story.random.random() < 0.5
            )
            if ready:
                for transaction in story.model.transactions:
                    if transaction.name.startswith(name + "/"):
                        if transaction.fate == "to abort":
                            producer.decided(transaction, ABORTED)
                        elif transaction.fate == UNKNOWN:
                            producer.decided(transaction, UNKNOWN)
            continue
        ready = await producer.run_one()
        await asyncio.sleep(story.random.expovariate(1 / story.pace))
