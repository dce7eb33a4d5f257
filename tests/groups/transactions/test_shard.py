"""The effects (records, replies, timers) of each request for a transactional id and each timer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.records import Producer
from ottla.groups.result import MarkersDue, Result, TimerKey
from ottla.groups.settings import TransactionSettings
from ottla.groups.transactions.errors import (
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdNotFound,
)
from ottla.groups.transactions.markers import AT_ONCE_MAX, Ending, TransactionMarker
from ottla.groups.transactions.records import (
    TransactionRecord,
    TransactionState,
    TransactionValue,
)
from ottla.groups.transactions.shard import (
    EXPIRE,
    EXPIRE_NEXT,
    MARKERS,
    TIMEOUT,
    End,
    Initialise,
    TransactionShard,
)
from ottla.groups.transactions.transitions import completed
from ottla.wire.errors import ErrorCode, ProtocolError

S = TransactionState
A, B = ("a", 0), ("b", 1)
ME, OLD = Producer(7, 3), Producer(7, 2)
WALL_MS, TICK_MS = 1_000_000, 500
IDLE = TransactionValue(7, 3, 60_000, S.COMPLETE_COMMIT, updated_ms=WALL_MS)
OPEN = TransactionValue(
    7, 3, 60_000, S.ONGOING, frozenset({A}), updated_ms=WALL_MS, started_ms=WALL_MS - 20_000)
ENDING = TransactionValue(7, 3, 60_000, S.PREPARE_ABORT, frozenset({A}), updated_ms=WALL_MS)
SETTINGS = TransactionSettings(
    transaction_max_timeout_ms=900, transactional_id_expiration_ms=5_000,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=300,
    transaction_remove_expired_transaction_cleanup_interval_ms=700,
)


def shard_of(replicated: bool = False, **values: TransactionValue) -> TransactionShard:
    shard = TransactionShard(0, 4, SETTINGS, replicated)
    for name, value in values.items():
        shard.replay(TransactionRecord(name, value))
    return shard


def turn(wall_ms: int = WALL_MS) -> Result:
    return Result(wall_ms, TICK_MS)


@pytest.mark.parametrize(("timeout_ms", "accepted"), [
    (0, False), (1, True), (900, True), (901, False), (-1, False)])
def test_a_timeout_has_limits(timeout_ms: int, accepted: bool) -> None:
    result = turn()
    request = Initialise("t", timeout_ms)
    if accepted:
        shard_of().initialise(request, print, result, 9)
        value = TransactionValue(9, 0, timeout_ms, S.EMPTY, updated_ms=WALL_MS)
        assert result.records == [TransactionRecord("t", value)]
        assert result.replies == [(print, value)]
    else:
        with pytest.raises(InvalidTransactionTimeout, match="1 to 900"):
            shard_of().initialise(request, print, result, 9)
        assert result.records == result.replies == []


def test_an_open_transaction_is_aborted_and_its_successor_told_to_ask_again() -> None:
    result = turn()
    shard_of(t=OPEN).initialise(Initialise("t", 5), print, result)
    (record,), (due,) = result.records, result.markers
    assert record.value is not None and record.value.state is S.PREPARE_ABORT
    assert due.answer is print and isinstance(due.reply, ConcurrentTransactions)
    assert result.replies == []
    with pytest.raises(ConcurrentTransactions):
        shard_of(t=ENDING).initialise(Initialise("t", 5), print, turn())


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("version", [0, 2])
def test_the_first_partitions_start_the_clock_and_known_ones_are_confirmed(
    replicated: bool, version: int
) -> None:
    shard, result = shard_of(replicated, t=IDLE), turn()
    shard.add_partitions("t", ME, frozenset({A}), version, result)
    assert result.timers == [(TimerKey(TIMEOUT, "t"), TICK_MS + 60_000)]
    (record,) = result.records
    shard.replay(record)
    again = turn()
    shard.add_partitions("t", ME, frozenset({A}), version, again)
    assert again.records == ([record] if replicated and version == 0 else [])
    more = turn()
    shard.add_partitions("t", ME, frozenset({A, B}), version, more)
    assert again.timers == more.timers == [] and len(more.records) == 1


@pytest.mark.parametrize("replicated", [False, True])
def test_a_refused_batch_is_confirmed_unless_it_may_be_sent_again(replicated: bool) -> None:
    for value, producer, partitions, confirmed in (
        (OPEN, ME, [A], False), (OPEN, ME, [A, B], True), (OPEN, OLD, [A], True),
        (ENDING, ME, [A, B], False),
    ):
        shard, result = shard_of(replicated, t=value), turn()
        refusals = shard.verify("t", producer, partitions, result)
        assert len(refusals) == {(OPEN, ME): len(partitions) - 1}.get(
            (value, producer), len(partitions))
        assert result.records == (
            [TransactionRecord("t", value)] if confirmed and replicated else [])


@pytest.mark.parametrize("replicated", [False, True])
def test_an_end_waits_for_its_markers_and_a_repeated_one_does_not(replicated: bool) -> None:
    shard, result = shard_of(replicated, t=OPEN), turn()
    shard.end(End("t", ME, True), print, result)
    (record,) = result.records
    assert record.value is not None and record.value.state is S.PREPARE_COMMIT
    after = completed(record.value, WALL_MS)
    assert result.markers == [MarkersDue("t", print, after)] and result.replies == []
    shard.replay(record)
    shard.replay(TransactionRecord("t", after))
    again = turn()
    shard.end(End("t", ME, True), print, again)
    assert again.replies == [(print, after)] and again.markers == []
    assert again.records == ([TransactionRecord("t", after)] if replicated else [])


def test_a_timeout_aborts_what_is_open_and_is_set_again_in_case_the_log_refuses() -> None:
    result = turn()
    shard_of(t=OPEN).fire(TimerKey(TIMEOUT, "t"), result)
    assert result.timers == [(TimerKey(TIMEOUT, "t"), TICK_MS + 300)]
    assert [record.value.state for record in result.records] == [S.PREPARE_ABORT]
    assert result.markers == [MarkersDue("t", None, None)]
    for value in (IDLE, ENDING):
        result = turn()
        shard_of(t=value).fire(TimerKey(TIMEOUT, "t"), result)
        shard_of().fire(TimerKey(TIMEOUT, "t"), result)
        assert (result.records, result.timers, result.markers) == ([], [], [])


def test_markers_are_tried_again_as_long_as_the_transaction_ends() -> None:
    shard, result = shard_of(t=ENDING), turn()
    ending = shard.endings["t"]
    shard.try_again(ending, 100, result)
    assert result.timers == [(TimerKey(MARKERS, "t"), TICK_MS + 100)]
    shard.fire(TimerKey(MARKERS, "t"), result)
    assert result.markers == [MarkersDue("t", None, None)]
    ending.remaining.clear()
    shard.complete(ending, result)
    assert result.records == [TransactionRecord("t", completed(ENDING, WALL_MS))]
    shard.replay(result.records[0])
    late = turn()
    shard.try_again(ending, 100, late)
    shard.fire(TimerKey(MARKERS, "t"), late)
    shard.complete(ending, late)
    assert (late.records, late.timers, late.markers) == ([], [], [])


def test_a_confirmed_state_does_not_begin_its_markers_anew() -> None:
    shard = shard_of(t=ENDING)
    ending = shard.endings["t"]
    shard.replay(TransactionRecord("t", shard.transactions["t"]))
    assert shard.endings["t"] is ending
    assert shard.describe("t") is shard.transactions["t"]
    shard.replay(TransactionRecord("t", None))
    assert shard.transactions == shard.endings == {}
    shard.replay(TransactionRecord("t", None))
    with pytest.raises(TransactionalIdNotFound):
        shard.describe("t")


@pytest.mark.parametrize(("idle_ms", "kept"), [(4_999, True), (5_000, False), (9_000, False)])
def test_ids_expire_after_their_last_use(idle_ms: int, kept: bool) -> None:
    shard, result = shard_of(t=IDLE, o=OPEN, e=ENDING), turn(WALL_MS + idle_ms)
    shard.fire(TimerKey(EXPIRE, ""), result)
    assert result.records == ([] if kept else [TransactionRecord("t", None)])
    assert result.timers == [(TimerKey(EXPIRE, ""), TICK_MS + 700)]
    again = turn(WALL_MS + idle_ms)
    shard.fire(TimerKey(EXPIRE_NEXT, ""), again)
    assert again.records == [], "a round looks at each id once"


@pytest.mark.parametrize(("now_ms", "left_ms"), [
    (WALL_MS, 40_000), (WALL_MS + 39_999, 1), (WALL_MS + 40_000, 0), (WALL_MS + 50_000, 0),
    (WALL_MS - 20_000, 60_000), (WALL_MS - 99_000, 60_000),
])
def test_a_coordinator_that_is_loaded_goes_on_with_the_time_that_is_left(
    now_ms: int, left_ms: int
) -> None:
    result = turn(now_ms)
    shard_of(i=IDLE, o=OPEN, e=ENDING).loaded(result)
    assert result.timers == [
        (TimerKey(TIMEOUT, "o"), TICK_MS + left_ms), (TimerKey(EXPIRE, ""), TICK_MS + 700)]
    assert result.markers == [MarkersDue("e", None, None)] and result.records == []


def test_a_coordinator_is_alone_unless_it_is_told_otherwise() -> None:
    shard, result = TransactionShard(0, 4, SETTINGS), turn()
    shard.confirm("t", result)
    assert result.records == [] and not shard.is_read
    shard_of(True, t=IDLE).confirm("t", result)
    assert result.records == [TransactionRecord("t", IDLE)]
    shard_of(True, t=IDLE).confirm("t", result)
    assert len(result.records) == 1, "a record confirms it already"


class Written:
    """The markers that an `Ending` writes, in order, and how often it has called `settled`."""

    def __init__(self, count: int) -> None:
        self.partitions = [("t", index) for index in range(count)]
        value = TransactionValue(
            7, 3, 5, S.PREPARE_COMMIT, frozenset(self.partitions), client_version=2)
        self.ending = Ending("t", value, 4)
        self.done: list[Any] = []
        self.refused: dict[int, ProtocolError] = {}
        self.settled = 0

    def write(self, partition: Any, marker: TransactionMarker, done: Any) -> None:
        assert marker == TransactionMarker(7, 3, 4, True, 2)
        if partition[1] in self.refused:
            raise self.refused.pop(partition[1])
        self.done.append((partition, done))

    def drive(self) -> list[int]:
        """Drive the ending for one turn; returns the partitions whose markers it wrote."""
        before = len(self.done)
        self.ending.drive(self.write, self.count)
        return [index for (_, index), _ in self.done[before:]]

    def count(self, ending: Ending) -> None:
        assert ending is self.ending
        self.settled += 1

    def finish(self, error: ProtocolError | None = None) -> None:
        done, self.done = self.done, []
        for _, each in done:
            each(error)


def test_markers_are_written_in_order_and_some_at_a_time() -> None:
    written = Written(AT_ONCE_MAX + 2)
    assert written.drive() == list(range(AT_ONCE_MAX))
    assert written.ending.has_untried and written.settled == 0
    assert written.drive() == [], "the first ones are still being written"
    written.finish()
    assert written.settled == 1 and len(written.ending.remaining) == 2
    assert written.drive() == [AT_ONCE_MAX, AT_ONCE_MAX + 1]
    assert not written.ending.has_untried
    written.finish()
    assert written.settled == 2 and not written.ending.remaining


def test_a_marker_that_fails_is_tried_after_the_others() -> None:
    written = Written(3)
    written.refused[1] = ProtocolError("moved", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert written.drive() == [0, 2]
    written.finish()
    assert written.settled == 1 and written.ending.remaining == {("t", 1)}
    assert written.drive() == [1]
    written.finish(ProtocolError("moved", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert written.settled == 2 and written.drive() == [1]
    written.finish(ProtocolError("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert written.settled == 3 and not written.ending.remaining


def test_who_waits_for_an_end_is_answered_once() -> None:
    written, told = Written(1), list[str]()
    written.ending.release()
    written.ending.wait(told.append, "done")
    for _ in range(2):
        written.ending.release()
    assert told == ["done"]
    shard = shard_of(t=ENDING)
    shard.endings["t"].wait(told.append, "moved")
    (answer,) = shard.waiting()
    answer(ProducerFenced("ignored"))
    assert told == ["done", "moved"]
