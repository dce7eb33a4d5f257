"""Transactions that are open too long are aborted; ids that nobody uses are forgotten."""

from __future__ import annotations

import pytest

from ottla.groups.records import Producer
from ottla.groups.transactions.records import (
    EPOCH_MAX,
    TransactionRecord,
)
from ottla.groups.transactions.shard import LOOKS_MAX
from ottla.wire.errors import ErrorCode, StorageFailed
from tests.groups.transactions.bench import (
    OK,
    A,
    B,
    S,
    TransactionBench,
    at_epoch,
)


def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced(
    bench: TransactionBench,
) -> None:
    producer = bench.init(timeout_ms=5_000)
    bench.wait(60_000)
    bench.add(producer, A)
    bench.wait(4_000)
    bench.add(producer, B)
    bench.wait(999)
    assert bench.state() is S.ONGOING
    bench.wait(1)
    assert bench.state() is S.COMPLETE_ABORT
    assert {(p, m.commits) for p, m in bench.markers} == {(A, False), (B, False)}
    assert bench.check(producer, A) is ErrorCode.PRODUCER_FENCED
    assert bench.end(producer) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_was_too_slow_is_fenced_learns_its_epoch_by_its_abort_and_goes_on(
    bench: TransactionBench,
) -> None:
    slow = bench.init(timeout_ms=5_000)
    bench.add(slow, A, v=2)
    bench.wait(5_000)
    assert bench.end(slow, v=2) is ErrorCode.PRODUCER_FENCED
    after = bench.end(slow, commit=False, v=2)
    assert after == Producer(slow.producer_id, slow.epoch + 1)
    assert bench.init(expected=slow) == after
    assert bench.add(after, A, v=2) is OK


def test_an_epoch_that_can_be_fenced_only_once_more_is_not_told_to_who_was_too_slow(
    bench: TransactionBench,
) -> None:
    last = at_epoch(bench, EPOCH_MAX - 1)
    bench.add(last, A, v=2)
    bench.wait(60_000)
    assert bench.state() is S.COMPLETE_ABORT
    assert bench.end(last, commit=False, v=2) is ErrorCode.PRODUCER_FENCED
    fresh = bench.init(expected=last)
    assert fresh.producer_id != last.producer_id and fresh.epoch == 0
    assert bench.init(expected=last) == fresh


def test_the_time_of_one_transaction_is_not_that_of_the_next(bench: TransactionBench) -> None:
    producer = bench.init(timeout_ms=5_000)
    for _ in range(4):
        bench.add(producer, A)
        bench.wait(3_000)
        assert bench.end(producer) == producer


def test_the_time_goes_on_over_a_crash(bench: TransactionBench) -> None:
    bench.add(bench.init(timeout_ms=5_000), A)
    bench.wait(3_000)
    bench.crash()
    bench.wait(1_999)
    assert bench.state() is S.ONGOING
    bench.wait(1)
    assert bench.state() is S.COMPLETE_ABORT


def test_an_abort_that_the_log_refuses_is_tried_again(bench: TransactionBench) -> None:
    bench.add(bench.init(timeout_ms=5_000), A)
    bench.refusal = StorageFailed("disk full")
    bench.wait(5_000)
    assert bench.state() is S.ONGOING and not bench.markers
    bench.refusal = None
    bench.wait(10_000)
    assert bench.state() is S.COMPLETE_ABORT


def test_ids_that_nobody_uses_are_forgotten_and_open_transactions_are_not(
    bench: TransactionBench,
) -> None:
    week_ms = 604_800_000
    bench.init("idle")
    bench.add(bench.init("ended"), A, key="ended")
    bench.end(Producer(bench.value("ended").producer_id, 0), key="ended")
    bench.wait(week_ms // 2)
    bench.init("used")
    bench.wait(week_ms // 2 + 3_600_000)
    bench.crash()
    known = {name for shard in bench.runtime.shards() for name in shard.transactions}
    assert known == {"used"}


@pytest.mark.parametrize("ends", [False, True])
def test_a_transaction_that_is_not_over_is_not_forgotten_however_old(ends: bool) -> None:
    bench = TransactionBench(
        transaction_state_log_num_partitions=1, transactional_id_expiration_ms=1_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=500,
    )
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_markers = True
    if ends:
        bench.end_later(producer)
    bench.wait(59_000)
    assert bench.state() is (S.PREPARE_COMMIT if ends else S.ONGOING)
    if not ends:
        bench.hold_markers = False
        assert bench.end(producer) == producer
    bench.write_held_markers()
    assert bench.state() is S.COMPLETE_COMMIT
    bench.wait(999)
    assert bench.state() is S.COMPLETE_COMMIT
    bench.wait(1)
    assert not bench.runtime.shard("t").transactions


@pytest.mark.parametrize("count", [LOOKS_MAX, LOOKS_MAX + 1, 2 * LOOKS_MAX + 1])
def test_many_ids_are_forgotten_in_slices_and_one_that_is_gone_holds_nothing_up(
    count: int,
) -> None:
    bench = TransactionBench(
        transaction_state_log_num_partitions=1, transactional_id_expiration_ms=1_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=5_000,
    )
    for number in range(count):
        bench.init(f"t{number}")
    transactions = bench.runtime.shard("t").transactions
    bench.clock.elapsed_ms = 5_000
    bench.runtime.fire()
    assert len(transactions) == count - LOOKS_MAX
    for key in [*transactions][:1]:
        bench.runtime.shard("t").replay(TransactionRecord(key, None))
    bench.wait(2)
    assert not transactions
    assert bench.runtime.next_timer_ms() in range(10_000, 10_003)
