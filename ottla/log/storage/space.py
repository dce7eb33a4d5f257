"""How much space a log directory has, and whether it is full.

A directory is full from the first write that the disk refuses for lack of space (or of quota) until
plenty is free and a probe can be written. The distance between the two keeps replicas from leaving
and returning with each deleted segment.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ottla.log.files.disk import Disk
from ottla.log.storage.reserve import is_full

PROBE = ".ottla-probe"
PROBE_BYTES = 4096
PLENTY_BYTES_MAX = 1 << 30
PLENTY_SHARE = 20
"""Plenty is a twentieth of the file system, or a GiB where that is less."""


class Room(NamedTuple):
    """One measurement of a file system; -1 where it does not say."""

    free_bytes: int = -1
    total_bytes: int = -1
    writable: bool = True
    """Whether a probe could be written; only a full directory is probed."""

    @property
    def plenty(self) -> bool:
        """Whether more than the last reserves are free."""
        wanted = min(PLENTY_BYTES_MAX, self.total_bytes // PLENTY_SHARE)
        return self.free_bytes >= wanted


class Space:
    """The space of one log directory. Only the loop's thread changes it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk, self.directory = disk, directory
        self.room = Room()
        self.refusal: str | None = None
        """The error of the first refused write; None while there is space."""

    @property
    def full(self) -> bool:
        """Whether the disk has refused a write, and has not had plenty of space since."""
        return self.refusal is not None

    @property
    def short(self) -> bool:
        """Whether little space is left: retention should not wait for its interval."""
        return self.full or not self.room.plenty

    def refused(self, error: BaseException) -> bool:
        """Notes a failed write; True if the directory is full from now on, and was not before."""
        if self.full or not is_full(error):
            return False
        self.refusal = str(error)
        return True

    def measure(self) -> Room:
        """How much space there is now. Any thread may call it. Raises OSError."""
        free, total = self.disk.free_bytes(self.directory)
        room = Room(free, total)
        return room._replace(writable=self.probe()) if self.full and room.plenty else room

    def probe(self) -> bool:
        """Whether a new file can be written. Quotas and a lack of inodes show only this way."""
        path = f"{self.directory}/{PROBE}"
        try:
            file = self.disk.open(path, create=True)
            file.pwrite(bytes(PROBE_BYTES), 0)
            file.sync()
            file.close()
        except OSError:
            return False
        finally:
            with suppress(OSError):
                self.disk.unlink(path)
        return True

    def note(self, room: Room) -> bool:
        """Takes over a measurement; True if the directory was full and has space again."""
        self.room = room
        if not self.full or not (room.plenty and room.writable):
            return False
        self.refusal = None
        return True
