"""What a user's pages show, kept for a moment, so that many open pages ask the cluster once.

A view is read again no sooner than twenty times as long as reading it took: a large cluster is
asked less often, and the console never takes more than a twentieth of a core for it.
"""

from __future__ import annotations

import asyncio
import operator
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.console.connections import Connections

AGE_SECONDS_MIN = 1.5
COST_FACTOR = 20
KEPT_MAX = 200
Read = Callable[..., Any]


class Kept:
    """A view, when it was read, and how long it stays."""

    def __init__(self, value: Any, until: float) -> None:
        self.value, self.until = value, until


class Views:
    """The views of one user."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self.reading: dict[Hashable, asyncio.Task[Any]] = {}
        self.made: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self.changes = 0
        self.memory: dict[Hashable, Any] = {}
        """What reading a view leaves for the next time, such as offsets for rates."""

    async def get(self, read: Read, *arguments: Hashable) -> Any:
        """The value of `read(cluster, memory, *arguments)`, which may be seconds old."""
        key = (read, arguments)
        kept = self.kept.get(key)
        if kept is not None and time.monotonic() < kept.until:
            self.kept.move_to_end(key)
            return kept.value
        if key not in self.reading:
            task = asyncio.create_task(self._read(key, read, arguments))
            self.reading[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(self.reading[key])

    async def _read(self, key: Hashable, read: Read, arguments: tuple[Hashable, ...]) -> Any:
        taken = 0.0
        changes = self.changes

        def timed(cluster: Cluster) -> Any:
            nonlocal taken
            begun = time.monotonic()
            value = read(cluster, self.memory, *arguments)
            taken = time.monotonic() - begun
            return value

        value = await self.connections.run(timed)
        until = time.monotonic() + max(AGE_SECONDS_MIN, COST_FACTOR * taken)
        if changes != self.changes:
            return value                    # it may be from before the change
        self.kept[key] = Kept(value, until)
        self.kept.move_to_end(key)
        while len(self.kept) > KEPT_MAX:
            self.kept.popitem(last=False)
        return value

    def _ended(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        if self.reading.get(key) is done:
            del self.reading[key]
        if not done.cancelled():
            done.exception()

    def derived(self, name: str, sources: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What is made of some views: the same object until one of them is another one, so that
        many streams compare and make it once."""
        known = self.made.get(name)
        if known is None or not all(map(operator.is_, known[0], sources)):
            known = self.made[name] = (sources, make())
        return known[1]

    def forget(self) -> None:
        """Read everything anew: the user has changed something."""
        self.changes += 1
        self.kept.clear()
        self.reading.clear()
