"""The transactional ids of one partition of `__transaction_state`.

Nothing here touches a log. A request puts records, replies, timers and the markers that become due
into a `Result`. `replay` applies the records once they are appended. `runtime` writes the markers
once the end of a transaction is durably recorded, and calls `complete` or `try_again`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.result import Answer, MarkersDue, Result, TimerKey
from ottla.groups.transactions import transitions
from ottla.groups.transactions.errors import (
    FINAL,
    REFUSALS,
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    NeedsProducerId,
    TransactionalIdNotFound,
)
from ottla.groups.transactions.markers import Ending
from ottla.groups.transactions.records import (
    TopicIndex,
    TransactionRecord,
    TransactionState,
    TransactionValue,
)
from ottla.wire.errors import ProtocolError
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.settings import TransactionSettings

TIMEOUT = "timeout"
"""Timer: a transaction was open for too long."""
MARKERS = "markers"
"""Timer: write the markers that are still missing."""
EXPIRE = "expire"
"""Timer of the shard: removes ids that are no longer used."""
MARKER_RETRY_MS = 100
EXPIRE_NEXT = "expire next"
"""Timer of the shard: continues the removal that EXPIRE began."""
NEXT_SLICE_MS = 1
LOOKS_MAX = 300
"""The most ids in a slice; removing all of them takes two milliseconds."""


@dataclass(frozen=True, slots=True)
class Initialise:
    """An InitProducerId; `expected` are the id and epoch of a recovering producer (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class End:
    """An EndTxn; `version` is the client's version of transactions. In version 2, each transaction
    has a new epoch."""

    transactional_id: str
    producer: Producer
    commit: bool
    version: int = 0


class TransactionShard:
    """One partition's transactional ids."""

    final: ClassVar[tuple[type[ProtocolError], ...]] = FINAL

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        settings: TransactionSettings,
        replicated: bool = False,
    ) -> None:
        """With `replicated`, another broker may take over before this broker learns of it."""
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.replicated = replicated
        self.is_read = False
        self.transactions: dict[str, TransactionValue] = {}
        self.endings: dict[str, Ending] = {}
        """The ending of each transactional id whose recorded state is PrepareCommit or
        PrepareAbort."""
        self._unseen: list[str] = []
        """The ids that this round of expiry has not looked at."""

    # Requests

    def initialise(
        self, request: Initialise, answer: Answer, result: Result, new_id: int | None = None
    ) -> None:
        """InitProducerId: replies with a TransactionValue, which has the producer id and the epoch.

        An open transaction is aborted first, and the client has to retry. Raises
        InvalidTransactionTimeout and the errors of `transitions.initialised`.
        """
        transactional_id = request.transactional_id
        largest = self.settings.transaction_max_timeout_ms
        if not 0 < request.timeout_ms <= largest:
            raise InvalidTransactionTimeout(
                f"the transaction timeout must be from 1 to {largest} ms"
            )
        value = self.transactions.get(transactional_id)
        try:
            value = transitions.initialised(
                value, request.timeout_ms, request.expected, result.wall_ms, new_id
            )
        except ConcurrentTransactions as error:
            if value is None or value.state is not TransactionState.ONGOING:
                raise
            if value.is_exhausted and new_id is None:
                reached("an open transaction of an exhausted producer id is initialised")
                raise NeedsProducerId("a new producer id is needed") from None
            reached("an open transaction was aborted by InitProducerId")
            aborted = transitions.aborted(value, result.wall_ms, new_id)
            result.records.append(TransactionRecord(transactional_id, aborted))
            result.markers.append(MarkersDue(transactional_id, answer, error.kept()))
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
        """AddPartitionsToTxn, AddOffsetsToTxn. Raises the errors of
        `transitions.with_partitions`."""
        before = self.transactions.get(transactional_id)
        value = transitions.with_partitions(before, producer, partitions, version, result.wall_ms)
        if value is before:
            if version < transitions.EPOCH_PER_TRANSACTION:
                reached("a partition was added to a transaction again")
                # In version 2 this is not needed: each epoch belongs to one transaction.
                self.confirm(transactional_id, result)
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

    def verify(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicIndex],
        result: Result,
    ) -> dict[TopicIndex, ProtocolError]:
        """Does the same as `check_partition` for several partitions; returns the refusals."""
        refusals: dict[TopicIndex, ProtocolError] = {}
        for each in partitions:
            try:
                self.check_partition(transactional_id, producer, each)
            except ProtocolError as error:
                refusals[each] = error.kept()
        if any(isinstance(error, REFUSALS) for error in refusals.values()):
            self.confirm(transactional_id, result)
        return refusals

    def end(
        self, request: End, answer: Answer, result: Result, new_id: int | None = None
    ) -> None:
        """EndTxn: replies with the resulting TransactionValue once the markers are committed.

        So after the reply to a commit, the transaction's records are visible. But if a marker
        cannot be written, the reply does not wait for it. Raises the errors of `transitions.ended`.
        """
        transactional_id = request.transactional_id
        before = self.transactions.get(transactional_id)
        value = transitions.ended(
            before, request.producer, request.commit, request.version, result.wall_ms, new_id
        )
        if value is before:
            reached("EndTxn was repeated")
            self.confirm(transactional_id, result)
            result.reply(answer, value)
            return
        after = transitions.completed(value, result.wall_ms)
        result.records.append(TransactionRecord(transactional_id, value))
        result.markers.append(MarkersDue(transactional_id, answer, after))

    def _time_out(self, transactional_id: str, value: TransactionValue, result: Result) -> None:
        # If the log refuses the record, this timer tries again: the transaction must not stay open
        # for ever.
        interval_ms = self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        result.set_timer(TIMEOUT, transactional_id, after_ms=interval_ms)
        reached("a transaction was aborted for its age")
        prepared = transitions.aborted(value, result.wall_ms)
        result.records.append(TransactionRecord(transactional_id, prepared))
        result.markers.append(MarkersDue(transactional_id, None, None))

    def confirm(self, transactional_id: str, result: Result) -> None:
        """If `replicated` is set and the result has no records yet, adds a record that repeats the
        current state. Only the current coordinator can commit this record, so a broker that was
        replaced without knowing it never answers from outdated state."""
        if self.replicated and not result.records:
            value = self.transactions.get(transactional_id)
            result.records.append(TransactionRecord(transactional_id, value))

    # Markers

    def complete(self, ending: Ending, result: Result) -> None:
        """Called when all markers of an ending are committed."""
        assert not ending.remaining, "markers are missing"
        if self.endings.get(ending.transactional_id) is ending:
            value = self.transactions[ending.transactional_id]
            after = transitions.completed(value, result.wall_ms)
            result.records.append(TransactionRecord(ending.transactional_id, after))

    def try_again(self, ending: Ending, after_ms: int, result: Result) -> None:
        """Called when some markers of an ending are not written yet, or the log refused the
        record that completes it."""
        if self.endings.get(ending.transactional_id) is ending:
            result.set_timer(MARKERS, ending.transactional_id, after_ms=after_ms)

    # Time and the log

    def fire(self, key: TimerKey, result: Result) -> None:
        """Called when a timer is due."""
        if key.kind == EXPIRE:
            self._unseen = list(self.transactions)
            self._expire(result)
        elif key.kind == EXPIRE_NEXT:
            self._expire(result)
        elif key.kind == MARKERS:
            if key.owner in self.endings:
                result.markers.append(MarkersDue(key.owner, None, None))
        elif key.kind == TIMEOUT:
            value = self.transactions.get(key.owner)
            if value is not None and value.state is TransactionState.ONGOING:
                self._time_out(key.owner, value, result)

    def _expire(self, result: Result) -> None:
        """Removes ids that were not used for transactional.id.expiration.ms, in slices."""
        before_ms = result.wall_ms - self.settings.transactional_id_expiration_ms
        seen = self._unseen[-LOOKS_MAX:]
        del self._unseen[-LOOKS_MAX:]
        for transactional_id in seen:
            value = self.transactions.get(transactional_id)
            if value is None or value.is_ending or value.state is TransactionState.ONGOING:
                continue
            if value.updated_ms <= before_ms:
                reached("a transactional id expired")
                result.records.append(TransactionRecord(transactional_id, None))
        if self._unseen:
            result.set_timer(EXPIRE_NEXT, "", after_ms=NEXT_SLICE_MS)
        else:
            self._look_for_expired_later(result)

    def _look_for_expired_later(self, result: Result) -> None:
        interval_ms = self.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        result.set_timer(EXPIRE, "", after_ms=interval_ms)

    def replay(self, record: TransactionRecord, producer_id: int = -1) -> None:
        """Applies one record, in the log's order. Nothing else changes durable state."""
        transactional_id, value = record
        if value is not None and value is self.transactions.get(transactional_id):
            if value.is_ending:
                reached("a state was confirmed while its transaction ends")
            return                                  # a record of `confirm`: the ending continues
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = value
        if value is not None and value.is_ending:
            self.endings[transactional_id] = Ending(transactional_id, value, self.coordinator_epoch)
        else:
            self.endings.pop(transactional_id, None)
        assert (transactional_id in self.endings) == (value is not None and value.is_ending)

    def loaded(self, result: Result) -> None:
        """After all records are read: continues endings, and starts timeouts of open
        transactions."""
        for transactional_id, value in self.transactions.items():
            if value.is_ending:
                reached("a coordinator was loaded between the two records of an end")
                result.markers.append(MarkersDue(transactional_id, None, None))
            elif value.state is TransactionState.ONGOING:
                left_ms = value.started_ms + value.timeout_ms - result.wall_ms
                reached("a coordinator was loaded with an open transaction")
                # Setting back the wall clock must not keep a transaction open for ever.
                after_ms = min(max(left_ms, 0), value.timeout_ms)
                result.set_timer(TIMEOUT, transactional_id, after_ms=after_ms)
        self._look_for_expired_later(result)

    def waiting(self) -> list[Answer]:
        """The Answers of clients that wait for markers; called when another broker takes over. The
        recorded outcome is final, so each client gets its reply, not the caller's error."""
        return [_decided(ending) for ending in self.endings.values()]

    # Administration

    def describe(self, transactional_id: str) -> TransactionValue:
        """DescribeTransactions of one id. Raises TransactionalIdNotFound."""
        value = self.transactions.get(transactional_id)
        if value is None:
            raise TransactionalIdNotFound(f"transactional id {transactional_id!r} not found")
        return value


def _decided(ending: Ending) -> Answer:
    return lambda _: ending.release()
