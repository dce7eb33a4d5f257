"""What the two indexes of a segment share: a file of fixed-size entries in ascending order."""

from ottla.log.files.disk import Disk, File
from ottla.log.partition.index_rebuilds import IndexRebuild
from ottla.log.partition.reread import Reread
from ottla.wire.errors import CorruptMessage

class IndexDamaged(CorruptMessage):
    """An index contradicts itself or its segment, and has to be rebuilt from it."""

class RebuildNeeded(Exception):
    """A patient reader has to wait until `rebuild` is over, and look again."""

    rebuild: IndexRebuild | Reread
    def __init__(self, rebuild: IndexRebuild | Reread) -> None: ...

class IndexFile:
    """Entries of `entry_size` bytes, found by their number."""

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
