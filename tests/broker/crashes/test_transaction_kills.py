"""kill -9 with transactions in flight: the first read after the start sees every acknowledged
commit, all other transactions are completed or aborted, and the last stable offsets move on.

Two producers use the protocol before KIP-890, two use the protocol of KIP-890, and another one
leaves its transactions open. `OTTLA_KILLS=100` sets the number of kills. With `-s` the test prints
how soon the commits were read.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from functools import partial
from pathlib import Path

import pytest

from ottla.groups.records import Producer
from ottla.wire.batch import batches
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest
from tests.broker.crashes.cycles import READ_COMMITTED, BrokerProcess, committed_in
from tests.broker.crashes.load import (
    PAUSE_SECONDS,
    Target,
    TryAgain,
    Worker,
    committed_offset,
    settle,
)
from tests.broker.produce_fetch import fetch
from tests.broker.running import TIMEOUT_SECONDS, WireClient
from tests.broker.transactions import (
    add,
    add_offsets,
    commit_offset,
    end,
    end_offset,
    find,
    init,
    write,
)
from tests.waiting import pause, until

KILLS = int(os.environ.get("OTTLA_KILLS", "6"))
MOVERS, UNDER_WAY = 4, 3
SHARED = "shared"
LEFT_OPEN_MS = 300


class Mover(Worker):
    """Commits and aborts transactions over two partitions of its own, a shared one and a group."""

    def __init__(self, target: Target, number: int) -> None:
        super().__init__(target)
        self.name = self.topic = self.group = f"mover-{number}"
        self.random = random.Random(number)
        self.implicit = number % 2 == 1  # KIP-890: Produce adds partitions
        self.number = 0
        self.committed: list[int] = []
        self.aborted: list[int] = []

    def work(self, client: WireClient) -> None:
        find(client, self.name)
        find(client, self.group, 0)
        producer, sequence = init(client, self.name), 0
        if not isinstance(producer, Producer):
            settle(producer)
        while not self.stopping:
            self.number += 1
            self.aborted.append(self.number)
            self.fill(client, producer, sequence)
            commits = self.random.random() < 0.75
            if commits:
                self.aborted.pop()
            answer = end(client, self.name, producer, commits, 5 if self.implicit else 3)
            if not isinstance(answer, Producer):
                settle(answer)
            sequence = sequence + 1 if answer == producer else 0
            producer = answer
            if commits:
                self.committed.append(self.number)
            self.kept += 1

    def fill(self, client: WireClient, producer: Producer, sequence: int) -> None:
        """Run one transaction, except for the request that ends it."""
        value = b"%d" % (self.number * MOVERS + int(self.name[-1]))
        where = [(self.topic, 0), (self.topic, 1), (SHARED, 0)]
        if not self.implicit:
            for topic, partition in where:
                settle(add(client, self.name, producer, topic, partition)[0])
            settle(add_offsets(client, self.name, producer, self.group, 3))
        for topic, partition in where:
            settle(
                write(
                    client, self.name, producer, topic, value, sequence=sequence,
                    partition=partition, version=12 if self.implicit else 11,
                )
            )
        version = 5 if self.implicit else 3
        settle(
            commit_offset(
                client, self.name, producer, self.group, self.topic, self.number, version
            )
        )


class Leaver(Worker):
    """Begins transactions and never ends them."""

    def work(self, client: WireClient) -> None:
        self.number = getattr(self, "number", 0) + 1
        key = f"leaver-{self.number}"
        find(client, key)
        producer = init(client, key, timeout_ms=LEFT_OPEN_MS)
        if not isinstance(producer, Producer):
            settle(producer)
        code = write(client, key, producer, "left", b"open", version=12)
        if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTABLE):
            raise TryAgain  # it timed out before the record was stored
        settle(code)
        self.kept += 1


class Reader:
    """Reads the committed records of a partition, through every restart."""

    def __init__(self, topic: str, partition: int = 0) -> None:
        self.topic, self.partition, self.offset = topic, partition, 0
        self.found: list[int] = []

    def read(self, client: WireClient) -> list[int]:
        """Read on; returns all numbers that have been visible so far."""
        while True:
            answer = fetch(
                client, self.topic, self.offset, partition=self.partition,
                isolation_level=READ_COMMITTED,
            )
            assert answer.error_code == 0, (self.topic, ErrorCode(answer.error_code))
            if not answer.records:
                return self.found
            self.found += committed_in(answer, self.offset)
            self.offset = max(view.next_offset for view in batches(answer.records))


def is_stable(client: WireClient, topic: str, partition: int = 0) -> bool:
    """Whether no transaction is open in a partition."""
    stable = end_offset(client, topic, READ_COMMITTED, partition)
    return stable == end_offset(client, topic, 0, partition)


def create_topics(client: WireClient) -> None:
    made = CreateTopicsRequest.Topic
    topics = [
        made(name=name, num_partitions=2, replication_factor=1)
        for name in (SHARED, "left", *(f"mover-{n}" for n in range(MOVERS)))
    ]
    client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)


class Bank:
    """The producers, the answers they received, and what readers see."""

    def __init__(self) -> None:
        self.target, self.random = Target(), random.Random(KILLS)
        self.movers = [Mover(self.target, number) for number in range(MOVERS)]
        self.workers = [*self.movers, Leaver(self.target)]
        self.readers = {mover: (Reader(mover.topic, 0), Reader(mover.topic, 1))
                        for mover in self.movers}  # fmt: skip
        self.shared = Reader(SHARED)

    def keep_promises(self) -> None:
        """Wait until every producer has some more promises, and for a random time more."""
        wanted = [worker.kept + UNDER_WAY for worker in self.workers]

        def all_have_one() -> bool:
            assert not self.target.errors, self.target.errors
            return all(w.kept >= count for w, count in zip(self.workers, wanted, strict=True))

        until(
            all_have_one,
            lambda: f"promises of each: {({w.name: w.kept for w in self.workers})}",
            3 * TIMEOUT_SECONDS,
            between=PAUSE_SECONDS,
        )
        pause(self.random.uniform(0, 0.05))

    def check(self, client: WireClient, told: dict[Mover, list[int]]) -> None:
        """Check that the first read shows acknowledged transactions as a whole, each once, and no
        aborted ones."""
        for mover, numbers in told.items():
            first, second = ([n // MOVERS for n in r.read(client)] for r in self.readers[mover])
            for found in (first, second):
                assert not set(numbers) - set(found), f"{mover.name}: acknowledged, not visible"
                assert found == sorted(set(found)), f"{mover.name}: doubled, or out of order"
                assert not set(found) & set(mover.aborted), f"{mover.name}: aborted, but visible"
            # A commit that was under way may end between the two reads, in one partition first.
            shorter = min(len(first), len(second))
            assert first[:shorter] == second[:shorter], f"{mover.name}: torn"

    def told(self) -> dict[Mover, list[int]]:
        return {mover: list(mover.committed) for mover in self.movers}


@pytest.mark.timeout(120 + 10 * KILLS)
def test_kill_9_hides_no_acknowledged_commit_and_leaves_no_transaction_open(
    tmp_path: Path,
) -> None:
    broker, bank, visible_ms = BrokerProcess(tmp_path / "data"), Bank(), []
    try:
        address = broker.start()
        with WireClient(address) as client:
            create_topics(client)
        for worker in bank.workers:
            worker.start()
        for _ in range(KILLS):
            bank.target.is_up(address)
            bank.keep_promises()
            bank.target.is_down()
            broker.kill()
            told = bank.told()
            address = broker.start()
            began = time.monotonic()
            with WireClient(address) as client:
                bank.check(client, told)
            visible_ms.append((time.monotonic() - began) * 1000)
        bank.target.is_up(address)
        bank.keep_promises()
        bank.target.stopping.set()
        for worker in bank.workers:
            worker.join(TIMEOUT_SECONDS)
        assert not bank.target.errors, bank.target.errors
        with WireClient(address) as client:
            see_that_all_has_ended(client, bank)
    finally:
        bank.target.stopping.set()
        broker.kill()
    print(
        f"{KILLS} kills, {sum(len(m.committed) for m in bank.movers)} commits: read after a start "
        f"within {statistics.median(visible_ms):.0f} ms, at most {max(visible_ms):.0f} ms"
    )


def see_that_all_has_ended(client: WireClient, bank: Bank) -> None:
    """Check that all transactions end, and that every acknowledged one is there, also in the shared
    topic."""
    where = [(mover.topic, at) for mover in bank.movers for at in (0, 1)]
    for topic, partition in [*where, (SHARED, 0), ("left", 0)]:
        until(
            partial(is_stable, client, topic, partition),
            f"the end of the transaction in {topic}-{partition}",
            TIMEOUT_SECONDS,
            between=PAUSE_SECONDS,
        )
    bank.check(client, bank.told())
    shared = bank.shared.read(client)
    assert len(shared) == len(set(shared))
    for number, mover in enumerate(bank.movers):
        own = [n for n in shared if n % MOVERS == number]
        assert own == bank.readers[mover][0].found == bank.readers[mover][1].found
        assert committed_offset(client, mover.group, mover.topic) == own[-1] // MOVERS
    left = Reader("left")
    assert left.read(client) == [] and left.offset > 0, "what was left open is aborted"
