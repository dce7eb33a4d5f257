"""One partition's log as readers see it: its offsets, its segments and what is in them."""

from ottla.log.chain import LogSlice
from ottla.log.clock import Clock
from ottla.log.config import LogConfig
from ottla.log.disk import Disk
from ottla.log.epochs import LeaderEpochs
from ottla.log.health import LogHealth
from ottla.log.index.transaction_index import AbortedTransaction
from ottla.log.open_files import OpenFiles
from ottla.log.producers import Producers, ProducerState
from ottla.log.recovery.rebuild import Damage
from ottla.log.segment import Segment

class ReadableLog:
    """A log's state, and every question about it. `PartitionLog` adds what changes a log."""

    disk: Disk
    clock: Clock
    config: LogConfig
    directory: str
    topic_id: bytes | None
    log_start_offset: int
    log_end_offset: int
    first_dirty_offset: int
    latest_epoch: int
    duplicate: bool
    flush_messages: int
    health: LogHealth
    @property
    def segments(self) -> list[Segment]: ...
    @property
    def epochs(self) -> LeaderEpochs: ...
    @property
    def producers(self) -> Producers: ...
    @property
    def segment_count(self) -> int: ...
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: str,
        config: LogConfig,
        open_files: OpenFiles,
        topic_id: bytes | None = None,
    ) -> None: ...
    def configure(self, config: LogConfig) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def slice(
        self, offset: int, size_max: int, upto: int | None = None, at_least_one: bool = True
    ) -> LogSlice: ...
    def read_bytes(self, offset: int, size_max: int, upto: int | None = None) -> bytes: ...
    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None: ...
    def offset_of_max_timestamp(
        self, upto: int | None = None
    ) -> tuple[int, int, int] | None: ...
    def leader_epoch_for_offset(self, offset: int) -> int: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...
    def assign_epoch_start(self, epoch: int) -> None: ...
    @property
    def last_stable_offset(self) -> int: ...
    def stable_offset(self, high_watermark: int) -> int: ...
    def active_producers(self) -> list[ProducerState]: ...
    def aborted_transactions(
        self, from_offset: int, to_offset: int
    ) -> list[AbortedTransaction]: ...
    @property
    def offline(self) -> str | None: ...
    @property
    def damage(self) -> Damage | None: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def checkpoint_offset(self) -> int: ...
