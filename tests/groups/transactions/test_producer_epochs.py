"""Initialisations of a transactional id: each fences the producer before it."""

from __future__ import annotations

import pytest

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.result import Result
from ottla.groups.transactions.errors import NeedsProducerId
from ottla.groups.transactions.records import (
    EPOCH_MAX,
)
from ottla.groups.transactions.shard import Initialise
from ottla.wire.errors import ErrorCode
from tests.groups.transactions.bench import (
    OK,
    A,
    B,
    S,
    TransactionBench,
    at_epoch,
)


def test_every_initialisation_fences_the_producer_before_it(bench: TransactionBench) -> None:
    first = bench.init()
    second = bench.init()
    assert second == Producer(first.producer_id, first.epoch + 1)
    assert bench.add(first, A) is ErrorCode.PRODUCER_FENCED
    assert bench.end(first) is ErrorCode.PRODUCER_FENCED
    assert bench.check(first, A) is ErrorCode.PRODUCER_FENCED
    assert bench.add(second, A) is OK


def test_an_open_transaction_is_aborted_before_another_producer_may_begin(
    bench: TransactionBench,
) -> None:
    zombie = bench.init()
    bench.add(zombie, A, B)
    assert bench.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert [(p, m.commits) for p, m in bench.markers] == [(A, False), (B, False)]
    assert {m.epoch for _, m in bench.markers} == {zombie.epoch + 1}
    fresh = bench.init()
    assert fresh == Producer(zombie.producer_id, zombie.epoch + 2)
    assert bench.end(zombie) is ErrorCode.PRODUCER_FENCED
    assert bench.end(zombie, commit=False, v=2) is ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_are_followed_by_another_producer_id(bench: TransactionBench) -> None:
    last = at_epoch(bench, EPOCH_MAX - 1)
    fresh = bench.init()
    assert fresh.epoch == 0 and fresh.producer_id != last.producer_id
    assert bench.add(last, A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 2])
def test_the_epoch_that_only_fences_belongs_to_no_client(
    bench: TransactionBench, version: int
) -> None:
    """A client never gets the largest epoch: aborting its transaction would need a higher one."""
    last = at_epoch(bench, EPOCH_MAX - 1)
    assert bench.add(last, A, v=version) is OK
    bench.wait(120_000)
    assert {m.epoch for _, m in bench.markers} == {EPOCH_MAX}, "it was aborted for its age"
    guessed = Producer(last.producer_id, EPOCH_MAX)
    assert bench.end(guessed, commit=False, v=version) is ErrorCode.PRODUCER_FENCED
    assert bench.add(guessed, A, v=version) is ErrorCode.PRODUCER_FENCED
    assert bench.init().epoch == 0, "whoever initialises the id gets another producer id"


def test_without_a_new_id_an_exhausted_producer_is_not_aborted_yet(
    bench: TransactionBench,
) -> None:
    bench.add(at_epoch(bench, EPOCH_MAX - 1), A)
    result, request = Result(1, 1), Initialise("t", 60_000)
    with pytest.raises(NeedsProducerId):
        bench.runtime.shard("t").initialise(request, print, result)
    assert (result.records, result.markers, result.replies) == ([], [], [])
    bench.runtime.shard("t").initialise(request, print, result, 7)
    (record,) = result.records
    assert (record.value.next_producer_id, record.value.state) == (7, S.PREPARE_ABORT)


@pytest.mark.parametrize("recovers", [True, False])
def test_an_open_transaction_of_the_last_epoch_is_aborted_and_another_id_takes_over(
    bench: TransactionBench, recovers: bool
) -> None:
    last = at_epoch(bench, EPOCH_MAX - 1)
    bench.add(last, A)
    assert bench.init(expected=last if recovers else NO_PRODUCER) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    assert {(m.producer_id, m.epoch) for _, m in bench.markers} == {(last.producer_id, EPOCH_MAX)}
    fresh = bench.init(expected=last)
    assert fresh.producer_id != last.producer_id and fresh.epoch == 0
    assert bench.init(expected=last) == fresh
    assert bench.init() == Producer(fresh.producer_id, 1)
    assert bench.init(expected=last) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_recovers_keeps_its_id_and_a_repetition_gets_the_same_epoch(
    bench: TransactionBench,
) -> None:
    first = bench.init()
    second = bench.init(expected=first)
    assert second == Producer(first.producer_id, first.epoch + 1)
    assert bench.init(expected=first) == second
    third = bench.init(expected=second)
    assert bench.init(expected=first) is ErrorCode.PRODUCER_FENCED
    assert bench.init(expected=Producer(4711, 0)) is ErrorCode.PRODUCER_FENCED
    assert third.epoch == second.epoch + 1


def test_a_producer_whose_id_another_process_has_taken_does_not_get_the_epoch_of_that_process(
    bench: TransactionBench,
) -> None:
    """Two processes with the same epoch would write into one another's transactions."""
    first = bench.init()
    rival = bench.init()
    assert bench.init(expected=first) is ErrorCode.PRODUCER_FENCED
    assert (bench.add(rival, A), bench.end(rival)) == (OK, rival), "the rival is not disturbed"
    bench.crash()
    assert bench.init(expected=first) is ErrorCode.PRODUCER_FENCED
    assert bench.add(rival, A) is OK


def test_a_recovering_producer_without_epochs_left_gets_an_id_that_a_repetition_gets_too(
    bench: TransactionBench,
) -> None:
    last = at_epoch(bench, EPOCH_MAX - 1)
    fresh = bench.init(expected=last)
    assert fresh.producer_id != last.producer_id and fresh.epoch == 0
    assert bench.init(expected=last) == fresh


@pytest.mark.parametrize("v", [0, 2])
@pytest.mark.parametrize("held", [False, True])
def test_a_producer_that_recovers_from_its_open_transaction_has_it_aborted_and_goes_on(
    bench: TransactionBench, v: int, held: bool
) -> None:
    """KIP-360: the first request aborts the transaction. All its retries get the same new epoch,
    however late the markers are written."""
    first = bench.init()
    bench.add(first, A, v=v)
    bench.hold_markers = held
    assert bench.init(expected=first) in (None, ErrorCode.CONCURRENT_TRANSACTIONS)
    if held:
        assert bench.init(expected=first) is ErrorCode.CONCURRENT_TRANSACTIONS
        bench.write_held_markers()
    second = bench.init(expected=first)
    assert second == Producer(first.producer_id, first.epoch + 1)
    assert bench.init(expected=first) == second
    assert [m.commits for _, m in bench.markers] == [False]
    assert bench.add(first, A, v=v) is ErrorCode.PRODUCER_FENCED
    assert bench.add(second, A, v=v) is OK


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_its_limits_changes_nothing(
    bench: TransactionBench, timeout_ms: int
) -> None:
    assert bench.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not bench.log


def test_an_empty_transactional_id_is_no_id(bench: TransactionBench) -> None:
    assert bench.init(key="") is ErrorCode.INVALID_REQUEST
    assert bench.add(Producer(1, 0), A, key="") is ErrorCode.INVALID_REQUEST
    assert bench.end(Producer(1, 0), key="") is ErrorCode.INVALID_REQUEST


def test_an_id_that_nobody_initialised_has_no_transactions(bench: TransactionBench) -> None:
    assert bench.add(Producer(1, 0), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.end(Producer(1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.check(Producer(1, 0), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
