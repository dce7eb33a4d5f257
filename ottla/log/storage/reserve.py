"""Disk space that is reserved for operations that free disk space.

On a full disk nothing can be written, not even the record that deletes a topic. A file of zeros
reserves some space. If the disk is too full for a record that frees space, the file is shortened, a
portion at a time, until the record fits. Once the disk has plenty of space, the file is filled
again.
"""

from __future__ import annotations

from contextlib import suppress
from errno import EDQUOT, ENOSPC

from ottla.log.files.disk import Disk

RESERVE = ".ottla-reserve"
RESERVE_SIZE = 256 << 10
PORTION_SIZE = 4 << 10
PLENTY = 4 * RESERVE_SIZE
"""The reserve is filled again only if this many bytes are free, so that it does not fill the disk.
"""


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that a disk or quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
            return True
        error = error.__cause__
    return False


class Reserve:
    """The file that reserves the space. Disk errors are ignored here: other writes report them."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk, self.directory = disk, directory
        self.path = f"{directory}/{RESERVE}"
        self.size = 0
        with suppress(OSError):
            self.size = disk.size(self.path)
        if self.fill():
            self.sync()

    def give(self, floor: int) -> bool:
        """Release a portion of the reserve, but keep `floor` bytes; False if nothing was released.
        """
        if self.size <= floor:
            return False
        size = max(floor, self.size - PORTION_SIZE)
        try:
            file = self.disk.open(self.path)
            file.truncate(size)
            file.close()
        except OSError:
            return False
        assert floor <= size < self.size
        self.size = size
        return True

    def fill(self) -> bool:
        """Fill the reserve if the disk has plenty of space. Returns whether it was filled; if so,
        the caller must call `sync`. Blocks no longer than an append."""
        if self.size >= RESERVE_SIZE:
            return False
        with suppress(OSError):
            if self.disk.free_bytes(self.directory)[0] < PLENTY:
                return False
            file = self.disk.open(self.path, create=True)
            file.pwrite(bytes(RESERVE_SIZE - self.size), self.size)
            file.close()
            self.size = RESERVE_SIZE
            return True
        return False

    def sync(self) -> None:
        """Make the reserve durable: after a power failure the disk may be too full to create
        the reserve again. May run in any thread."""
        with suppress(OSError):
            file = self.disk.open(self.path)
            try:
                file.sync()
            finally:
                file.close()
            self.disk.sync_directory(self.directory)
