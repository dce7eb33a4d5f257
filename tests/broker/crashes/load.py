"""A load on a broker that is killed, with every kind of promise. The promises are recorded.

Each worker is a thread with one connection. If the connection ends, the worker opens another one,
to the address that the broker has then. A worker records a promise when it gets the answer.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import Any

from ottla.groups.records import Producer
from ottla.wire.errors import RETRIABLE, ErrorCode
from ottla.wire.messages import (
    CreateTopicsRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.broker.produce_fetch import batch, produce_request
from tests.broker.running import TIMEOUT_SECONDS, WireClient
from tests.broker.transactions import add, add_offsets, commit_offset, end, find_code, init, write
from tests.waiting import pause

TOPIC, MONEY = "survivors", "money"
PARTITIONS = 4
IDEMPOTENT, PLAIN = (0, 1), 2
"""Each of two partitions has an idempotent producer with acks=all. One partition has a producer
with acks=1, and one has none."""
IN_FLIGHT = 5
RECORDS_MAX = 4
PAUSE_SECONDS = 0.01
GROUPS = ("readers", "writers")
MOVERS = "movers"
KEY = "mover"


class TryAgain(Exception):
    """The broker is not ready: connect again."""


def settle(code: int) -> None:
    """Return if an answer is good; a retriable code ends the connection, others fail the test."""
    if code in RETRIABLE or code in (ErrorCode.NOT_COORDINATOR, ErrorCode.PRODUCER_FENCED):
        raise TryAgain
    assert code == 0, ErrorCode(code)


class Target:
    """The broker's current address."""

    def __init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self.up, self.stopping = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []

    def is_up(self, address: tuple[str, int]) -> None:
        self.address = address
        self.up.set()

    def is_down(self) -> None:
        self.up.clear()


class Worker(threading.Thread):
    """Works against `target` until it is stopped; `kept` counts the promises it has received."""

    def __init__(self, target: Target) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.target, self.kept = target, 0

    def run(self) -> None:
        try:
            while not self.target.stopping.is_set():
                if not self.target.up.wait(PAUSE_SECONDS):
                    continue
                assert self.target.address is not None
                try:
                    with WireClient(self.target.address) as client:
                        self.work(client)
                except (OSError, TryAgain):
                    self.target.stopping.wait(PAUSE_SECONDS)
        except BaseException as error:
            self.target.errors.append(error)
            raise

    def work(self, client: WireClient) -> None:
        raise AssertionError("a worker says what it does")

    @property
    def stopping(self) -> bool:
        return self.target.stopping.is_set()


class IdempotentProducer(Worker):
    """Batches with acks=all, five in flight; unanswered batches are sent again in order."""

    def __init__(self, target: Target, partition: int, seed: int) -> None:
        super().__init__(target)
        self.partition, self.random = partition, random.Random(seed)
        self.producer: Producer | None = None
        self.firsts = [0]
        self.acknowledged: list[int] = []

    def value(self, number: int) -> bytes:
        return b"%d-%07d" % (self.partition, number) * (1 + number % 97)

    def request(self, index: int) -> Any:
        """The batch with this number, built on first use."""
        if index + 1 == len(self.firsts):
            self.firsts.append(self.firsts[-1] + self.random.randrange(1, RECORDS_MAX + 1))
        numbers = range(self.firsts[index], self.firsts[index + 1])
        assert self.producer is not None
        records = batch(
            *map(self.value, numbers),
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.firsts[index],
        )
        return produce_request(TOPIC, records, partition=self.partition)

    def work(self, client: WireClient) -> None:
        if self.producer is None:
            given = client.call(InitProducerIdRequest(transactional_id=None), 4)
            settle(given.error_code)
            self.producer = Producer(given.producer_id, given.producer_epoch)
        sent: deque[Any] = deque()
        following = len(self.acknowledged)
        while sent or not self.stopping:
            while len(sent) < IN_FLIGHT and not self.stopping:
                sent.append(client.send(self.request(following), 9))
                following += 1
            if sent:
                answer = client.answer(sent.popleft()).responses[0].partition_responses[0]
                settle(answer.error_code)
                self.acknowledged.append(answer.base_offset)
                self.kept += 1

    @property
    def promised(self) -> int:
        """The number of acknowledged records. They have the offsets from 0 on."""
        return self.firsts[len(self.acknowledged)]

    def check(self, found: list[bytes | None], promised: int) -> None:
        """Check that the records are there once and in order, from the first one on, and that no
        promised one is missing."""
        assert len(found) >= promised, f"{promised} acknowledged, {len(found)} are there"
        for number, value in enumerate(found):
            assert value == self.value(number), f"{self.partition}: record {number} is {value!r}"
        for index, offset in enumerate(list(self.acknowledged)):
            assert offset == self.firsts[index], "an acknowledgement named another offset"


