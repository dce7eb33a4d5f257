"""The end of a transaction survives crashes, and coordinators that move or fail."""

from __future__ import annotations

import pytest

from ottla.groups.transactions.markers import AT_ONCE_MAX
from ottla.groups.transactions.records import (
    TransactionState,
)
from ottla.wire.errors import ErrorCode, StorageFailed
from tests.groups.transactions.bench import (
    A,
    B,
    S,
    TransactionBench,
)


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
    """With more partitions in the topic, the transactional id belongs to another one of them. The
    markers of its transaction are still due."""
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
