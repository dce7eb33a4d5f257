"""Transactional ids as a pure state machine: from a value and a request to the next value.

The functions change nothing: each returns the value to record, or raises the error for the client.
If a function returns the given value itself, there is nothing to record, because the request
repeats an earlier request (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.groups.transactions.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NeedsProducerId,
    ProducerFenced,
    TransactionAbortable,
)
from ottla.groups.transactions.records import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicIndex,
    TransactionState,
    TransactionValue,
    is_exhausted,
)
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.records import Producer
    from ottla.wire.errors import ProtocolError

EPOCH_PER_TRANSACTION = 2
"""The version of transactions in which each transaction has a new producer epoch (KIP-890)."""


def initialised(
    value: TransactionValue | None,
    timeout_ms: int,
    expected: Producer,
    wall_ms: int,
    new_producer_id: int | None,
) -> TransactionValue:
    """InitProducerId: the next epoch, which fences all producers with an older epoch.

    `expected` is the id and epoch of a recovering producer (KIP-360). The caller has to abort an
    open transaction first. Raises NeedsProducerId if a new producer id is needed but not given,
    ProducerFenced, ConcurrentTransactions.
    """
    if value is None:
        return TransactionValue(
            _need(new_producer_id), 0, timeout_ms, TransactionState.EMPTY, updated_ms=wall_ms
        )
    known = expected.producer_id in (NO_PRODUCER_ID, value.producer_id) or (
        expected.producer_id == value.previous_producer_id and is_exhausted(expected.epoch)
    )
    if not known:
        reached("a producer came back whose id was replaced")
        raise ProducerFenced(f"producer id {expected.producer_id} was replaced by another id")
    if value.is_ending or value.state is TransactionState.ONGOING:
        raise ConcurrentTransactions("the previous transaction has not ended yet")
    repeated = expected.epoch not in (NO_EPOCH, value.epoch)
    if repeated:
        if expected.epoch != value.last_epoch:
            raise ProducerFenced(
                f"producer epoch {expected.epoch} was replaced by epoch {value.epoch}")
        reached("a recovering producer repeats its InitProducerId")
        if value.epoch < EPOCH_MAX:
            return _emptied(value, timeout_ms, wall_ms)
    if value.is_exhausted:
        return replace(
            _emptied(value, timeout_ms, wall_ms),
            producer_id=_need(new_producer_id),
            epoch=0,
            previous_producer_id=value.producer_id,
            last_epoch=expected.epoch,
        )
    assert value.epoch + 1 < EPOCH_MAX, "a client would get the reserved epoch"
    return replace(
        _emptied(value, timeout_ms, wall_ms), epoch=value.epoch + 1, last_epoch=expected.epoch
    )


def _emptied(value: TransactionValue, timeout_ms: int, wall_ms: int) -> TransactionValue:
    return replace(
        value,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        updated_ms=wall_ms,
        started_ms=-1,
        next_producer_id=NO_PRODUCER_ID,
    )


def _need(new_producer_id: int | None) -> int:
    if new_producer_id is None:
        raise NeedsProducerId("a new producer id is needed")
    return new_producer_id


def check_owner(value: TransactionValue | None, producer: Producer) -> TransactionValue:
    """The value, if the transactional id belongs to this producer. Raises
    InvalidProducerIdMapping, ProducerFenced."""
    if value is None:
        raise InvalidProducerIdMapping("the transactional id was never initialised, or has expired")
    if value.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping(
            f"the transactional id belongs to producer id {value.producer_id}, "
            f"not {producer.producer_id}"
        )
    if value.epoch != producer.epoch:
        reached("a fenced producer asked for its transaction")
        raise ProducerFenced(
            f"producer epoch {producer.epoch} is not the current epoch {value.epoch}")
    if value.epoch == EPOCH_MAX:
        raise ProducerFenced(f"producer epoch {EPOCH_MAX} is reserved for the coordinator")
    return value


def with_partitions(
    value: TransactionValue | None,
    producer: Producer,
    partitions: frozenset[TopicIndex],
    version: int,
    wall_ms: int,
) -> TransactionValue:
    """AddPartitionsToTxn: adds these partitions to the open transaction, or begins a transaction
    with them.

    Raises the errors of `check_owner`, ConcurrentTransactions.
    """
    value = check_owner(value, producer)
    if value.is_ending:
        raise ConcurrentTransactions("the previous transaction has not ended yet")
    ongoing = value.state is TransactionState.ONGOING
    if ongoing and partitions <= value.partitions:
        return value
    return replace(
        value,
        state=TransactionState.ONGOING,
        partitions=value.partitions | partitions,
        updated_ms=wall_ms,
        started_ms=value.started_ms if ongoing else wall_ms,
        client_version=version,
    )


def check_partition(
    value: TransactionValue | None, producer: Producer, partition: TopicIndex
) -> None:
    """Checks that a partition is in the producer's open transaction (KIP-890).

    Raises the errors of `check_owner`, ConcurrentTransactions, TransactionAbortable.
    """
    value = check_owner(value, producer)
    if value.is_ending:
        raise ConcurrentTransactions("the previous transaction has not ended yet")
    if partition not in value.partitions:
        reached("a partition is not in the transaction of its batch")
        raise TransactionAbortable(
            f"{partition[0]}-{partition[1]} was not added to the producer's transaction"
        )


def ended(
    value: TransactionValue | None,
    producer: Producer,
    commit: bool,
    version: int,
    wall_ms: int,
    new_producer_id: int | None,
) -> TransactionValue:
    """EndTxn: prepare the transaction to end; the outcome is final once the value is recorded.

    Returns `value` itself for a repeated EndTxn. Raises InvalidProducerIdMapping, ProducerFenced,
    ConcurrentTransactions, InvalidTransactionState, NeedsProducerId.
    """
    if version >= EPOCH_PER_TRANSACTION:
        return _ended_with_epoch(value, producer, commit, wall_ms, new_producer_id)
    value = check_owner(value, producer)
    if value.is_ending and value.commits == commit:
        raise ConcurrentTransactions("the transaction is already ending")
    if value.state in _COMPLETE and value.commits == commit:
        return value
    if value.state is not TransactionState.ONGOING:
        raise _cannot_end(value, commit)
    return _prepared(value, commit, wall_ms, client_version=0)


_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _ended_with_epoch(
    value: TransactionValue | None,
    producer: Producer,
    commit: bool,
    wall_ms: int,
    new_producer_id: int | None,
) -> TransactionValue:
    """The end of a transaction whose producer continues with another epoch (KIP-890).

    An epoch belongs to one transaction, so a request's epoch shows whether it is a repetition.
    """
    repeats = value is not None and _was_bumped(value, producer)
    if value is None or not repeats:
        value = check_owner(value, producer)
    if value.is_ending:
        if not repeats:
            raise ProducerFenced(
                f"producer epoch {producer.epoch} is not the epoch of the open transaction")
        reached("EndTxn was repeated while the transaction ends")
        if value.commits == commit:
            raise ConcurrentTransactions("the transaction is already ending")
        raise _ended_otherwise(value, commit)
    if repeats:
        if value.state in _COMPLETE and value.commits == commit:
            return value
        if value.state in _COMPLETE:
            raise _ended_otherwise(value, commit)
        raise ProducerFenced(
            f"producer epoch {producer.epoch} was replaced by epoch {value.epoch}")
    if value.state is not TransactionState.ONGOING and commit:
        raise _cannot_end(value, commit)
    # An abort without a transaction is allowed: the client cannot know whether the transaction
    # began.
    next_id = _need(new_producer_id) if value.is_exhausted else NO_PRODUCER_ID
    assert value.epoch < EPOCH_MAX, "the producer id has no next epoch"
    return replace(
        _prepared(value, commit, wall_ms, client_version=EPOCH_PER_TRANSACTION),
        epoch=value.epoch + 1,
        last_epoch=value.epoch,
        next_producer_id=next_id,
    )


def _was_bumped(value: TransactionValue, producer: Producer) -> bool:
    """Whether the current epoch directly follows the producer's epoch. If so, the producer's
    transaction has ended or is ending, and the reply may have been lost."""
    if value.client_version < EPOCH_PER_TRANSACTION:
        return False
    if producer.producer_id == value.producer_id:
        return value.epoch == producer.epoch + 1
    return (
        producer.producer_id == value.previous_producer_id
        and is_exhausted(producer.epoch)
        and value.epoch == 0
    )


def _prepared(
    value: TransactionValue, commit: bool, wall_ms: int, client_version: int
) -> TransactionValue:
    ongoing = value.state is TransactionState.ONGOING
    assert ongoing or not commit, "the transaction to commit is not open"
    return replace(
        value,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        partitions=value.partitions if ongoing else frozenset(),
        updated_ms=wall_ms,
        started_ms=value.started_ms if ongoing else wall_ms,
        client_version=client_version,
    )


def _cannot_end(value: TransactionValue, commit: bool) -> InvalidTransactionState:
    wanted = "committed" if commit else "aborted"
    return InvalidTransactionState(f"a transaction in state {value.state.label} cannot be {wanted}")


def _ended_otherwise(value: TransactionValue, commit: bool) -> ProtocolError:
    """The error for a producer whose transaction has ended otherwise than the producer requests.

    No client requests both a commit and an abort. So if a producer requests a commit of an aborted
    transaction, the coordinator has aborted it, usually because it was open for too long. The error
    is then PRODUCER_FENCED, from which Streams and Connect recover (KAFKA-20785). Apache Kafka
    before that fix returns INVALID_TXN_STATE, which terminates them.
    """
    if commit:
        reached("a commit met the abort of its transaction")
        return ProducerFenced("the transaction was open for too long and has been aborted")
    return _cannot_end(value, commit)


def aborted(
    value: TransactionValue, wall_ms: int, new_producer_id: int | None = None
) -> TransactionValue:
    """Prepare an open transaction to be aborted by the coordinator: it was open for too long, or an
    InitProducerId requests the transactional id.

    The epoch grows, so requests with the old epoch are refused. But the producer can continue with
    an abort, or with an InitProducerId that has its old epoch. The coordinator treats such a
    request as a repetition and replies with the new epoch. An InitProducerId of another client gets
    the epoch after the new epoch. No client gets the last epoch of a producer id: a new producer id
    replaces the exhausted id, at once if `new_producer_id` is given.
    """
    assert value.state is TransactionState.ONGOING, "the transaction to abort is not open"
    moves = value.is_exhausted and new_producer_id is not None
    tells_epoch = moves or not value.is_exhausted
    return replace(
        # The reply to a repeated EndTxn contains the new epoch. If no client may get that epoch, an
        # EndTxn of this producer must not count as repeated.
        _prepared(value, False, wall_ms, EPOCH_PER_TRANSACTION if tells_epoch else 0),
        epoch=min(value.epoch + 1, EPOCH_MAX),
        last_epoch=value.epoch,
        next_producer_id=_need(new_producer_id) if moves else NO_PRODUCER_ID,
    )


def completed(value: TransactionValue, wall_ms: int) -> TransactionValue:
    """All markers are written: the transaction has ended, and the next transaction may begin."""
    assert value.is_ending, "the transaction to complete is not ending"
    moved = value.next_producer_id != NO_PRODUCER_ID
    commits = value.commits
    return replace(
        value,
        producer_id=value.next_producer_id if moved else value.producer_id,
        epoch=0 if moved else value.epoch,
        previous_producer_id=value.producer_id if moved else value.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=wall_ms,
    )
