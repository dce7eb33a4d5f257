"""Clients that produce: with every value of acks and every codec; plain, idempotent and
transactional."""

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
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from ottla.wire.records import Record, build_batch
from tests.simulation.model import (
    ABORTED,
    ACKED,
    COMMITTED,
    LIVE,
    OPEN,
    REFUSED,
    TOMBSTONE,
    UNKNOWN,
    Batch,
    PartitionModel,
    TopicModel,
    Transaction,
)
from tests.simulation.network import Broken, Link
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

GONE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR,
}
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
FORGOTTEN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
TWICE_SHARE = 0.3
"""The share of single batches that an impatient producer sends twice."""
AMID_A_WRITE_SHARE = 0.1
"""The share of writes during which an impatient transactional producer dies."""
AMID_A_WRITE_PACE = 1000.0
ABORT_AMID_A_WRITE_SHARE, ABORT_OFTEN_SHARE = 0.1, 0.5
"""How many writes an impatient transactional producer leaves unanswered, and aborts; the second
one where coordinators answer leaders late."""
CODECS = (0, 0, 0, 1, 2, 3, 4)


class Producer:
    """Makes batches of new, unique records."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.name = story, name
        self.world, self.model = story.world, story.model
        self.random = story.random
        self.session = story.session(name)
        self.other = story.session(f"{name} again")
        """A second connection: for the copy of a batch that is sent twice at the same time, or for
        a batch that is sent while its producer does something else."""
        self.numbers: dict[PartitionModel, int] = {}
        self.sequences: dict[PartitionModel, int] = {}
        self.id, self.epoch = -1, -1
        self.keys = [b"k0", b"k1", b"k2", b"k3"]
        if story.options.own_keys:
            # At the end, the fates of all records with this key are known.
            self.keys.append(b"k" + name.encode())
        self.since = 0                  # the incarnation of the broker that gave the epoch

    def choose(self) -> PartitionModel | None:
        topics = self.model.live()
        if not topics:
            return None
        return self.random.choice(self.random.choice(topics).partitions)

    def batch(self, partition: PartitionModel, acks: int, idempotent: bool) -> tuple[Batch, bytes]:
        """A new batch, registered in the model, and its bytes."""
        random, count = self.random, self.random.choice((1, 1, 2, 5))
        number = self.numbers[partition] = self.numbers.get(partition, -1) + 1
        now_ms = self.world.wall_ms()
        skew = random.choice((0, 0, 0, -5000, -86_400_000, 1000))
        values, keys, times = [], [], []
        for _ in range(count):
            self.model.records_sent += 1
            size = random.choice((0, 10, 100, 700))
            deletes = random.random() < 0.1
            mark = b"%b%d." % (TOMBSTONE if deletes else b"", self.model.records_sent)
            values.append(mark + b"x" * size * (not deletes))
            keys.append(random.choice(self.keys if idempotent else self.keys[:4]))
            times.append(now_ms + skew + random.randrange(3))
        made = Batch(
            partition, self.name, number, values, keys, times, acks, idempotent,
            incarnation=self.model.incarnation,
        )
        partition.add(made)
        sequence = -1
        if idempotent:
            sequence = self.sequences.get(partition, 0)
            self.sequences[partition] = sequence + count
        data = build_batch(
            [
                Record(timestamp=time, key=key, value=None, headers=[("id", value)])
                if value.startswith(TOMBSTONE) else Record(timestamp=time, key=key, value=value)
                for time, key, value in zip(times, keys, values, strict=True)
            ],
            codec=random.choice(CODECS),
            producer_id=self.id if idempotent else -1,
            producer_epoch=self.epoch if idempotent else -1,
            base_sequence=sequence,
            transactional=self.transactional is not None,
        )
        return made, data

    transactional: str | None = None

    def request(self, batch: Batch, data: bytes, version: int) -> ProduceRequest:
        made, topic = ProduceRequest.TopicData, batch.partition.topic
        part = [made.PartitionData(index=batch.partition.index, records=data)]
        batch.by_name = batch.by_name or version < 13
        named = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
        return ProduceRequest(
            transactional_id=self.transactional, acks=batch.acks, timeout_ms=30_000,
            topic_data=[made(**named, partition_data=part)],
        )

    async def send(
        self, batch: Batch, data: bytes, version: int, link: Link | None = None
    ) -> ErrorCode:
        """Try once to send a batch; the outcome is recorded in the batch."""
        answer = await self.session.call(self.request(batch, data, version), version, link)
        part = answer.responses[0].partition_responses[0]
        code = ErrorCode(part.error_code)
        topic = batch.partition.topic
        if code == ErrorCode.NONE:
            self.acked(batch, part.base_offset)
            batch.appended_ms = part.log_append_time_ms
        elif code in GONE and topic.state == LIVE:
            raise Violation(f"{batch.partition!r} is there, a produce is answered {code.name}")
        return code

    def acked(self, batch: Batch, base_offset: int) -> None:
        if batch.fate == ACKED and base_offset not in (-1, batch.base_offset):
            raise Violation(f"{batch.values} acked at {batch.base_offset} and {base_offset}")
        batch.fate, batch.base_offset = ACKED, base_offset

    def remembered(self) -> bool:
        """Whether the coordinator must still know the previous epoch, which is not kept in the
        log."""
        if not self.story.coordinators_stay:
            return False
        shaken = {"disk full", "io error"} & {*self.story.options.faults}
        if "transactional.id.expiration.ms" in self.story.options.settings:
            return False
        return self.since == self.model.incarnation and not shaken

    async def begin(self, timeout_ms: int = 5000, recovers: bool = False) -> bool:
        """Get a producer id; False if the run is over before that. With `recovers` the request
        names the present id and epoch (KIP-360)."""
        recovers = recovers and self.id >= 0
        request = InitProducerIdRequest(
            transactional_id=self.transactional, transaction_timeout_ms=timeout_ms,
            producer_id=self.id if recovers else -1, producer_epoch=self.epoch if recovers else -1,
        )
        while not self.story.over:
            with contextlib.suppress(Broken):
                answer = await self.session.call(request, self.random.choice((3, 4, 5)))
                code = ErrorCode(answer.error_code)
                if code == ErrorCode.NONE:
                    self.takes(answer.producer_id, answer.producer_epoch)
                    return True
                if recovers and code in {*FENCED, FORGOTTEN} and not self.remembered():
                    recovers, request.producer_id, request.producer_epoch = False, -1, -1
                    continue
                if code not in AGAIN:
                    raise Violation(f"InitProducerId of {self.name}: {code.name}")
            await asyncio.sleep(0.1)
        return False


    def takes(self, producer_id: int, epoch: int) -> None:
        """Take the id and the epoch of an answer to InitProducerId; no other producer may have
        both."""
        if producer_id == self.id and epoch <= self.epoch and self.story.coordinators_stay:
            raise Violation(f"{self.name} had epoch {self.epoch} of its id, and gets {epoch}")
        owner = self.model.producer_ids.get(producer_id)
        self.model.producer_ids[producer_id] = self.name
        if owner is not None and (owner, True) != (self.name, self.transactional is not None):
            raise Violation(f"{self.name} gets the producer id {producer_id} of {owner}")
        self.id, self.epoch = producer_id, epoch
        self.sequences.clear()
        self.since = self.model.incarnation


async def produce_plainly(story: Story, name: str) -> None:
    """Produce batches without a producer id. Each is sent once, and its fate may stay unknown."""
    producer = Producer(story, name)
    while not story.over:
        await asyncio.sleep(story.random.expovariate(1 / story.pace))
        # Sometimes several batches are sent at the same time.
        count = story.random.choice((1, 1, 1, 4))
        await asyncio.gather(*(produce_one(producer) for _ in range(count)))


async def produce_one(producer: Producer) -> None:
    """Send one batch once."""
    story, partition = producer.story, producer.choose()
    if partition is None:
        return
    acks = story.random.choice((0, 1, 1, -1))
    batch, data = producer.batch(partition, acks, False)
    version = story.random.choice((7, 7, 9, 11, 13))
    try:
        if acks == 0:
            batch.fate = UNKNOWN
            link = await producer.session.connected()
            link.send_only(producer.request(batch, data, version), version)
            return
        code = await producer.send(batch, data, version)
        if code != ErrorCode.NONE:
            # A refused batch is not in the log: a failed write is rolled back. After a timeout, or
            # a failure of the disk after the write, the batch may be in the log.
            batch.fate = REFUSED if code in GONE else UNKNOWN
    except Broken:
        batch.fate = UNKNOWN


async def produce_idempotently(story: Story, name: str) -> None:
    """Produce idempotently; a batch is repeated until it is acknowledged.

    Requests name topics by their ids: by name, a repeated batch could reach the next topic.
    """
    producer = Producer(story, name)
    if not await producer.begin():
        return
    while not story.over:
        await asyncio.sleep(story.random.expovariate(1 / story.pace))
        if story.random.random() < 0.05 and not await producer.begin():
            return                      # another producer follows, with an id of its own
        partition = producer.choose()
        if partition is None:
            continue
        # As in stock clients, up to five batches are in flight.
        count = story.random.choice((1, 1, 2, 5))
        flight = [producer.batch(partition, -1, True) for _ in range(count)]
        while flight:
            flight = await send_in_order(producer, flight)


async def send_in_order(
    producer: Producer, flight: list[tuple[Batch, bytes]]
) -> list[tuple[Batch, bytes]]:
    """Send batches of one partition without waiting in between; returns those to be sent again.

    All are sent on one connection, so that no batch overtakes an earlier one. If it did, a broker
    that does not know the producer would accept its sequence as the first one, as Kafka does, and
    refuse the earlier batches from then on.
    """
    story, first = producer.story, flight[0][0]
    partition = first.partition
    link = await producer.session.connected()
    sent = [producer.send(batch, data, 13, link) for batch, data in flight]
    if story.options.impatient and len(flight) == 1 and story.random.random() < TWICE_SHARE:
        # The batch is sent on a second connection, too, as after a time-out. Either answer counts.
        sent.append(producer.send(*flight[0], 13, await producer.other.connected()))
    codes = await asyncio.gather(*sent, return_exceptions=True)
    for code in codes:
        if isinstance(code, Violation):
            raise code
    for (batch, _), code in zip(flight, codes, strict=False):
        if isinstance(code, BaseException):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.fate = ACKED
        elif batch.fate != OPEN or code == ErrorCode.NONE:
            continue
        elif code in GONE or partition.topic.state != LIVE or story.over:
            batch.fate = UNKNOWN
        elif code not in AGAIN and (
            batch is first or code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ):
            raise Violation(f"{producer.name} at {partition!r}: {code.name}")
    if left := [each for each in flight if each[0].fate == OPEN]:
        await asyncio.sleep(0.2)
        return left
    return []


class Transactional(Producer):
    """A producer of transactions, by the first protocol or by that of KIP-890."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self.transactional = name
        # By the second protocol each transaction has an epoch of its own, which keeps it apart.
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
        """Repeat a request until the answer is final; raises Broken."""
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
        """Send one batch; False if the transaction must be given up."""
        made = await self.prepare(transaction)
        return made is not None and await self.deliver(*made)

    async def prepare(self, transaction: Transaction) -> tuple[Batch, bytes] | None:
        """Make a batch, and add its partition to the transaction; None if that is refused."""
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
        """Send a batch until the answer is final; whether the batch was accepted."""
        partition = batch.partition
        version = 12 if self.second else self.random.choice((7, 11))
        for _ in range(20):
            code = await self.send(batch, data, version)
            if partition.topic.state != LIVE:
                # Sent by name, it may have reached the next topic, with a sequence of this one.
                return False
            if code not in AGAIN:
                break
            await asyncio.sleep(0.05)
        return batch.fate == ACKED

    async def commit_offset(self, transaction: Transaction) -> bool:
        """Commit an offset of a group as a part of the transaction."""
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
        epoch, self.answer = self.epoch, None

        def code(answer: Any) -> int:
            if version >= 5 and answer.error_code == 0:
                self.id, self.epoch = answer.producer_id, answer.producer_epoch
                if self.epoch != epoch:
                    self.sequences.clear()
            return int(answer.error_code)

        return await self.ask(request, version, code)

    async def run_one(self) -> bool:
        """Run one transaction; False if the producer must start again."""
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
                return False                    # the producer stops, and comes back
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
        after the marker, it must not begin a transaction. The producer starts again, because it
        cannot know which sequence number is the next one."""
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
    """EndTxn while another process starts with the same transactional id. Once the other process
    has its epoch, no request of this one may be accepted. This producer then takes over the id."""
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
        raise Violation(f"a second {producer.name} is answered {ErrorCode(answer.error_code).name}")
    ended, (producer.id, producer.epoch) = (producer.id, producer.epoch), old
    await write_late(producer)
    producer.id, producer.epoch = ended
    producer.takes(answer.producer_id, answer.producer_epoch)
    if isinstance(code, BaseException):
        raise code
    return code


async def write_late(producer: Transactional) -> None:
    """Send one more batch by a producer whose transactional id belongs to another producer now."""
    partition = producer.choose()
    if partition is None:
        return
    batch, data = producer.batch(partition, -1, True)
    batch.transaction = Transaction(f"{producer.name}/late", ABORTED)
    with contextlib.suppress(Broken):
        code = await producer.send(batch, data, 12 if producer.second else 11)
        if code == ErrorCode.NONE:
            raise Violation(f"{partition!r}: a batch of {producer.name} was taken after its epoch")
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
