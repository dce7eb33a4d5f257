"""A test bench for a transaction coordinator: the real runtime over a log in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.settings import TransactionSettings
from ottla.groups.shard_runtime import Committed
from ottla.groups.transactions.errors import NeedsProducerId
from ottla.groups.transactions.markers import MarkerWritten, TransactionMarker
from ottla.groups.transactions.records import (
    TopicIndex,
    TransactionRecord,
    TransactionState,
    TransactionValue,
    decode_record,
    encode_record,
)
from ottla.groups.transactions.runtime import TransactionRuntime
from ottla.groups.transactions.shard import End, Initialise
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.fakes import FakeClock
from tests.groups.compacting import compacted

COORDINATOR_EPOCH = 3
A, B, C = ("a", 0), ("b", 1), ("__consumer_offsets", 7)
OK = ErrorCode.NONE
S = TransactionState


class TransactionBench:
    """Runs a coordinator over a log in memory, which has the bytes of its records. `crash` restarts
    the coordinator from these bytes."""

    def __init__(self, replicated: bool = False, **settings: Any) -> None:
        self.replicated = replicated
        self.settings = TransactionSettings(**settings)
        self.clock = FakeClock()
        self.log: list[tuple[int, tuple[bytes, bytes | None]]] = []
        self.durable = 0
        """Records of the log that a power cut leaves."""
        self.uncommitted: list[Committed] = []
        self.hold_commits = self.committing = False
        self.refusal: Exception | None = None
        self.markers: list[tuple[TopicIndex, TransactionMarker]] = []
        self.held_markers: list[tuple[TopicIndex, MarkerWritten]] = []
        self.hold_markers = False
        self.marker_errors: dict[TopicIndex, ErrorCode | Exception] = {}
        self.next_id = 1000
        self.start()

    def start(self) -> None:
        self.runtime = TransactionRuntime(
            self.settings, self.clock, self, self.write_marker, replicated=self.replicated,
        )
        for partition in range(self.settings.transaction_state_log_num_partitions):
            shard = self.runtime.begin_load(partition, COORDINATOR_EPOCH)
            for index, encoded in self.log:
                if index == partition and (record := decode_record(*encoded)) is not None:
                    shard.replay(record)
            self.runtime.adopt(shard)

    def crash(self, lost: int = 0) -> None:
        """Restart after a kill -9, or after a power cut, which removes the last `lost` records
        except those that were committed."""
        del self.log[max(self.durable, len(self.log) - lost) :]
        self.durable = len(self.log)
        self.uncommitted, self.held_markers, self.committing = [], [], False
        self.start()

    def compact(self, seed: int) -> None:
        """Compact the log, restart from it, and check that the state is the same."""
        self.crash()
        before = [shard.transactions for shard in self.runtime.shards()]
        chance = random.Random(seed)
        indexes = {index for index, _ in self.log}
        self.log = [
            (index, entry)
            for index in indexes
            for entry, _ in compacted([(e, -1) for i, e in self.log if i == index], chance)
        ]
        self.crash()
        assert [shard.transactions for shard in self.runtime.shards()] == before

    def append(
        self, partition: int, records: list[TransactionRecord], producer: Producer, done: Committed
    ) -> None:
        assert producer == NO_PRODUCER
        if self.refusal is not None:
            raise self.refusal
        self.log += [(partition, encode_record(record)) for record in records]
        self.uncommitted.append(done)
        if not self.hold_commits:
            self.commit_all()

    def encode(self, record: TransactionRecord) -> TransactionRecord:
        return record                                   # `append` encodes

    def reload(self, partition: int) -> None:
        """Never called: only a power cut loses appends here."""

    def wake(self, at_ms: int) -> None:
        """Not needed: `wait` asks for the next timer."""

    def commit_all(self) -> None:
        """Report all appends as committed, as after a flush. Appends that are made meanwhile are
        reported last."""
        if self.committing:
            return
        self.committing = True
        while self.uncommitted:
            self.durable = len(self.log)
            self.uncommitted.pop(0)(None)
        self.committing = False

    def write_marker(
        self, partition: TopicIndex, marker: TransactionMarker, done: MarkerWritten
    ) -> None:
        error = self.marker_errors.get(partition)
        if error is not None:
            raise error if isinstance(error, Exception) else ProtocolError("refused", error)
        if self.hold_markers:
            self.held_markers.append((partition, done))
        else:
            done(None)
        self.markers.append((partition, marker))

    def write_held_markers(self) -> None:
        held, self.held_markers = self.held_markers, []
        for _, done in held:
            done(None)

    def wait(self, ms: int) -> None:
        """Let time pass, with every timer firing at its own moment."""
        end_ms = self.clock.elapsed_ms + ms
        while (at_ms := self.runtime.next_timer_ms()) is not None and at_ms <= end_ms:
            self.clock.elapsed_ms = max(at_ms, self.clock.elapsed_ms)
            self.runtime.fire()
        self.clock.elapsed_ms = end_ms

    # Requests; each returns its reply, or the error's code, or None if there is no answer yet

    def _asked(self, key: str, operation: Callable[..., Any]) -> list[Any]:
        answers: list[Any] = []

        def change(new_id: int | None) -> None:
            self.runtime.attempt(
                key, lambda s, r: operation(s, answers.append, r, new_id), answers.append
            )

        try:
            change(None)
        except NeedsProducerId:
            self.next_id += 1
            change(self.next_id)
        return answers

    def _ask(self, key: str, operation: Callable[..., Any]) -> Any:
        try:
            answers = self._asked(key, operation)
        except ProtocolError as error:
            return error.code
        return _told(answers[0]) if answers else None

    def init(
        self, key: str = "t", expected: Producer = NO_PRODUCER, timeout_ms: int = 60_000
    ) -> Any:
        request = Initialise(key, timeout_ms, expected)
        return self._ask(key, lambda s, a, r, i: s.initialise(request, a, r, i))

    def add(self, producer: Producer, *partitions: TopicIndex, key: str = "t", v: int = 0) -> Any:
        def operation(shard: Any, answer: Any, result: Any, _: Any) -> None:
            shard.add_partitions(key, producer, frozenset(partitions), v, result)
            result.reply(answer, ErrorCode.NONE)

        return self._ask(key, operation)

    def end(self, producer: Producer, commit: bool = True, key: str = "t", v: int = 0) -> Any:
        request = End(key, producer, commit, v)
        return self._ask(key, lambda s, a, r, i: s.end(request, a, r, i))

    def end_later(self, producer: Producer, commit: bool = True, key: str = "t", v: int = 0) -> Any:
        """Send EndTxn; returns the list in which its answers are collected."""
        request = End(key, producer, commit, v)
        return self._asked(key, lambda s, a, r, i: s.end(request, a, r, i))

    def check(self, producer: Producer, partition: TopicIndex, key: str = "t") -> ErrorCode:
        try:
            self.runtime.shard(key).check_partition(key, producer, partition)
        except ProtocolError as error:
            return error.code
        return ErrorCode.NONE

    def value(self, key: str = "t") -> TransactionValue:
        return self.runtime.shard(key).transactions[key]

    def state(self, key: str = "t") -> TransactionState:
        return self.value(key).state


def _told(reply: Any) -> Any:
    if isinstance(reply, ProtocolError):
        return reply.code
    if isinstance(reply, TransactionValue):
        return Producer(reply.producer_id, reply.epoch)
    return reply


def at_epoch(bench: TransactionBench, epoch: int) -> Producer:
    """Make an idle transactional id whose producer has this epoch; returns the producer."""
    producer = bench.init()
    value = TransactionValue(producer.producer_id, epoch, 60_000, S.COMPLETE_COMMIT)
    bench.runtime.shard("t").replay(TransactionRecord("t", value))
    return Producer(producer.producer_id, epoch)
