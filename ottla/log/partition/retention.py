"""Which segments are due to be deleted: by time, by size, by the log's start. Only decides."""

from collections.abc import Sequence
from typing import Protocol

from ottla.log.partition.config import LogConfig


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
    """How many of the oldest segments may be deleted. Nothing at or above the high watermark is.

    If it is all of them, the active one has to be rolled first. An empty active segment stays.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark or not segment.size:
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
