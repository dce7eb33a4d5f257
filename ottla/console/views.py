"""The data of a user's pages, kept for a moment, so that many open pages cause one request.

If reading a view took t seconds, it is read again after 20 t seconds at the earliest. So a large
cluster gets fewer requests, and a view takes at most a twentieth of a core.

The reader of a view may be a generator. Each value that it yields is more complete than the
previous one, and the last value is complete. Pages that do not wait show the newest value.
"""

from __future__ import annotations

import asyncio
import operator
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.console.connections import Connections

AGE_SECONDS_MIN = 1.5
COST_FACTOR = 20
KEPT_MAX = 200
SOON_SECONDS = 0.3
"""How long `soon` waits for a view before it returns an older value."""
Read = Callable[..., Any]
Key = tuple[Read, tuple[Hashable, ...]]


class Kept:
    """A view, and the time until which it is valid."""

    def __init__(self, value: Any, until: float) -> None:
        self.value, self.until = value, until


class Reading:
    """A view that is being read, and its newest value."""

    task: asyncio.Task[Any]

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.part: Any = None
        self.begun = asyncio.Event()
        """Set when there is a value, or when the reading has ended."""

    def add(self, part: Any) -> None:
        """Stores a newer value. Called by the thread that reads."""
        self.part = part
        self.loop.call_soon_threadsafe(self.begun.set)


class Views:
    """The views of one user."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.kept: OrderedDict[Key, Kept] = OrderedDict()
        self.reading: dict[Key, Reading] = {}
        self.made: dict[str, tuple[tuple[Any, ...], asyncio.Future[Any]]] = {}
        self.changes = 0
        self.memory: dict[Hashable, Any] = {}
        """Data that one reading keeps for the next reading, such as offsets for rates."""

    async def get(self, read: Read, *arguments: Hashable) -> Any:
        """The value of `read(cluster, memory, *arguments)`, which may be seconds old."""
        key = (read, arguments)
        kept = self._fresh(key)
        if kept is not None:
            return kept.value
        return await asyncio.shield(self._started(key).task)

    async def soon(self, read: Read, *arguments: Hashable, seconds: float = SOON_SECONDS) -> Any:
        """As `get`, but after `seconds` returns the previous value. If there is none, returns the
        part that has been read so far, or None."""
        key = (read, arguments)
        kept = self._fresh(key)
        if kept is not None:
            return kept.value
        reading = self._started(key)
        await asyncio.wait({reading.task}, timeout=seconds)
        if reading.task.done():
            return await reading.task
        known = self.kept.get(key)
        return reading.part if known is None else known.value

    async def part(self, read: Read, *arguments: Hashable, seconds: float = SOON_SECONDS) -> Any:
        """As `soon`, but it waits until there is a value."""
        found = await self.soon(read, *arguments, seconds=seconds)
        if found is not None:
            return found
        reading = self._started((read, arguments))
        await reading.begun.wait()
        return reading.part if reading.part is not None else await asyncio.shield(reading.task)

    def _fresh(self, key: Key) -> Kept | None:
        kept = self.kept.get(key)
        if kept is None or time.monotonic() >= kept.until:
            return None
        self.kept.move_to_end(key)
        return kept

    def _started(self, key: Key) -> Reading:
        """The reading of a view; begins it if needed."""
        if key not in self.reading:
            reading = self.reading[key] = Reading()
            reading.task = asyncio.create_task(self._read(key, reading))
            reading.task.add_done_callback(lambda done: self._ended(key, reading))
        return self.reading[key]

    async def _read(self, key: Key, reading: Reading) -> Any:
        read, arguments = key
        taken = 0.0
        changes = self.changes

        def timed(cluster: ClusterClient) -> Any:
            nonlocal taken
            begun = time.monotonic()
            value = read(cluster, self.memory, *arguments)
            if isinstance(value, Generator):
                for part in value:
                    reading.add(part)
                value = reading.part
            taken = time.monotonic() - begun
            return value

        value = await self.connections.run(timed)
        until = time.monotonic() + max(AGE_SECONDS_MIN, COST_FACTOR * taken)
        if changes == self.changes:         # else the value may be older than a change
            self._keep(key, Kept(value, until))
        return value

    def _keep(self, key: Key, kept: Kept) -> None:
        """Replace the previous value, and drop the values derived from it."""
        before = self.kept.get(key)
        if before is not None:
            self.made = {
                name: one for name, one in self.made.items()
                if not any(source is before.value for source in one[0])
            }
        self.kept[key] = kept
        self.kept.move_to_end(key)
        while len(self.kept) > KEPT_MAX:
            self.kept.popitem(last=False)

    def _ended(self, key: Key, reading: Reading) -> None:
        reading.begun.set()
        if self.reading.get(key) is reading:
            del self.reading[key]
        if not reading.task.cancelled():
            reading.task.exception()

    async def derived(self, name: str, sources: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """A value derived from some views, computed by a thread. It stays the same object until one
        of these views changes. So many streams share one computation, and each of them finds out
        quickly that nothing has changed."""
        known = self.made.get(name)
        if known is None or not all(map(operator.is_, known[0], sources)):
            making = asyncio.ensure_future(asyncio.to_thread(make))
            known = self.made[name] = (sources, making)
        return await asyncio.shield(known[1])

    def forget(self) -> None:
        """Marks all views as outdated, because the user has changed something."""
        self.changes += 1
        for kept in self.kept.values():
            kept.until = 0.0
        self.reading.clear()
