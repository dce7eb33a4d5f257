"""The common part of a segment's two indexes: a file of fixed-size entries in ascending order."""

from ottla.log.files.disk import Disk, File
from ottla.log.partition.index_rebuilds import IndexRebuild
from ottla.log.partition.reread import Reread
from ottla.wire.errors import CorruptMessage

class IndexDamaged(CorruptMessage):
    """An index contradicts itself or its segment, and has to be rebuilt from the segment."""

class RebuildNeeded(Exception):
    """An index is not usable yet: the caller waits until `rebuild` is over and repeats its call."""

    rebuild: IndexRebuild | Reread
    def __init__(self, rebuild: IndexRebuild | Reread) -> None: ...

class IndexFile:
    """Entries of `entry_size` bytes, accessed by number."""

    path: str
    base_offset: int
    count: int
    entry_size: int
    def __init__(
        self, disk: Disk, path: str, base_offset: int, entry_size: int, fresh: bool = False
    ) -> None: ...
    def write(self, create: bool = False) -> None: ...
    def cut(self, count: int) -> None: ...
    def files_to_sync(self) -> list[File]: ...
