"""Transactions and their markers: ends that are decided once, and markers that get through."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from ottla.groups.records import Producer
from ottla.groups.transactions.records import (
    EPOCH_MAX,
    TopicIndex,
)
from ottla.wire.errors import ErrorCode, ProtocolError, StorageFailed
from tests.groups.transactions.bench import (
    COORDINATOR_EPOCH,
    OK,
    A,
    B,
    C,
    S,
    TransactionBench,
    at_epoch,
)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("v", [0, 2])
def test_an_end_is_answered_when_every_partition_has_its_marker(
    bench: TransactionBench, commit: bool, v: int
) -> None:
    producer = bench.init()
    bench.add(producer, A, v=v)
    bench.add(producer, B, C, v=v)
    bench.hold_markers = True
    answers = bench.end_later(producer, commit, v=v)
    assert not answers and bench.value().is_ending
    epoch = producer.epoch + (v == 2)
    assert {p for p, _ in bench.markers} == {A, B, C}
    assert {m for _, m in bench.markers} == {
        (producer.producer_id, epoch, COORDINATOR_EPOCH, commit, v)
    }
    assert bench.add(Producer(producer.producer_id, epoch), A) is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_held_markers()
    assert [(a.producer_id, a.epoch) for a in answers] == [(producer.producer_id, epoch)]
    assert bench.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert not bench.value().partitions


def test_a_batch_is_not_permitted_by_an_addition_that_a_fail_over_may_lose(
    bench: TransactionBench,
) -> None:
    producer = bench.init()
    bench.hold_commits = True
    bench.add(producer, A)
    told: list[dict[TopicIndex, ProtocolError]] = []
    bench.runtime.change("t", lambda s, r: s.verify("t", producer, [A, B], r), told.append)
    assert not told
    bench.hold_commits = False
    bench.commit_all()
    assert [each.code for each in told[0].values()] == [ErrorCode.TRANSACTION_ABORTABLE]
    assert list(told[0]) == [B]


def test_no_marker_is_written_before_the_decision_is_on_the_disk(bench: TransactionBench) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_commits = True
    answers = bench.end_later(producer)
    assert not bench.markers and not answers
    bench.commit_all()
    assert len(bench.markers) == 1 and len(answers) == 1


def test_a_partition_is_added_once(bench: TransactionBench) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    size = len(bench.log)
    assert bench.add(producer, B) is OK
    assert len(bench.log) == size + bench.replicated, "a coordinator with successors confirms it"
    assert bench.check(producer, A) is OK
    assert bench.check(producer, C) is ErrorCode.TRANSACTION_ABORTABLE


def test_what_is_not_open_cannot_be_committed(bench: TransactionBench) -> None:
    producer = bench.init()
    for v in (0, 2):
        assert bench.end(producer, v=v) is ErrorCode.INVALID_TXN_STATE
    assert bench.end(producer, commit=False) is ErrorCode.INVALID_TXN_STATE


def test_an_end_that_is_repeated_is_answered_again_and_its_opposite_refused(
    bench: TransactionBench,
) -> None:
    producer = bench.init()
    bench.add(producer, A)
    assert bench.end(producer) == producer
    assert bench.end(producer) == producer
    assert bench.end(producer, commit=False) is ErrorCode.INVALID_TXN_STATE
    assert len(bench.markers) == 1


def test_with_an_epoch_for_each_transaction_a_repeated_end_is_known_by_its_epoch(
    bench: TransactionBench,
) -> None:
    first = bench.init()
    bench.add(first, A, v=2)
    second = bench.end(first, v=2)
    assert second == Producer(first.producer_id, first.epoch + 1)
    assert bench.end(first, v=2) == second
    assert bench.end(first, commit=False, v=2) is ErrorCode.INVALID_TXN_STATE
    assert bench.add(first, B, v=2) is ErrorCode.PRODUCER_FENCED
    bench.add(second, A, v=2)
    # A delayed end of the first transaction must not end the second one (KIP-890).
    assert bench.end(first, v=2) is ErrorCode.PRODUCER_FENCED
    assert bench.end(second, commit=False, v=2).epoch == second.epoch + 1


def test_an_abort_of_nothing_is_an_end_with_an_epoch_too(bench: TransactionBench) -> None:
    producer = bench.init()
    after = bench.end(producer, commit=False, v=2)
    assert after.epoch == producer.epoch + 1
    assert not bench.markers
    assert bench.end(after, commit=False, v=2).epoch == after.epoch + 1


def test_the_end_that_uses_up_the_epochs_returns_another_producer_id(
    bench: TransactionBench,
) -> None:
    last = at_epoch(bench, EPOCH_MAX - 1)
    bench.add(last, A, v=2)
    fresh = bench.end(last, v=2)
    assert fresh.producer_id != last.producer_id and fresh.epoch == 0
    assert {(m.producer_id, m.epoch) for _, m in bench.markers} == {(last.producer_id, EPOCH_MAX)}
    assert bench.end(last, v=2) == fresh
    assert bench.add(fresh, A, v=2) is OK


def test_ends_while_ending_have_to_wait(bench: TransactionBench) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_markers = True
    bench.end_later(producer)
    assert bench.end(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(producer, commit=False) is ErrorCode.INVALID_TXN_STATE
    assert bench.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.check(producer, A) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_marker_that_fails_is_written_again_and_the_client_does_not_wait(
    bench: TransactionBench,
) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    bench.marker_errors[A] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.end(producer) == producer
    assert bench.state() is S.PREPARE_COMMIT
    bench.wait(1_000)
    assert bench.state() is S.PREPARE_COMMIT
    bench.marker_errors.clear()
    bench.wait(100)
    assert bench.state() is S.COMPLETE_COMMIT
    assert [p for p, _ in bench.markers] == [B, A]


def test_a_marker_whose_write_ends_unexpectedly_is_written_again_and_holds_no_other_one(
    bench: TransactionBench, caplog: pytest.LogCaptureFixture
) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    bench.marker_errors[A] = EOFError("the log was cut below what is known of it")
    assert bench.end(producer) == producer
    bench.wait(1_000)
    assert [p for p, _ in bench.markers] == [B]
    assert caplog.text.count("EOFError") == 1, "it is tried often, and logged once"
    bench.marker_errors.clear()
    bench.wait(100)
    assert bench.state() is S.COMPLETE_COMMIT
    assert [p for p, _ in bench.markers] == [B, A]
    assert bench.add(producer, A) is OK


def test_what_is_committed_while_another_record_is_written_comes_after_that_one() -> None:
    """During an append, the leader may stop waiting for a follower that has fallen behind. Then the
    high watermark rises and commits an earlier append, here the decision to abort a transaction. So
    the completion of the abort is recorded at once. This record is written after the record that is
    being appended, so it also has to be replayed after that record."""
    bench = TransactionBench(True)
    zombie = bench.init()
    producer = bench.init()
    bench.hold_commits = True
    answers = bench.end_later(producer, commit=False, v=2)
    assert (answers, bench.state()) == ([], S.PREPARE_ABORT)
    append = bench.append

    def commits_the_one_before(*appended: Any) -> None:
        before = bench.uncommitted.pop(0)
        bench.append = append               # type: ignore[method-assign]
        append(*appended)
        before(None)

    bench.append = commits_the_one_before   # type: ignore[method-assign]
    assert bench.end(zombie, v=2) is None, "its refusal waits for a record of the same id"
    bench.commit_all()
    bench.commit_all()
    after = bench.state()
    assert after is S.COMPLETE_ABORT and len(answers) == 1
    bench.crash()
    assert bench.state() is after, "a fail-over shows the same"


@pytest.mark.parametrize("refusal", [StorageFailed("disk full"), OSError(5, "no luck")])
def test_an_end_whose_completion_the_log_refuses_is_completed_once_it_does_not(
    bench: TransactionBench, refusal: Exception
) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_markers = True
    answers = bench.end_later(producer)
    bench.refusal = refusal
    with nullcontext() if isinstance(refusal, ProtocolError) else pytest.raises(OSError):
        bench.write_held_markers()
    assert len(answers) == 1, "the markers are there: the client need not wait"
    assert bench.state() is S.PREPARE_COMMIT
    bench.refusal = None
    bench.wait(100)
    assert bench.state() is S.COMPLETE_COMMIT
    assert bench.add(producer, A) is OK


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_a_partition_that_is_gone_or_further_on_holds_nothing_up(
    bench: TransactionBench, code: ErrorCode
) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    bench.marker_errors[A] = code
    assert bench.end(producer) == producer
    assert bench.state() is S.COMPLETE_COMMIT
