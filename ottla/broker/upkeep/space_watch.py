"""Watches the free space of the log directories. Reports when a directory is full, and when it has
space again. Runs retention early while space is short.

While a directory is full, its replicas leave their in-sync sets if another replica in sync can lead
(`cluster/directory_reports`). They also do not fetch, since they would use up the space that
retention frees. If there is no other replica in sync, each write is still tried.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.role import Role
    from ottla.log.files.clock import Clock
    from ottla.log.storage.log_directory import LogDirectory
    from ottla.log.storage.space import Room
    from ottla.log.storage.storage import Storage
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.space")

RETAIN_AGAIN_SECONDS = 30.0
"""How often retention runs while space is short."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]


class SpaceWatch:
    """The watch of one broker. `make_room` applies retention and removes the deleted files."""

    def __init__(
        self,
        storage: Storage,
        replicas: Replicas,
        role: Role,
        clock: Clock,
        in_thread: InThread,
        make_room: Callable[[], Awaitable[None]],
    ) -> None:
        self.storage, self.replicas, self.role, self.clock = storage, replicas, role, clock
        self.in_thread, self.make_room = in_thread, make_room
        self.told: set[str] = set()
        """Full directories that were logged as full."""
        self.retained_at: float | None = None

    async def look(self) -> None:
        """Measure each directory, and act on what has changed."""
        short = changed = False
        for directory in self.storage.directories:
            if directory.offline is not None:
                self.told.discard(directory.path)
                continue
            has_space_again = await self._measure(directory)
            self._note_full(directory)
            short = short or directory.space.short
            changed = changed or directory.space.full or has_space_again
        if changed:
            self._tell()
        now = self.clock.monotonic()
        if not short:
            self.retained_at = None
        elif self.retained_at is None or now - self.retained_at >= RETAIN_AGAIN_SECONDS:
            self.retained_at = now
            await self.make_room()

    async def _measure(self, directory: LogDirectory) -> bool:
        """Measure one directory; returns whether it was full and has space again."""
        rooms: list[Room] = []
        try:
            await self.in_thread(lambda: rooms.append(directory.space.measure()))
        except OSError as error:
            log.debug("the free space of %s is not known: %s", directory.path, error)
            return False
        if not directory.space.note(rooms[0], self.clock.monotonic()):
            return False
        self.told.discard(directory.path)
        log.warning(
            "log directory %s has space again and accepts writes: %d bytes are free",
            directory.path, directory.space.room.free_bytes,
        )
        return True

    async def note_full(self) -> None:
        """Report each directory that has become full, only once, and let other replicas lead."""
        for directory in self.storage.directories:
            self._note_full(directory)

    def _note_full(self, directory: LogDirectory) -> None:
        if directory.path in self.told or not directory.space.full:
            return
        self.told.add(directory.path)
        log.error(
            "log directory %s is full, writes are refused until it has space: %s", directory.path,
            directory.space.refusal,
        )
        self.retained_at = None
        self._tell()

    def _tell(self) -> None:
        """Have the fetchers and the reports adapt to the present state of the directories:
        partitions may have been created, deleted or moved meanwhile."""
        self.role.compare_space()
        self.replicas.offline_changed()
