"""Clients that produce, with or without idempotence, with every value of acks and every codec."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    InitProducerIdRequest,
    ProduceRequest,
)
from ottla.wire.records import Record, build_batch
from tests.simulation.model import (
    ACKED,
    LIVE,
    OPEN,
    REFUSED,
    TOMBSTONE,
    UNKNOWN,
    Batch,
    PartitionModel,
)
from tests.simulation.network import Broken, Link
from tests.simulation.options import SHAKEN
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
        """Send a batch once; returns the error code. If the batch is acknowledged, this is recorded
        in it."""
        answer = await self.session.call(self.request(batch, data, version), version, link)
        part = answer.responses[0].partition_responses[0]
        code = ErrorCode(part.error_code)
        topic = batch.partition.topic
        if code == ErrorCode.NONE:
            self.acked(batch, part.base_offset)
            batch.appended_ms = part.log_append_time_ms
        elif code in GONE and topic.state == LIVE:
            raise Violation(
                f"partition {batch.partition!r} exists, but a produce request is answered"
                f" {code.name}"
            )
        return code

    def acked(self, batch: Batch, base_offset: int) -> None:
        if batch.fate == ACKED and base_offset not in (-1, batch.base_offset):
            raise Violation(
                f"partition {batch.partition!r}: a batch was acknowledged at offset"
                f" {batch.base_offset} and at offset {base_offset}: {batch.values}"
            )
        batch.fate, batch.base_offset = ACKED, base_offset

    def remembered(self) -> bool:
        """Whether the coordinator must still know the previous epoch, which is not kept in the
        log."""
        if not self.story.coordinators_stay:
            return False
        shaken = SHAKEN & {*self.story.options.faults}
        if "transactional.id.expiration.ms" in self.story.options.settings:
            return False
        return self.since == self.model.incarnation and not shaken

    async def begin(self, timeout_ms: int = 5000, recovers: bool = False) -> bool:
        """Get a producer id; returns False if the run is over before that. With `recovers` the
        request names the present id and epoch (KIP-360)."""
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
                    raise Violation(
                        f"InitProducerId of producer {self.name!r} is answered {code.name}"
                    )
            await asyncio.sleep(0.1)
        return False


    def takes(self, producer_id: int, epoch: int) -> None:
        """Take the id and the epoch of an answer to InitProducerId. No other producer may have had
        this id. Without a transactional id, each answer must have a new id."""
        if producer_id == self.id and epoch <= self.epoch and self.story.coordinators_stay:
            raise Violation(
                f"producer {self.name!r} had epoch {self.epoch} of producer id {producer_id}, and"
                f" gets epoch {epoch}"
            )
        owner = self.model.producer_ids.get(producer_id)
        self.model.producer_ids[producer_id] = self.name
        if owner is not None and (owner, True) != (self.name, self.transactional is not None):
            raise Violation(
                f"producer {self.name!r} gets producer id {producer_id}, which producer {owner!r}"
                " has"
            )
        self.id, self.epoch = producer_id, epoch
        self.sequences.clear()
        self.since = self.model.incarnation


async def produce_plainly(story: Story, name: str) -> None:
    """Produce batches without a producer id. Each is sent once, and its fate may stay unknown."""
    producer = Producer(story, name)
    while not story.over:
        await asyncio.sleep(story.random.expovariate(1 / story.pace))
        # Sometimes send several batches at the same time.
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
            # After an error of GONE the batch is not in the log. After another error, such as a
            # timeout or a failure of the disk after the write, the batch may be in the log.
            batch.fate = REFUSED if code in GONE else UNKNOWN
    except Broken:
        batch.fate = UNKNOWN


async def produce_idempotently(story: Story, name: str) -> None:
    """Produce with idempotence, and repeat each batch until it is acknowledged.

    Requests name topics by id. If they named a topic by its name, a repeated batch could reach the
    next topic of this name.
    """
    producer = Producer(story, name)
    if not await producer.begin():
        return
    while not story.over:
        await asyncio.sleep(story.random.expovariate(1 / story.pace))
        if story.random.random() < 0.05 and not await producer.begin():
            return                      # the run ended before the answer with a new id
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
    """Send batches of one partition without waiting in between; returns the batches that must be
    sent again.

    All batches are sent on one connection, so that no batch overtakes an earlier batch. If a later
    batch came first, a broker that does not know the producer would accept it as the producer's
    first batch, as Kafka does, and refuse the earlier batches from then on.
    """
    story, first = producer.story, flight[0][0]
    partition = first.partition
    link = await producer.session.connected()
    sent = [producer.send(batch, data, 13, link) for batch, data in flight]
    if story.options.impatient and len(flight) == 1 and story.random.random() < TWICE_SHARE:
        # Send the batch on a second connection too, as after a time-out. Either answer may
        # acknowledge it.
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
            raise Violation(
                f"a batch of producer {producer.name!r} for {partition!r} is answered {code.name}"
            )
    if left := [each for each in flight if each[0].fate == OPEN]:
        await asyncio.sleep(0.2)
        return left
    return []
