"""A transactional id as a state machine: the next value, or the refusal, of each request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.groups.records import NO_PRODUCER, Producer
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
    NO_PRODUCER_ID,
    TransactionState,
    TransactionValue,
)
from ottla.groups.transactions.transitions import (
    aborted,
    check_owner,
    check_partition,
    completed,
    ended,
    initialised,
    with_partitions,
)

S = TransactionState
A, B, C = ("a", 0), ("b", 1), ("c", 2)
ME = Producer(7, 3)
IDLE = TransactionValue(7, 3, 60_000, S.COMPLETE_COMMIT, updated_ms=10)
OPEN = replace(IDLE, state=S.ONGOING, partitions=frozenset({A, B}), started_ms=20, updated_ms=30)
ENDING = replace(OPEN, state=S.PREPARE_COMMIT)
LAST = EPOCH_MAX - 1


def test_a_new_id_begins_at_epoch_0_of_a_new_producer() -> None:
    with pytest.raises(NeedsProducerId):
        initialised(None, 5, NO_PRODUCER, 1, None)
    assert initialised(None, 5, NO_PRODUCER, 1, 9) == TransactionValue(
        9, 0, 5, S.EMPTY, updated_ms=1)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("expected", [NO_PRODUCER, ME])
def test_an_id_that_is_known_gets_the_next_epoch(state: S, expected: Producer) -> None:
    before = replace(IDLE, state=state, started_ms=4, next_producer_id=8)
    assert initialised(before, 5, expected, 90, 1) == replace(
        before, epoch=4, last_epoch=expected.epoch, timeout_ms=5, state=S.EMPTY, updated_ms=90,
        started_ms=-1, next_producer_id=NO_PRODUCER_ID)


def test_a_recovering_producer_that_repeats_itself_gets_the_same_epoch() -> None:
    after = initialised(IDLE, 5, ME, 90, None)
    assert initialised(after, 6, ME, 91, None) == replace(after, timeout_ms=6, updated_ms=91)
    for epoch in (2, 5):
        with pytest.raises(ProducerFenced):
            initialised(after, 5, Producer(7, epoch), 90, None)
    with pytest.raises(ProducerFenced):
        initialised(after, 5, Producer(8, 3), 90, None)


@pytest.mark.parametrize("epoch", [LAST, EPOCH_MAX])
def test_after_the_last_epoch_comes_another_producer(epoch: int) -> None:
    before = replace(IDLE, epoch=epoch)
    assert before.is_exhausted and not replace(IDLE, epoch=LAST - 1).is_exhausted
    with pytest.raises(NeedsProducerId):
        initialised(before, 5, NO_PRODUCER, 90, None)
    for expected in (NO_PRODUCER, Producer(7, epoch)):
        after = initialised(before, 5, expected, 90, 9)
        assert (after.producer_id, after.epoch, after.previous_producer_id, after.last_epoch) == (
            9, 0, 7, expected.epoch)
    repeated = initialised(after, 5, Producer(7, epoch), 91, None)
    assert (repeated.producer_id, repeated.epoch) == (9, 0)
    with pytest.raises(ProducerFenced):
        initialised(after, 5, Producer(7, LAST - 1), 91, None)


@pytest.mark.parametrize("value", [OPEN, ENDING, replace(OPEN, state=S.PREPARE_ABORT)])
def test_what_is_not_over_is_not_initialised(value: TransactionValue) -> None:
    with pytest.raises(ConcurrentTransactions):
        initialised(value, 5, NO_PRODUCER, 90, 9)
    with pytest.raises(ProducerFenced):
        initialised(value, 5, Producer(8, 3), 90, 9)


def test_only_the_current_producer_owns_a_transaction() -> None:
    assert check_owner(OPEN, ME) is OPEN
    for value, producer, error in (
        (None, ME, InvalidProducerIdMapping), (OPEN, Producer(8, 3), InvalidProducerIdMapping),
        (OPEN, Producer(7, 2), ProducerFenced), (OPEN, Producer(7, 4), ProducerFenced),
        (replace(OPEN, epoch=EPOCH_MAX), Producer(7, EPOCH_MAX), ProducerFenced),
    ):
        with pytest.raises(error):
            check_owner(value, producer)


def test_the_first_partitions_begin_a_transaction_and_others_join_it() -> None:
    begun = with_partitions(IDLE, ME, frozenset({A}), 2, 50)
    assert begun == replace(
        IDLE, state=S.ONGOING, partitions=frozenset({A}), updated_ms=50, started_ms=50,
        client_version=2)
    more = with_partitions(begun, ME, frozenset({A, B}), 0, 60)
    assert more == replace(
        begun, partitions=frozenset({A, B}), updated_ms=60, client_version=0)
    for again in ({A}, {A, B}, set()):
        assert with_partitions(more, ME, frozenset(again), 2, 70) is more
    left = replace(IDLE, partitions=frozenset({A}))
    assert with_partitions(left, ME, frozenset({A}), 0, 50).state is S.ONGOING
    with pytest.raises(ConcurrentTransactions):
        with_partitions(ENDING, ME, frozenset({A}), 0, 50)
    with pytest.raises(ProducerFenced):
        with_partitions(IDLE, Producer(7, 2), frozenset({A}), 0, 50)


def test_a_batch_needs_its_partition_in_the_transaction() -> None:
    check_partition(OPEN, ME, A)
    with pytest.raises(TransactionAbortable, match="c-2"):
        check_partition(OPEN, ME, C)
    with pytest.raises(ConcurrentTransactions):
        check_partition(ENDING, ME, A)
    with pytest.raises(InvalidProducerIdMapping):
        check_partition(None, ME, A)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_epochs_keeps_the_epoch(commit: bool) -> None:
    prepared = ended(OPEN, ME, commit, 1, 80, None)
    state = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
    assert prepared == replace(OPEN, state=state, updated_ms=80, client_version=0)
    with pytest.raises(ConcurrentTransactions):
        ended(prepared, ME, commit, 1, 81, None)
    with pytest.raises(InvalidTransactionState):
        ended(prepared, ME, not commit, 1, 81, None)
    after = completed(prepared, 82)
    assert after == replace(
        prepared, state=S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT,
        partitions=frozenset(), updated_ms=82)
    assert ended(after, ME, commit, 1, 83, None) is after
    with pytest.raises(InvalidTransactionState):
        ended(after, ME, not commit, 1, 83, None)
    empty = replace(IDLE, state=S.EMPTY)
    with pytest.raises(InvalidTransactionState):
        ended(empty, ME, commit, 1, 83, None)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_with_epochs_begins_the_next_one(commit: bool) -> None:
    prepared = ended(OPEN, ME, commit, 2, 80, None)
    state = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
    assert prepared == replace(
        OPEN, state=state, updated_ms=80, client_version=2, epoch=4, last_epoch=3)
    with pytest.raises(ConcurrentTransactions):
        ended(prepared, ME, commit, 2, 81, None)
    with pytest.raises(InvalidTransactionState if commit else ProducerFenced):
        ended(prepared, ME, not commit, 2, 81, None)
    with pytest.raises(ProducerFenced):
        ended(prepared, Producer(7, 4), commit, 2, 81, None)
    after = completed(prepared, 82)
    assert (after.producer_id, after.epoch, after.previous_producer_id) == (
        7, 4, OPEN.previous_producer_id)
    assert ended(after, ME, commit, 2, 83, None) is after
    with pytest.raises(InvalidTransactionState if commit else ProducerFenced):
        ended(after, ME, not commit, 2, 83, None)
    begun = with_partitions(after, Producer(7, 4), frozenset({A}), 2, 84)
    with pytest.raises(ProducerFenced, match="replaced by epoch 4"):
        ended(begun, ME, commit, 2, 85, None)


def test_an_abort_of_nothing_ends_with_an_epoch_and_a_commit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidTransactionState):
        ended(IDLE, ME, True, 2, 80, None)
    left = replace(IDLE, partitions=frozenset({A}), started_ms=4)
    prepared = ended(left, ME, False, 2, 80, None)
    assert (prepared.state, prepared.epoch, prepared.partitions, prepared.started_ms) == (
        S.PREPARE_ABORT, 4, frozenset(), 80)


def test_the_end_of_the_last_epoch_moves_to_another_producer() -> None:
    last, owner = replace(OPEN, epoch=LAST), Producer(7, LAST)
    with pytest.raises(NeedsProducerId):
        ended(last, owner, True, 2, 80, None)
    prepared = ended(last, owner, True, 2, 80, 9)
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (7, EPOCH_MAX, 9)
    with pytest.raises(ConcurrentTransactions):
        ended(prepared, owner, True, 2, 81, None)
    after = completed(prepared, 82)
    assert (after.producer_id, after.epoch, after.previous_producer_id, after.next_producer_id) == (
        9, 0, 7, NO_PRODUCER_ID)
    assert ended(after, owner, True, 2, 83, None) is after
    with pytest.raises(InvalidProducerIdMapping):
        ended(after, Producer(7, LAST - 1), True, 2, 83, None)
    with pytest.raises(InvalidProducerIdMapping):
        ended(after, Producer(6, LAST), True, 2, 83, None)
    with pytest.raises(InvalidProducerIdMapping):
        ended(replace(after, epoch=1), owner, True, 2, 83, None)
    with pytest.raises(InvalidProducerIdMapping):
        ended(replace(after, client_version=1), owner, True, 2, 83, None)
    assert ended(last, owner, True, 1, 80, None).epoch == LAST


@pytest.mark.parametrize(("epoch", "new_id", "expected"), [
    (3, None, (4, 2, NO_PRODUCER_ID)), (3, 9, (4, 2, NO_PRODUCER_ID)),
    (LAST - 1, None, (LAST, 2, NO_PRODUCER_ID)), (LAST, None, (EPOCH_MAX, 0, NO_PRODUCER_ID)),
    (LAST, 9, (EPOCH_MAX, 2, 9)), (EPOCH_MAX, 9, (EPOCH_MAX, 2, 9)),
])
def test_an_abort_of_the_coordinators_fences_the_producer(
    epoch: int, new_id: int | None, expected: tuple[Any, ...]
) -> None:
    value = aborted(replace(OPEN, epoch=epoch), 80, new_id)
    assert (value.epoch, value.client_version, value.next_producer_id) == expected
    assert (value.state, value.last_epoch, value.partitions) == (
        S.PREPARE_ABORT, epoch, OPEN.partitions)
    assert (value.started_ms, value.updated_ms) == (20, 80)
