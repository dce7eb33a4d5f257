"""Finds records by timestamp: the time index leads to a batch, its records are looked at."""

from ottla.log.segment import Segment

def first_at(
    segments: list[Segment], start: int, end: int, timestamp: int
) -> tuple[int, int, int] | None: ...
def newest(segments: list[Segment], start: int, end: int) -> tuple[int, int, int] | None: ...
