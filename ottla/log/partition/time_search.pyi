"""Finds records by timestamp: the time index leads to a batch, whose records are examined."""

from collections.abc import Generator

from ottla.log.partition.segment import Segment

FoundRecord = tuple[int, int, int]

class RecordSearch:
    """One batch to be searched: `run` searches it, in any thread, and sets `record`."""

    record: FoundRecord | None
    @property
    def takes_long(self) -> bool: ...
    def run(self) -> None: ...

Steps = Generator[RecordSearch, None, FoundRecord | None]

def at_once(steps: Steps) -> FoundRecord | None: ...
def first_at(
    segments: list[Segment], start: int, end: int, timestamp: int, patient: bool = False
) -> Steps: ...
def newest(
    segments: list[Segment], start: int, end: int, patient: bool = False
) -> Steps: ...
