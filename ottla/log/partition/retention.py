"""Deletes old segments. Their age, the log's size and the log start offset decide which segments
are due; the log removes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.log.files.disk import is_passing
from ottla.log.partition.config import LogConfig
from ottla.wire.errors import StorageFailed

if TYPE_CHECKING:
    from ottla.log.partition.partition_log import PartitionLog


class SegmentFacts(Protocol):
    """The properties of a segment that retention depends on."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp(self, patient: bool = ...) -> int: ...


def segments_due(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    patient: bool = False,
) -> int:
    """How many of the oldest segments may be deleted. All of them are below the high watermark.

    If all segments are due, the active one has to be rolled first. An empty active segment stays.
    An imported log may have other empty segments, which Apache Kafka's compaction leaves.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (not segment.size and segment is segments[-1]):
            break
        expired = (
            config.deletes
            and config.retention_ms >= 0
            and now_ms - segment.largest_timestamp(patient) > config.retention_ms
        )
        surplus = config.deletes and config.retention_bytes >= 0 and excess >= segment.size
        if not (expired or surplus or segment.end_offset <= log_start_offset):
            break
        excess -= segment.size
        count += 1
    assert all(segment.end_offset <= high_watermark for segment in segments[:count])
    return count


def apply_retention(log: PartitionLog, high_watermark: int, patient: bool = False) -> list[str]:
    """Removes segments by time, size and log start; returns paths for any thread to unlink later.

    Raises RebuildNeeded, before anything has changed, if the caller is `patient`; StorageFailed.
    """
    if not log.retention_may_be_due():
        return []
    log.wake(patient)
    count = segments_due(
        log.segments, log.config, log.clock.now_ms(), log.log_start_offset, high_watermark, patient
    )
    if not count or log.offline is not None:
        return []
    # Removing the segments before the active one needs no disk space, and may free some.
    older = min(count, len(log.segments) - 1)
    paths = _remove_oldest(log, older)
    if older < count:
        try:
            log.start_segment(discards=True)
        except OSError as error:
            if not paths or not is_passing(error):
                log.health.refuse("a new segment could not be created", error)
            return paths            # the next call reports the failure
        paths += _remove_oldest(log, 1)
    return paths


def _remove_oldest(log: PartitionLog, count: int) -> list[str]:
    """Removes this many of the oldest segments, none of them the active one."""
    if not count:
        return []
    log.delete_before(max(log.log_start_offset, log.segments[count - 1].end_offset))
    return remove_below_start(log)


def remove_below_start(log: PartitionLog) -> list[str]:
    """Removes every segment below the log start; returns paths for any thread to unlink later.

    Raises StorageFailed.
    """
    paths, segments = [], log.segments
    try:
        while len(segments) > 1 and segments[0].end_offset <= log.log_start_offset:
            paths += log.remove_segment(segments[0])
    except OSError as error:
        raise StorageFailed(
            f"the oldest segment of {log.directory} could not be removed: {error}") from error
    return paths
