"""Transactional ids: epochs that fence, ends that no crash takes back, markers that get through."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.result import Result
from ottla.groups.transactions.errors import NeedsProducerId
from ottla.groups.transactions.markers import AT_ONCE_MAX
from ottla.groups.transactions.records import (
    EPOCH_MAX,
    TopicIndex,
    TransactionRecord,
    TransactionState,
    TransactionValue,
)
from ottla.groups.transactions.shard import LOOKS_MAX, Initialise
from ottla.wire.errors import ErrorCode, ProtocolError, StorageFailed
from tests.groups.transactions.bench import COORDINATOR_EPOCH, TransactionBench

A, B, C = ("a", 0), ("b", 1), ("__consumer_offsets", 7)
OK = ErrorCode.NONE
S = TransactionState


@pytest.fixture(params=[False, True], ids=["alone", "replicated"])
def bench(request: pytest.FixtureRequest) -> TransactionBench:
    return TransactionBench(request.param, transaction_state_log_num_partitions=2)


def at_epoch(bench: TransactionBench, epoch: int) -> Producer:
    """An idle transactional id whose producer has this epoch."""
    producer = bench.init()
    value = TransactionValue(producer.producer_id, epoch, 60_000, S.COMPLETE_COMMIT)
    bench.runtime.shard("t").replay(TransactionRecord("t", value))
    return Producer(producer.producer_id, epoch)


# Epochs


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
    """The next one would not fit into the log's format."""
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
    """KIP-360: the first request aborts, its retries get one epoch, whenever the markers come."""
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


# Transactions


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


# Markers


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
    """An append may raise the high watermark, as a follower that has fallen behind is not waited
    for any more, and so commit the append before it. The transaction's end follows from that: it
    is recorded after the record that is being written, and has to be replayed after it."""
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


# Time


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


# Crashes


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_was_recorded_is_driven_on_after_a_crash(
    bench: TransactionBench, commit: bool
) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    bench.hold_markers = True
    bench.end_later(producer, commit)
    bench.markers.clear()
    bench.hold_markers = False
    bench.crash(lost=100)
    assert [(p, m.commits) for p, m in bench.markers] == [(A, commit), (B, commit)]
    assert bench.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


def test_an_end_that_was_not_recorded_leaves_the_transaction_open(bench: TransactionBench) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_commits = True
    answers = bench.end_later(producer)
    bench.crash(lost=100)
    assert not answers and not bench.markers
    assert bench.state() is S.ONGOING
    bench.hold_commits = False
    assert bench.end(producer, commit=False) == producer


def test_a_log_that_fails_tells_everybody_and_decides_nothing(bench: TransactionBench) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_commits = True
    answers = bench.end_later(producer)
    for committed in bench.uncommitted:
        committed(StorageFailed("disk full"))
    assert [a.code for a in answers] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not bench.markers
    assert bench.end(producer) is ErrorCode.NOT_COORDINATOR


def test_a_coordinator_that_moves_answers_the_ends_that_are_decided(
    bench: TransactionBench,
) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.hold_markers = True
    answers = bench.end_later(producer)
    bench.runtime.unload(bench.runtime.partition_of("t"))
    assert [(a.producer_id, a.epoch) for a in answers] == [producer]
    bench.write_held_markers()
    assert len(answers) == 1


def test_every_moment_is_its_own_tick(bench: TransactionBench) -> None:
    for elapsed_ms in range(10_000):
        bench.clock.elapsed_ms = elapsed_ms
        assert bench.runtime.tick_ms() == elapsed_ms


@pytest.mark.parametrize("unreachable", [False, True])
def test_an_end_goes_on_after_the_internal_topic_has_got_more_partitions(
    bench: TransactionBench, unreachable: bool
) -> None:
    """The transactional id belongs to another one of them then, but its markers are still due."""
    producer, shard = bench.init(), bench.runtime.shard("t")
    partitions = [("a", index) for index in range(AT_ONCE_MAX + 1)]
    bench.add(producer, *partitions)
    bench.hold_markers = True
    bench.end_later(producer)
    bench.runtime.partitions += 1
    assert bench.runtime.live_shard("t") is not shard
    bench.hold_markers = False
    if unreachable:
        bench.marker_errors[partitions[-1]] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.write_held_markers()
    bench.wait(1_000)
    bench.marker_errors.clear()
    bench.wait(1_000)
    assert {where for where, _ in bench.markers} == set(partitions)
    assert shard.transactions["t"].state is TransactionState.COMPLETE_COMMIT
