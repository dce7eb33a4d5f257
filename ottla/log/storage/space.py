"""How much space a log directory has, and whether it is full.

A directory becomes full when the disk refuses a write for lack of space or quota. It stays full
until test files (probes) can be written again. If plenty of space is free, one successful probe is
enough. If less is free (some file systems never have plenty), probes must succeed for a minute.
Without this delay, replicas would leave and rejoin the ISR with each deleted segment. If a write is
refused again soon after this delay, the next delay is twice as long.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ottla.log.files.disk import Disk
from ottla.log.storage.reserve import is_full

PROBE = ".ottla-probe"
PROBE_BYTES = 4096
ROOM_BYTES_MAX = 1 << 20
"""Bytes that a probe reserves at most: about the default of max.message.bytes."""
SETTLED_SECONDS = 60.0
SETTLED_SECONDS_MAX = 3600.0
PLENTY_BYTES_MAX = 1 << 30
PLENTY_SHARE = 20
"""The free space that is plenty: a twentieth of the file system, at most a GiB."""


class Room(NamedTuple):
    """One measurement of a file system; sizes are -1 if unknown."""

    free_bytes: int = -1
    total_bytes: int = -1
    writable: bool = True
    """Whether a probe could be written; only a full directory is probed."""

    @property
    def plenty(self) -> bool:
        """Whether so much space is free that a full directory can be used again at once."""
        wanted = min(PLENTY_BYTES_MAX, self.total_bytes // PLENTY_SHARE)
        return self.free_bytes >= wanted


class Space:
    """The space of one log directory. Only the loop's thread changes it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk, self.directory = disk, directory
        self.room = Room()
        self.refusal: str | None = None
        """The error of the first refused write; None while there is space."""
        self.works_since: float | None = None
        """While the directory is full: when probes began to succeed; None if the last one failed.
        """
        self.settled_seconds = SETTLED_SECONDS
        """How long probes have to succeed if less than plenty of space is free."""
        self.back_at: float | None = None
        """When the full directory became usable with less than plenty of space; None if that has
        not happened, or was at least `settled_seconds` ago."""

    @property
    def full(self) -> bool:
        """Whether the disk has refused a write, and has not had space since."""
        return self.refusal is not None

    @property
    def short(self) -> bool:
        """Whether little space is left. If so, retention should not wait for its interval."""
        return self.full or not self.room.plenty

    def refused(self, error: BaseException) -> bool:
        """Notes a failed write; True if this makes the directory full."""
        if not is_full(error):
            return False
        self.works_since = None
        if self.full:
            return False
        if self.back_at is not None:
            self.settled_seconds = min(2 * self.settled_seconds, SETTLED_SECONDS_MAX)
        self.refusal = str(error)
        return True

    def measure(self) -> Room:
        """How much space there is now. Any thread may call it. Raises OSError."""
        free, total = self.disk.free_bytes(self.directory)
        room = Room(free, total)
        return room._replace(writable=self.probe(total)) if self.full else room

    def probe(self, total_bytes: int) -> bool:
        """Whether a new file can be written. Quotas and a lack of inodes show only this way."""
        path = f"{self.directory}/{PROBE}"
        try:
            file = self.disk.open(path, create=True)
            file.reserve(max(PROBE_BYTES, min(ROOM_BYTES_MAX, total_bytes // PLENTY_SHARE)))
            file.pwrite(bytes(PROBE_BYTES), 0)
            file.sync()
            file.close()
        except OSError:
            return False
        finally:
            with suppress(OSError):
                self.disk.unlink(path)
        return True

    def note(self, room: Room, now: float) -> bool:
        """Applies a measurement; True if the directory was full and has space again."""
        self.room = room
        if not self.full:
            if self.back_at is not None and now - self.back_at >= self.settled_seconds:
                self.back_at, self.settled_seconds = None, SETTLED_SECONDS
            return False
        if not room.writable:
            self.works_since = None
            return False
        if self.works_since is None:
            self.works_since = now
        if not room.plenty and now - self.works_since < self.settled_seconds:
            return False
        self.back_at = None if room.plenty else now
        self.refusal = self.works_since = None
        return True
