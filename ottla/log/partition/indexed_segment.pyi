"""One data file of a partition with its offset index and its time index: lookups and rebuilds."""

from collections.abc import Callable

from ottla.log.files.aborted_index import AbortedIndex
from ottla.log.files.disk import Disk, File
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.open_files import Openable, OpenFiles
from ottla.log.files.producers import Producers

class IndexedSegment(Openable):
    """A data file and the indexes that say where its batches are."""

    directory: str
    disk: Disk
    base_offset: int
    end_offset: int
    size: int
    created_ms: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    index_interval: int
    reserved: bool
    aborted: AbortedIndex
    def __init__(
        self,
        disk: Disk,
        open_files: OpenFiles,
        directory: str,
        base_offset: int,
        size: int = 0,
        end_offset: int = -1,
        created_ms: int = 0,
        index_interval: int = 4096,
    ) -> None: ...
    def path(self, suffix: str) -> str: ...
    def close(self) -> None: ...
    def seal(self) -> None: ...
    def data_file(self) -> File: ...
    def position_of(self, offset: int, patient: bool = False) -> int: ...
    def load_times(self, patient: bool = False) -> None: ...
    def read_times(self) -> None: ...
    def largest_timestamp(self, patient: bool = False) -> int: ...
    def reset_indexes(self) -> None: ...
    def rebuild_indexes(self, patient: bool = False) -> None: ...
    def rebuild(
        self,
        producers: Producers | None,
        epochs: LeaderEpochs | None,
        file_size: int,
        aborted: Callable[[tuple[int, int, int, int]], None] | None = None,
        checked: bool = True,
    ) -> tuple[int, str] | None: ...