class PlainProducer(Worker):
    """Records with acks=1, each sent once. An unanswered record may be there or not."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.sent = 0
        self.acknowledged: dict[int, int] = {}

    def work(self, client: WireClient) -> None:
        sent: deque[Any] = deque()
        while sent or not self.stopping:
            while len(sent) < IN_FLIGHT and not self.stopping:
                number, self.sent = self.sent, self.sent + 1
                request = produce_request(
                    TOPIC, batch(b"%09d" % number), partition=PLAIN, acks=1
                )
                sent.append((number, client.send(request, 9)))
            if sent:
                number, waiting = sent.popleft()
                answer = client.answer(waiting).responses[0].partition_responses[0]
                settle(answer.error_code)
                self.acknowledged[answer.base_offset] = number
                self.kept += 1

    def check(self, found: list[bytes | None], promised: dict[int, int]) -> None:
        """Check that no record is there twice or out of order, and that promised records are at
        their offsets."""
        numbers = [int(value or b"") for value in found]
        assert numbers == sorted(set(numbers)), "a record is there twice, or out of order"
        for offset, number in promised.items():
            assert offset < len(numbers), f"offset {offset}, acknowledged, is lost"
            assert numbers[offset] == number, f"offset {offset} has another record"


class Committer(Worker):
    """Commits increasing offsets of a group without members."""

    def __init__(self, target: Target, group: str) -> None:
        super().__init__(target)
        self.group, self.sent, self.acknowledged = group, 0, 0

    def work(self, client: WireClient) -> None:
        settle(find_code(client, self.group, 0))
        made = OffsetCommitRequest.Topic
        while not self.stopping:
            self.sent += 1
            partition = made.Partition(
                partition_index=0, committed_offset=self.sent, committed_metadata=""
            )
            request = OffsetCommitRequest(
                group_id=self.group, generation_id_or_member_epoch=-1,
                topics=[made(name=TOPIC, partitions=[partition])],
            )
            settle(client.call(request, 7).topics[0].partitions[0].error_code)
            self.acknowledged = self.sent
            self.kept += 1


class Mover(Worker):
    """Transactions over two partitions and a group's offset; every fourth is aborted."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.number = 0
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []

    def work(self, client: WireClient) -> None:
        settle(find_code(client, KEY))
        settle(find_code(client, MOVERS, 0))
        producer = init(client, KEY)
        if not isinstance(producer, Producer):
            settle(producer)
        sequence = 0
        while not self.stopping:
            self.number += 1
            # Until the worker requests the end, a new InitProducerId would abort the transaction.
            self.aborted.append(self.number)
            self.fill(client, producer, sequence)
            sequence += 1
            if self.number % 4:
                self.unknown.append(self.aborted.pop())
            answer = end(client, KEY, producer, bool(self.number % 4))
            if not isinstance(answer, Producer):
                settle(answer)
            if self.number % 4:
                self.committed.append(self.unknown.pop())
            self.kept += 1

    def fill(self, client: WireClient, producer: Producer, sequence: int) -> None:
        """Run one transaction, except for the request that ends it."""
        while True:
            codes = add(client, KEY, producer, MONEY, 0, 1)
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes:
                break
            self.target.stopping.wait(PAUSE_SECONDS)
        for code in codes:
            settle(code)
        settle(add_offsets(client, KEY, producer, MOVERS, 3))
        for partition in (0, 1):
            value = b"%d" % self.number
            settle(write(client, KEY, producer, MONEY, value, sequence=sequence,
                         partition=partition))
        settle(commit_offset(client, KEY, producer, MOVERS, MONEY, self.number, 3))

    def check(self, found: list[list[int]], committed: list[int]) -> None:
        """Check that each transaction is there as a whole and once, or not at all, and that all
        committed ones are there."""
        assert found[0] == found[1], "a transaction is torn"
        assert found[0] == sorted(set(found[0])), "a transaction is there twice, or out of order"
        lost = set(committed) - set(found[0])
        assert not lost, f"transactions {sorted(lost)[:5]} were committed and are lost"
        assert not set(found[0]) & set(self.aborted), "an aborted transaction is read"


def create_topics(client: WireClient) -> None:
    """Create the topics that the workers write to."""
    made = CreateTopicsRequest.Topic
    topics = [
        made(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1),
        made(name=MONEY, num_partitions=2, replication_factor=1),
    ]
    answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    assert all(topic.error_code == 0 for topic in answer.topics), answer


def committed_offset(client: WireClient, group: str, topic: str) -> int:
    """A group's committed offset of partition 0, once its coordinator has loaded."""
    made = OffsetFetchRequest.Group
    request = OffsetFetchRequest(
        groups=[made(group_id=group, topics=[made.Topic(name=topic, partition_indexes=[0])])]
    )
    for _ in range(int(TIMEOUT_SECONDS / PAUSE_SECONDS)):
        answer = client.call(request, 8).groups[0]
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        if code == 0:
            return int(answer.topics[0].partitions[0].committed_offset)
        assert code in RETRIABLE or code == ErrorCode.NOT_COORDINATOR, ErrorCode(code)
        pause(PAUSE_SECONDS)
    raise AssertionError(f"the coordinator of {group} does not come back")
