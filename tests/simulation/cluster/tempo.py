"""How fast clients work: continuously around a change, now and then during a long wait.

Most of a run's time is waiting, such as for the end of a session or of a network partition. Defects
are found around the moments when something changes, so clients do little while nothing changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster.losses import Truth
    from tests.simulation.cluster.world import ClusterWorld

BUSY, QUIET = 0.2, 1.0
"""The mean time between two steps of a client, in seconds."""
AFTER_SECONDS = 1.0
"""So long after a change clients are busy,"""
BEFORE_SECONDS = 0.5
"""and so long before a wait is over, as a fault may follow."""


class Tempo:
    """Busy or quiet, by the latest change and the waits that are under way."""

    def __init__(self, world: ClusterWorld, truth: Truth) -> None:
        self.world, self.truth = world, truth
        self.changed_at = 0.0
        self.entry = self.noted = 0
        self.serving: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}
        self.ends: list[float] = []

    def look(self) -> None:
        """Notice a change: of who leads or is in sync, or one that was noted, as every fault is,
        each start and end of a broker, and what a broker warns of."""
        entry, noted = self.truth.now().entry, len(self.world.trace)
        if noted != self.noted or (entry != self.entry and self._others_serve()):
            self.changed_at = self.world.now
        self.entry, self.noted = entry, noted

    def _others_serve(self) -> bool:
        """Whether a partition that was known has another leader, or others in sync."""
        before = self.serving
        self.serving = {
            (name, index): (state.leader, state.isr) for name, index, state in self.truth.states()
        }
        return any(self.serving.get(key) != value for key, value in before.items())

    @contextlib.contextmanager
    def until(self, end: float) -> Iterator[None]:
        """A wait until then."""
        self.ends.append(end)
        try:
            yield
        finally:
            self.ends.remove(end)

    @property
    def pace(self) -> float:
        """The mean time between two steps of a client now."""
        now = self.world.now
        if now - self.changed_at < AFTER_SECONDS:
            return BUSY
        soon = any(end - now < BEFORE_SECONDS for end in self.ends)
        return BUSY if soon else QUIET
