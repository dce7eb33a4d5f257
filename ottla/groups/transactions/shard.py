"""The transactional ids of one partition of `__transaction_state`.

Nothing here touches a log: requests put records, replies and timers into a `Result`, and `replay`
applies the records once they are appended. Writing the markers, which follows when an end is
durably recorded, is requested by a reply like any other, to `markers.Ending`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.result import Answer, Result, TimerKey
from ottla.groups.settings import TransactionSettings
from ottla.groups.transactions import transitions
from ottla.groups.transactions.errors import (
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    NeedsProducerId,
    TransactionalIdNotFound,
)
from ottla.groups.transactions.markers import Ending, WriteMarker
from ottla.groups.transactions.records import (
    TopicIndex,
    TransactionRecord,
    TransactionState,
    TransactionValue,
)
from ottla.wire.errors import ProtocolError

TIMEOUT = "timeout"
"""Timer: a transaction was open for too long."""
MARKERS = "markers"
"""Timer: retry markers that could not be written."""
EXPIRE = "expire"
"""Timer of the shard: removes ids that are no longer used."""
MARKER_RETRY_MS = 100

TurnOf = Callable[[str, Callable[["TransactionShard", Result], None]], None]
"""Runs a further turn on the shard of a transactional id, if it is still coordinated here."""


@dataclass(frozen=True, slots=True)
class Initialise:
    """An InitProducerId; `expected` is what a recovering producer had before (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class End:
    """An EndTxn; `version` is that of the client's transactions, 2 for a new epoch each time."""

    transactional_id: str
    producer: Producer
    commit: bool
    version: int = 0


class TransactionShard:
    """One partition's transactional ids."""

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        settings: TransactionSettings,
        write_marker: WriteMarker,
        turn: TurnOf,
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.transactions: dict[str, TransactionValue] = {}
        self.endings: dict[str, Ending] = {}
        self._write_marker, self._turn = write_marker, turn

    # Requests

    def initialise(
        self, request: Initialise, answer: Answer, result: Result, new_id: int | None = None
    ) -> None:
        """InitProducerId: returns the TransactionValue with the producer id and the epoch.

        An open transaction is aborted first, and the client asked to retry. Raises
        InvalidTransactionTimeout and the errors of `transitions.initialised`.
        """
        transactional_id = request.transactional_id
        largest = self.settings.transaction_max_timeout_ms
        if not 0 < request.timeout_ms <= largest:
            raise InvalidTransactionTimeout(f"a transaction may be open for 1 to {largest} ms")
        value = self.transactions.get(transactional_id)
        try:
            value = transitions.initialised(
                value, request.timeout_ms, request.expected, result.wall_ms, new_id
            )
        except ConcurrentTransactions as error:
            if value is None or value.state is not TransactionState.ONGOING:
                raise
            told = error
            if value.is_exhausted and new_id is None:
                raise NeedsProducerId("a new producer id is needed") from None
            aborted = transitions.aborted(value, result.wall_ms, new_id)
            self._prepare(transactional_id, aborted, result, lambda: answer(told), answer)
            return
        result.records.append(TransactionRecord(transactional_id, value))
        result.reply(answer, value)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicIndex],
        version: int,
        result: Result,
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn. Raises what
        `transitions.with_partitions` does."""
        before = self.transactions.get(transactional_id)
        value = transitions.with_partitions(
            before, producer, partitions, version, result.wall_ms
        )
        if value is before:
            return
        if before is None or before.state is not TransactionState.ONGOING:
            result.set_timer(TIMEOUT, transactional_id, after_ms=value.timeout_ms)
        result.records.append(TransactionRecord(transactional_id, value))

    def check_partition(
        self, transactional_id: str, producer: Producer, partition: TopicIndex
    ) -> None:
        """Checks that a producer may write to a partition. Raises the errors of
        `transitions.check_partition`."""
        transitions.check_partition(
            self.transactions.get(transactional_id), producer, partition
        )

    def end(
        self, request: End, answer: Answer, result: Result, new_id: int | None = None
    ) -> None:
        """EndTxn: replies with the resulting TransactionValue once the markers are committed.

        A client that gets the reply to a commit finds it visible; only if a marker cannot be
        written is the reply sent earlier. Raises the errors of `transitions.ended`.
        """
        transactional_id = request.transactional_id
        before = self.transactions.get(transactional_id)
        value = transitions.ended(
            before, request.producer, request.commit, request.version, result.wall_ms, new_id
        )
        if value is before:
            result.reply(answer, value)
            return
        after = transitions.completed(value, result.wall_ms)
        self._prepare(transactional_id, value, result, lambda: answer(after), answer)

    def _time_out(self, transactional_id: str, value: TransactionValue, result: Result) -> None:
        # If the log refuses the record, the transaction must not stay open for ever.
        interval_ms = self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        result.set_timer(TIMEOUT, transactional_id, after_ms=interval_ms)
        prepared = transitions.aborted(value, result.wall_ms)
        self._prepare(transactional_id, prepared, result, None, None)

    def _prepare(
        self,
        transactional_id: str,
        value: TransactionValue,
        result: Result,
        ended: Callable[[], Any] | None,
        refused: Answer | None,
    ) -> None:
        """Records that a transaction ends; once that is durable, writes its markers."""

        def recorded(reply: Any) -> None:
            if isinstance(reply, ProtocolError):
                if refused is not None:
                    refused(reply)
                return
            ending = self._ending(transactional_id, value)
            ending.answer = ended
            ending.drive()

        result.records.append(TransactionRecord(transactional_id, value))
        result.reply(recorded, None)

    # Markers

    def _ending(self, transactional_id: str, value: TransactionValue) -> Ending:
        ending = self.endings[transactional_id] = Ending(
            transactional_id,
            value,
            self.coordinator_epoch,
            self._write_marker,
            self._all_written,
            self._not_all_written,
        )
        return ending

    def _all_written(self, ending: Ending) -> None:
        self._turn(
            ending.transactional_id, lambda shard, result: shard.complete(ending, result)
        )

    def _not_all_written(self, ending: Ending) -> None:
        ending.release()
        self._turn(
            ending.transactional_id, lambda shard, result: shard.try_again(ending, result)
        )

    def complete(self, ending: Ending, result: Result) -> None:
        """Called when all markers of an ending are committed."""
        if self.endings.get(ending.transactional_id) is not ending:
            return
        value = self.transactions[ending.transactional_id]
        after = transitions.completed(value, result.wall_ms)

        def recorded(reply: Any) -> None:
            if isinstance(reply, ProtocolError):
                # For example on a full disk: the id must not stay in the ending state for ever.
                self._not_all_written(ending)

        result.records.append(TransactionRecord(ending.transactional_id, after))
        result.reply(recorded, None)
        # The decision is durable; the completion need not be before the client continues, so
        # the client does not wait for this record.
        ending.release()

    def try_again(self, ending: Ending, result: Result) -> None:
        """Called when some markers of an ending could not be written."""
        if self.endings.get(ending.transactional_id) is ending:
            result.set_timer(MARKERS, ending.transactional_id, after_ms=MARKER_RETRY_MS)

    # Time and the log

    def fire(self, key: TimerKey, result: Result) -> None:
        """Called when a timer is due."""
        if key.kind == EXPIRE:
            self._expire(result)
        elif key.kind == MARKERS:
            ending = self.endings.get(key.owner)
            if ending is not None:
                result.reply(_driver(ending), None)
        elif key.kind == TIMEOUT:
            value = self.transactions.get(key.owner)
            if value is not None and value.state is TransactionState.ONGOING:
                self._time_out(key.owner, value, result)

    def _expire(self, result: Result) -> None:
        """Removes ids that were not used for transactional.id.expiration.ms."""
        before_ms = result.wall_ms - self.settings.transactional_id_expiration_ms
        for transactional_id, value in self.transactions.items():
            idle = not value.is_ending and value.state is not TransactionState.ONGOING
            if idle and value.updated_ms <= before_ms:
                result.records.append(TransactionRecord(transactional_id, None))
        self._look_for_expired_later(result)

    def _look_for_expired_later(self, result: Result) -> None:
        interval_ms = self.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        result.set_timer(EXPIRE, "", after_ms=interval_ms)

    def replay(self, record: TransactionRecord, producer_id: int = -1) -> None:
        """Applies one record, in the log's order. Nothing else changes durable state."""
        transactional_id, value = record
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = value
        if value is None or not value.is_ending:
            self.endings.pop(transactional_id, None)

    def loaded(self, result: Result) -> None:
        """After all records are read: continues endings, and starts timeouts of open
        transactions."""
        for transactional_id, value in self.transactions.items():
            if value.is_ending:
                ending = self._ending(transactional_id, value)
                result.reply(_driver(ending), None)
            elif value.state is TransactionState.ONGOING:
                left_ms = value.started_ms + value.timeout_ms - result.wall_ms
                # Setting back the wall clock must not keep a transaction open for ever.
                after_ms = min(max(left_ms, 0), value.timeout_ms)
                result.set_timer(TIMEOUT, transactional_id, after_ms=after_ms)
        self._look_for_expired_later(result)

    def waiting(self) -> list[Answer]:
        """Another broker takes over: recorded ends are decided, so their clients are answered."""
        for ending in self.endings.values():
            ending.release()
        return []

    # Administration

    def describe(self, transactional_id: str) -> TransactionValue:
        """DescribeTransactions of one id. Raises TransactionalIdNotFound."""
        value = self.transactions.get(transactional_id)
        if value is None:
            raise TransactionalIdNotFound(f"transactional id {transactional_id!r} not found")
        return value


def _driver(ending: Ending) -> Answer:
    """Continues an ending once everything before it is committed."""

    def drive(reply: Any) -> None:
        if not isinstance(reply, ProtocolError):
            ending.drive()

    return drive
