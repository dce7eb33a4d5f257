"""The inner loops of a cleaner: indexing keys, and writing batches with the newest records only."""

from collections.abc import Mapping

from ottla.log.compaction.key_table import KeyOffsets
from ottla.log.compaction.transactions import CleanedTransactions
from ottla.log.files.batch_scan import BatchScan
from ottla.log.files.clock import Clock
from ottla.log.partition.segment import Segment
from ottla.wire.errors import ProtocolError

class CleanedSegment(Segment):
    """A segment that is written beside the segments that it will replace."""

    def begin(self) -> None: ...
    def finish(self) -> None: ...

class BatchTask:
    """A large batch of a pass. `run` processes its records, in any thread."""

    error: ProtocolError | MemoryError | None
    def run(self) -> None: ...

class CleanerPass:
    """The state of one pass: keys, transactions, producers, and the time at its start."""

    keys: KeyOffsets
    first_dirty_offset: int
    end_offset: int
    transactions: CleanedTransactions
    bytes_read: int
    bytes_written: int
    changes: int
    due: BatchTask | None
    def __init__(
        self,
        keys: KeyOffsets,
        first_dirty_offset: int,
        transactions: CleanedTransactions,
        producers: Mapping[int, tuple[int, int]],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None: ...
    def index(self, scan: BatchScan, clock: Clock, seconds: float) -> bool | None: ...
    def clean(
        self,
        scan: BatchScan,
        target: CleanedSegment,
        last_source: bool,
        clock: Clock,
        seconds: float,
    ) -> bool: ...
    def put(self, target: CleanedSegment) -> None: ...
