"""Files beside a log (leader epochs, producers, aborted transactions) are believed if they match
its batches."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.producers import Producers
from ottla.log.files.snapshots import state_of
from ottla.log.files.transaction_index import ENTRY, AbortedTransaction
from ottla.log.partition.aborted_transactions import AbortedTransactions, trusted
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.trust import (
    FAR,
    LOOKS_MAX,
    NOTHING,
    BatchFacts,
    epochs_fit,
    header_in,
    snapshot_fits,
)
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch
from tests.log.faulty_disk import FaultyDisk


@pytest.fixture
def log() -> PartitionLog:
    """Four batches: offsets 0-1 of producer 7, offset 2 without a producer, offsets 3-5 of producer
    8, and offset 6 of producer 7. Their leader epochs are 1, 1, 3 and 4. The segments begin at 0, 2
    and 6."""
    log = PartitionLog.open(FaultyDisk(), FakeClock(), "/data/t-0")
    parts: list[tuple[tuple[bytes, ...], int, int]] = [
        ((b"a", b"b"), 7, 1), ((b"c",), -1, 1), ((b"d", b"e", b"f"), 8, 3), ((b"g",), 7, 4),
    ]
    sequence = {7: 0, 8: 0, -1: -1}
    for at, (values, producer_id, epoch) in enumerate(parts):
        if at in (1, 3):
            log.roll()
        first = sequence[producer_id]
        log.append_bytes(batch(
            *values, producer_id=producer_id, epoch=0 if producer_id >= 0 else -1, sequence=first,
            timestamps=[NOW_MS + at] * len(values)), epoch)
        sequence[producer_id] += len(values)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 6]
    return log


@pytest.mark.parametrize(("offset", "expected"), [
    (0, (0, 1, 1, 7)), (1, (0, 1, 1, 7)), (2, (2, 2, 1, -1)), (4, (3, 5, 3, 8)), (5, (3, 5, 3, 8)),
    (6, (6, 6, 4, 7)),
])
def test_the_header_of_the_batch_with_an_offset_is_found(
    log: PartitionLog, offset: int, expected: tuple[int, ...]
) -> None:
    found = header_in(log.segments, offset, False)
    assert (found.first, found.last, found.leader_epoch, found.producer_id) == expected
    assert not found.transactional and not found.control
    assert found.max_timestamp == NOW_MS + {1: 0, 2: 1, 5: 2, 6: 3}[found.last]


def test_behind_the_last_batch_and_before_the_first_segment_is_nothing(log: PartitionLog) -> None:
    assert header_in(log.segments, 7, False) is NOTHING
    assert header_in(log.segments[1:], 1, False) is NOTHING
    assert BatchFacts(FAR, FAR, -1, False, False, -1, -1) == NOTHING
    assert FAR == 0x7FFFFFFFFFFFFFFF


@pytest.mark.parametrize(("entries", "fits"), [
    ([(1, 0), (3, 3), (4, 6)], True),
    ([(1, 1), (3, 3), (4, 6)], True),               # the log start was moved up
    ([(1, 0), (3, 3)], False),                      # the last epoch is missing
    ([(3, 3), (4, 6)], True),                       # the first epochs may be missing
    ([], False),
    ([(1, 0), (3, 2), (4, 6)], False),              # offset 2 is of epoch 1
    ([(1, 0), (2, 3), (4, 6)], False),
    ([(1, 0), (3, 4), (4, 6)], False),              # epoch 3 began before
    ([(1, 0), (3, 3), (4, 5)], False),
    ([(0, 0), (3, 3), (4, 6)], False),
    ([(1, 0), (3, 3), (4, 6), (5, 7)], True),       # epoch 5 has no records yet
    ([(1, 0), (3, 3), (4, 6), (5, 8)], False),      # beyond the log's end
    ([(1, 0), (3, 3), (5, 6)], False),
])
def test_leader_epochs_are_believed_if_the_batches_have_them(
    log: PartitionLog, entries: list[tuple[int, int]], fits: bool
) -> None:
    assert epochs_fit(LeaderEpochs(entries), log.segments, False) is fits


def snapshot(*states: tuple[int, int, int]) -> Producers:
    """Producers by id, last offset, and the first offset of an open transaction or -1."""
    producers = Producers()
    for producer_id, last_offset, start in states:
        sequence = 0 if last_offset >= 0 else -1
        producers.add(state_of(producer_id, 0, sequence, last_offset, 0, NOW_MS, 0, start))
    return producers


@pytest.mark.parametrize(("states", "fits"), [
    ([(7, 6, -1), (8, 5, -1)], True),
    ([(7, 1, -1), (8, 5, -1)], True),
    ([(8, 5, -1)], False),                          # the newest producer is missing
    ([(7, 6, -1), (8, 4, -1)], False),              # no batch ends there
    ([(7, 6, -1), (8, 1, -1)], False),              # another producer's batch
    ([(7, 7, -1)], False),                          # beyond the snapshot
    ([(7, 6, 3)], False),                           # another producer's transaction
    ([(7, 6, 0)], True),
    ([(7, 6, 7)], False),
    ([(7, -1, -1)], True),                          # producer 7 has no batch
    ([(7, 6, -1), (9, 0, -1)], False),
])
def test_a_snapshot_is_believed_if_the_batches_are_its_producers(
    log: PartitionLog, states: list[Any], fits: bool
) -> None:
    assert snapshot_fits(snapshot(*states), 7, log.segments, 0, False) is fits


def test_a_snapshot_may_lack_who_was_silent_for_long(log: PartitionLog) -> None:
    for forgotten_ms, fits in ((NOW_MS + 2, False), (NOW_MS + 3, True), (NOW_MS + 4, True)):
        assert snapshot_fits(snapshot((8, 5, -1)), 7, log.segments, forgotten_ms, False) is fits


def test_a_snapshot_before_a_batch_of_nobody_needs_no_producer(log: PartitionLog) -> None:
    assert snapshot_fits(snapshot(), 3, log.segments, 0, False)
    assert not snapshot_fits(snapshot(), 2, log.segments, 0, False)
    assert snapshot_fits(snapshot(), 0, log.segments, 0, False)
    assert snapshot_fits(snapshot((9, 1, -1)), 2, log.segments[1:], 0, False), "retention took it"


def test_only_the_newest_producers_are_looked_at(log: PartitionLog) -> None:
    wrong = [(100, 1, -1)]
    right = [(number, -1, -1) for number in range(200, 200 + LOOKS_MAX - 1)] + [(7, 6, -1)]
    assert snapshot_fits(snapshot(*wrong, *right), 7, log.segments, 0, False)
    assert not snapshot_fits(snapshot(*wrong, *right[1:]), 7, log.segments, 0, False)


ABORTED = [
    AbortedTransaction(1, 10, 20, 21), AbortedTransaction(2, 5, 22, 5),
    AbortedTransaction(3, 23, 25, 26), AbortedTransaction(4, 24, 30, 24),
]


def test_aborted_transactions_are_found_by_their_markers() -> None:
    known = AbortedTransactions(b"".join(ENTRY.pack(0, *each) for each in ABORTED))
    assert len(known) == 4 and [known.entry(at) for at in range(4)] == ABORTED
    assert [known.first_from(offset) for offset in (0, 20, 21, 22, 23, 25, 26, 30, 31)] == [
        0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert known.earliest == 5 and list(known.lowest) == [5, 5, 23, 24]
    assert list(known.checked) == [0, 0, 0, 0]
    known.add(AbortedTransaction(5, 23, 31, 32))
    assert list(known.lowest) == [5, 5, 23, 23, 23] and known.earliest == 5
    known.add(AbortedTransaction(6, 1, 32, 33))
    assert list(known.lowest) == [1] * 6 and known.earliest == 1
    assert AbortedTransactions(b"").earliest == FAR and len(AbortedTransactions(b"")) == 0


def test_what_was_found_in_the_batches_needs_no_check() -> None:
    made = trusted(ABORTED)
    assert list(made.checked) == [1] * 4 and [made.entry(at) for at in range(4)] == ABORTED
