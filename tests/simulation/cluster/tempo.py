"""How fast clients work: fast around a change, slowly in a long wait.

Most of a run's time is spent in waits, such as for the end of a session or of a network partition.
Defects are found around the moments when something changes, so clients do little while nothing
changes.
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
"""How long clients are busy after a change."""
BEFORE_SECONDS = 0.5
"""How long clients are busy before the end of a wait, because a fault may follow."""


class Tempo:
    """Decides whether clients are busy, depending on the latest change and the current waits."""

    def __init__(self, world: ClusterWorld, truth: Truth) -> None:
        self.world, self.truth = world, truth
        self.changed_at = 0.0
        self.entry = self.noted = 0
        self.serving: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}
        self.ends: list[float] = []

    def look(self) -> None:
        """Notice a change: a partition has another leader or in-sync set, or the trace has a new
        line. Every fault, each start and end of a broker, and each warning of a broker adds a
        line."""
        entry, noted = self.truth.now().entry, len(self.world.trace)
        if noted != self.noted or (entry != self.entry and self._others_serve()):
            self.changed_at = self.world.now
        self.entry, self.noted = entry, noted

    def _others_serve(self) -> bool:
        """Whether a known partition has another leader or another in-sync set than before."""
        before = self.serving
        self.serving = {
            (name, index): (state.leader, state.isr) for name, index, state in self.truth.states()
        }
        return any(self.serving.get(key) != value for key, value in before.items())

    @contextlib.contextmanager
    def until(self, end: float) -> Iterator[None]:
        """A context manager for code that waits until this time."""
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
