"""Cycles of a broker: load, an unannounced end, a start, and a check of what was promised.

The broker is a process of its own. The promises that it made before its end are compared with what
the next process serves. Then the load continues against the next process.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ottla.wire.batch import batches
from tests.broker.crashes import load
from tests.broker.crashes.load import (
    GROUPS,
    IDEMPOTENT,
    MONEY,
    MOVERS,
    PLAIN,
    TOPIC,
    Committer,
    IdempotentProducer,
    Mover,
    PlainProducer,
    Target,
    Worker,
    committed_offset,
)
from tests.broker.produce_fetch import fetch_request
from tests.broker.running import TIMEOUT_SECONDS, WireClient
from tests.waiting import pause, until

T = TypeVar("T")

READ_BYTES = 8 << 20
READ_COMMITTED = 1
UNDER_WAY = 3  # promises that each worker is given before the broker may end
PAUSE_SECONDS_MAX = 0.1
READ_AGAIN_SECONDS = 0.02
LINES_TOLD = 60
ABORT, COMMIT = 0, 1


class BrokerProcess:
    """`ottla server start`, which can be killed and started again on the same data."""

    def __init__(self, data: Path, **overrides: object) -> None:
        self.data, self.overrides = data, overrides
        self.said: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> tuple[str, int]:
        """Start the broker; returns its address once it serves."""
        settings = {
            "log.dirs": self.data,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
            **{name.replace("_", "."): value for name, value in self.overrides.items()},
        }
        command = [sys.executable, "-m", "ottla.broker.main", "server", "start"]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready:
            raise AssertionError(f"the broker does not start: {self.process.communicate()[1]}")
        # A thread reads the log output from here on, so that the broker never waits for the pipe.
        self.drain = threading.Thread(target=self._drain, args=(self.process,), daemon=True)
        self.drain.start()
        return "127.0.0.1", int(ready.partition("127.0.0.1:")[2].partition(",")[0])

    def _drain(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.said.extend(process.stderr)

    def ended(self) -> int:
        """Wait until the broker has ended by itself; returns its exit status."""
        assert self.process is not None
        status = self.process.wait(TIMEOUT_SECONDS)
        self.drain.join(TIMEOUT_SECONDS)
        self.process = None
        return status

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(TIMEOUT_SECONDS)
            self.process = None


class Promises:
    """The promises made to the workers up to one moment."""

    def __init__(self, cycles: Cycles) -> None:
        self.records = [each.promised for each in cycles.producers]
        self.plain = dict(cycles.plain.acknowledged)
        self.offsets = [each.acknowledged for each in cycles.committers]
        self.transactions = list(cycles.mover.committed)


class Cycles:
    """A broker under the whole load. `checks_plain`: whether records with acks=1 must survive, too.
    """

    def __init__(self, broker: BrokerProcess, seed: int, checks_plain: bool = True) -> None:
        self.broker, self.random, self.checks_plain = broker, random.Random(seed), checks_plain
        self.target = Target()
        self.producers = [
            IdempotentProducer(self.target, at, self.random.randrange(1 << 30))
            for at in IDEMPOTENT
        ]
        self.plain, self.mover = PlainProducer(self.target), Mover(self.target)
        self.committers = [Committer(self.target, group) for group in GROUPS]
        self.workers: list[Worker] = [
            *self.producers, self.plain, self.mover, *self.committers
        ]
        self.seen: dict[int, list[bytes | None]] = {at: [] for at in range(load.PARTITIONS)}

    def __enter__(self) -> Cycles:
        address = self.broker.start()
        with WireClient(address) as client:
            load.create_topics(client)
        self.target.is_up(address)
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.target.stopping.set()
        for worker in self.workers:
            worker.join(TIMEOUT_SECONDS)
        self.broker.kill()

    def let_them_work(self) -> None:
        """Wait until each worker has some promises, and for a random time more."""
        wanted = [worker.kept + UNDER_WAY for worker in self.workers]

        def all_have_some() -> bool:
            self.fail_with_the_workers()
            return all(w.kept >= count for w, count in zip(self.workers, wanted, strict=True))

        until(
            all_have_some,
            lambda: f"promises of each: {({w.name: w.kept for w in self.workers})}",
            3 * TIMEOUT_SECONDS,
            between=0.005,
        )
        pause(self.random.uniform(0, PAUSE_SECONDS_MAX))

    def fail_with_the_workers(self) -> None:
        if self.target.errors:
            error = self.target.errors[0]
            error.add_note("the broker said: " + "".join(self.broker.said[-LINES_TOLD:]))
            raise error

    def cycle(self, end: Callable[[], None]) -> None:
        """Load the broker, let `end` end it, start it, and check everything before the load
        continues."""
        self.let_them_work()
        end()
        self.target.is_down()
        self.broker.kill()
        promises = Promises(self)
        address = self.broker.start()
        self.check(address, promises)
        self.target.is_up(address)

    def finish(self) -> int:
        """End the load and check everything once more; returns the number of promises."""
        self.let_them_work()
        self.target.stopping.set()
        for worker in self.workers:
            worker.join(TIMEOUT_SECONDS)
        self.fail_with_the_workers()
        assert self.target.address is not None
        before, self.seen = self.seen, {at: [] for at in self.seen}
        self.check(self.target.address, Promises(self))
        for partition in IDEMPOTENT:
            assert self.seen[partition][: len(before[partition])] == before[partition]
        return sum(worker.kept for worker in self.workers)

    def check(self, address: tuple[str, int], promises: Promises) -> None:
        """Check that everything promised is there, once, in its order."""
        with WireClient(address) as client:
            for producer, promised in zip(self.producers, promises.records, strict=True):
                found = self.read(client, producer.partition)
                producer.check(found, promised)
            if self.checks_plain:
                self.plain.check(self.read(client, PLAIN), promises.plain)
            for committer, promised in zip(self.committers, promises.offsets, strict=True):
                offset = committed_offset(client, committer.group, TOPIC)
                assert promised <= offset <= committer.sent, (promised, offset, committer.sent)
            committed = set(promises.transactions)
            money = in_time(lambda: self.money(client), lambda found: committed <= set(found[0]))
            self.mover.check(money, promises.transactions)
            last = max(committed, default=0)
            moved = in_time(lambda: committed_offset(client, MOVERS, MONEY), lambda at: at >= last)
            assert moved >= last

    def money(self, client: WireClient) -> list[list[int]]:
        """The transactions in each of the two partitions, without the last ones if these have
        reached only one partition."""
        found = [read_committed(client, at) for at in (0, 1)]
        shorter = min(map(len, found))
        return [each[:shorter] for each in found]

    def read(self, client: WireClient, partition: int) -> list[bytes | None]:
        """All records of a partition; those read before are not read again."""
        found = self.seen[partition]
        while True:
            answer = client.call(
                fetch_request(
                    TOPIC, len(found), partition=partition,
                    max_bytes=READ_BYTES, partition_max_bytes=READ_BYTES,
                ),
                11,
            ).responses[0].partitions[0]
            assert answer.error_code == 0, answer
            if not answer.records:
                return found
            for view in batches(answer.records):
                assert view.base_offset <= len(found), f"offset {len(found)} is missing"
                found += [r.value for r in view.records()][len(found) - view.base_offset :]


def in_time(read: Callable[[], T], good: Callable[[T], bool]) -> T:
    """What `read` returns once that is `good`, or when the time is up.

    A commit is promised when the coordinator's decision is safe (KIP-98). The next broker process
    may write the markers that show the commit, in each partition and for the offsets, once it has
    loaded.
    """
    for _ in range(int(TIMEOUT_SECONDS / READ_AGAIN_SECONDS)):
        found = read()
        if good(found):
            break
        pause(READ_AGAIN_SECONDS)
    return found


def read_committed(client: WireClient, partition: int) -> list[int]:
    """The transactions that a reader of committed records sees in a partition."""
    found: list[int] = []
    offset = 0
    while True:
        request = fetch_request(
            MONEY, offset, partition=partition, max_bytes=READ_BYTES,
            partition_max_bytes=READ_BYTES, isolation_level=READ_COMMITTED,
        )
        answer = client.call(request, 11).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        if not answer.records:
            return found
        found += committed_in(answer, offset)
        for view in batches(answer.records):
            offset = view.next_offset


def committed_in(answer: Any, offset: int) -> list[int]:
    """The transactions that a client finds in one answer: it drops batches of aborted ones."""
    found = []
    waiting = sorted(
        (each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()
    )
    aborted = set()
    for view in batches(answer.records):
        while waiting and waiting[0][0] <= view.last_offset:
            aborted.add(waiting.pop(0)[1])
        if view.control:
            key = view.records()[0].key or b""
            if key[3] == ABORT:
                aborted.discard(view.producer_id)
        elif view.producer_id not in aborted and view.base_offset >= offset:
            found += [int(record.value or b"") for record in view.records()]
    return found
