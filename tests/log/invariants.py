"""Checks of what holds for every log in use. The log itself asserts what is cheap, after each step
(`check_offsets`). These checks walk all segments and index files, so only tests and the simulation
call them."""

from __future__ import annotations

from itertools import pairwise

from ottla.log.files.offset_index import OffsetIndex
from ottla.log.files.time_index import TimeIndex
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.segment import Segment


def check_log(log: PartitionLog) -> None:
    """Check a log. If it is damaged or at rest, only its offsets are checked, so that a log at rest
    stays at rest."""
    start, end, stable = log.log_start_offset, log.log_end_offset, log.last_stable_offset
    assert 0 <= start <= end, f"the log begins at {start} and ends at {end}"
    assert stable <= end, f"the last stable offset {stable} is above the log end {end}"
    if log.aborted_sizes() is None or log.damage is not None:
        return                          # at rest, or damaged
    saved, point, segments, epochs = (
        log.checkpoint_offset, log.recovery_point, log.segments, log.epochs.entries)
    assert saved <= point <= end, (
        f"saved recovery point {saved}, recovery point {point}, log end {end}: not in order")
    for before, after in pairwise(segments):
        assert before.base_offset <= before.end_offset <= after.base_offset, (
            f"segments overlap: {before}, {after}")
    if segments:
        first, last = segments[0].base_offset, segments[-1].end_offset
        assert last == end, f"the last segment ends at {last}, the log at {end}"
        assert first <= start, f"the first segment begins at {first}, the log at {start}"
    for (epoch, first), (later, next_first) in pairwise(epochs):
        assert epoch < later and first < next_first, f"leader epochs do not ascend: {epochs}"
    assert not epochs or epochs[-1][1] <= end, (
        f"a leader epoch begins above the log end {end}: {epochs}")
    for producer in log.producers.values():
        assert producer.last_offset < end and producer.transaction_start < end, (
            f"producer {producer.producer_id} has offsets above the log end {end}")


def check_indexes(log: PartitionLog) -> None:
    """Check the index files of all segments but the active one: the entries must ascend, and lie
    within the segment. Not for logs after a power cut: there, a file may have lost pages until it
    is rebuilt at its first use."""
    for segment in log.segments[:-1]:
        check_segment(log, segment)


def check_segment(log: PartitionLog, segment: Segment) -> None:
    base = segment.base_offset
    by_offset = OffsetIndex(log.disk, segment.path(".index"), base).entries()
    by_time = TimeIndex(log.disk, segment.path(".timeindex"), base).entries()
    for entries in (by_offset, by_time):
        for (key, value), (next_key, next_value) in pairwise(entries):
            assert key < next_key and value < next_value, (
                f"{segment}: the entries of an index do not ascend")
    for offset, position in by_offset:
        assert base <= offset < segment.end_offset and 0 <= position < segment.size, (
            f"{segment}: its index has offset {offset} at position {position}")
    for _, offset in by_time:
        assert base <= offset < segment.end_offset, f"{segment}: its time index has {offset}"
