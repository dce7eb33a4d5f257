"""Decides by Kafka's rules which logs are due to be cleaned, and up to which offset."""

from typing import NamedTuple

from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.segment import Segment
from ottla.wire.marks import reached


class Cleanable(NamedTuple):
    """The part of a log that may be cleaned: all segments below `end_offset`.

    No cleaning pass has reached the records from `first_dirty_offset` on. They are called dirty;
    `ratio` is their share of the bytes. `overdue` means that some dirty records may be older than
    max.compaction.lag.ms.
    """

    log: PartitionLog
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The dirty records' share of the bytes, from 0 to 1."""
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def due(self) -> bool:
        """Whether a pass is due now, by the share of dirty records or by their age."""
        if not self.dirty_bytes:
            return False
        return self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable(
    log: PartitionLog, high_watermark: int, now_ms: int, patient: bool = False
) -> Cleanable | None:
    """The part of a log that may be cleaned now.

    None if the log is not compacted, has no sealed segments, or is offline. With `patient`, raises
    RebuildNeeded if a thread has to read the log or rebuild an index first. A pass never cleans:

    - the active segment;
    - an open transaction and everything after it;
    - records that are not yet committed or not yet durable; and
    - records younger than min.compaction.lag.ms.
    """
    if not log.config.compacts or log.offline is not None:
        return None             # an offline log at rest cannot be woken
    log.wake(patient)
    sealed = log.segments[:-1]
    if not sealed or log.offline is not None:
        return None
    first_dirty = log.first_dirty_offset
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    dirty = [segment for segment in sealed if segment.end_offset > first_dirty]
    limit = min(log.stable_offset(high_watermark), log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    count = 0
    for segment in dirty:
        if segment.end_offset > limit and limit == log.recovery_point:
            reached("compaction waits for a flush")
        if segment.end_offset > limit or (
            lag_ms > 0 and segment.largest_timestamp(patient) > now_ms - lag_ms
        ):
            break
        count += 1
    return Cleanable(
        log,
        first_dirty,
        dirty[count - 1].end_offset if count else first_dirty,
        sum(segment.size for segment in sealed if segment.end_offset <= first_dirty),
        sum(segment.size for segment in dirty[:count]),
        is_overdue(dirty, log.config.max_compaction_lag_ms, now_ms, patient),
    )


def is_overdue(dirty: list[Segment], lag_max_ms: int, now_ms: int, patient: bool) -> bool:
    """Whether a record in a dirty segment may be older than max.compaction.lag.ms."""
    if lag_max_ms >= now_ms:
        return False
    for segment in dirty:
        segment.load_times(patient)
        if 0 < segment.first_timestamp < now_ms - lag_max_ms:
            return True
    return False


def groups_of(
    segments: list[Segment], size_max: int, index_entries_max: int, index_interval: int
) -> list[list[Segment]]:
    """Groups adjacent segments; a pass rewrites each group as one segment.

    A group of several segments has at most `size_max` bytes.
    """
    groups: list[list[Segment]] = []
    size = 0
    # Index entries are more than `index_interval` bytes apart. So a new segment of at most
    # `bytes_max` bytes needs at most `index_entries_max` entries.
    bytes_max = min(size_max, index_entries_max * max(1, index_interval))
    for segment in segments:
        fits = bool(groups) and size + segment.size <= bytes_max
        if fits and segment.end_offset - groups[-1][0].base_offset <= 0x7FFFFFFF:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups
