"""One partition's log on disk: opening, truncation, removal of old segments, closing, moving."""

from collections.abc import Callable, Mapping

from ottla.log.files.clock import Clock
from ottla.log.files.closed_logs import ClosedLog
from ottla.log.files.disk import Disk
from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.appendable_log import AppendableLog
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.segment import Segment

class PartitionLog(AppendableLog):
    """The log of one partition. Created with `PartitionLog.open`."""

    moves: int
    @staticmethod
    def open(
        disk: Disk,
        clock: Clock,
        directory: str,
        config: LogConfig | None = None,
        *,
        open_files: OpenFiles | None = None,
        topic_id: bytes | None = None,
        checkpoint: LogCheckpoint = ...,
        clean: bool = False,
    ) -> PartitionLog: ...
    @staticmethod
    def rest(
        disk: Disk,
        clock: Clock,
        directory: str,
        config: LogConfig,
        *,
        open_files: OpenFiles,
        topic_id: bytes | None,
        closed: ClosedLog,
        first_dirty_offset: int = 0,
        aborted_sizes: Mapping[int, int] | None = None,
    ) -> PartitionLog: ...
    def remove_segment(self, segment: Segment) -> list[str]: ...
    def truncate_to(self, offset: int) -> None: ...
    def repair(self) -> list[str]: ...
    def truncate_fully_and_start_at(self, offset: int) -> None: ...
    def delete_before(self, offset: int) -> list[Segment]: ...
    def seal(self) -> None: ...
    def replace_segments(self, sources: list[Segment], cleaned: Segment) -> list[str]: ...
    def share(self, open_files: OpenFiles) -> None: ...
    def close(self) -> None: ...
    def move_to(self, directory: str) -> None: ...
    def closed(self) -> ClosedLog | None: ...
    def note_cleaned(self, offset: int) -> None: ...
    def continue_in(
        self,
        directory: str,
        on_failure: Callable[[str], None] | None,
        on_refusal: Callable[[OSError], object] | None = None,
    ) -> None: ...
