"""Reads the record batches of a log file one by one, without trusting any field."""

from ottla.log.files.disk import File
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.producers import Producers
from ottla.wire.errors import CorruptMessage

class SegmentDamaged(CorruptMessage):
    """A log file has an invalid batch at `position`."""

    position: int
    def __init__(self, message: str, position: int) -> None: ...

class BatchScan:
    """The complete batches between two positions of a file, one by one."""

    position: int
    next_position: int
    end: int
    size: int
    problem: str | None
    def __init__(
        self, file: File, position: int, end: int, chunk: int = 262144, headers_only: bool = False
    ) -> None: ...
    def holds_next(self) -> bool: ...
    def read_on(self) -> None: ...
    def batch(self) -> bytes | None: ...

class CheckedBatches:
    """The batches of a scan, up to the first that cannot follow the batches before it."""

    problem: str | None
    def __init__(self, scan: BatchScan, end_offset: int, checked: bool) -> None: ...

def last_in(
    scan: BatchScan, producers: Producers | None = None, epochs: LeaderEpochs | None = None
) -> tuple[int, int, int]: ...
def newest_in(scan: BatchScan) -> tuple[int, int, str | None]: ...
def replay(scan: BatchScan, producers: Producers, from_offset: int) -> None: ...
def producer_id_max(scan: BatchScan) -> int: ...
def find_valid_batch(file: File, position: int, end: int, offset_min: int) -> int | None: ...
def note_epochs(file: File, size: int, epochs: LeaderEpochs) -> None: ...
