"""The segments of one log: which is active, when the next one begins, and where an offset lies."""

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk, File
from ottla.log.files.open_files import OpenFiles
from ottla.log.partition.config import LogConfig
from ottla.log.partition.segment import Segment

class LogSlice:
    """Contiguous bytes of one segment: batches, the last of which may be cut off."""

    file: File
    position: int
    size: int
    first_offset: int
    ends_segment: bool
    def read(self) -> bytes: ...

class SegmentChain:
    """The segments of one log, ascending."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        open_files: OpenFiles,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
    ) -> None: ...
    def close(self) -> None: ...
