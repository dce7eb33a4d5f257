"""Samples of groups' lag. They are taken when a client asks why a group makes no progress, and show
whether the lag grows."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

GROUPS_MAX = 1000
SAMPLES_MAX = 13
SPACING_MS = 5_000
YOUNGEST_MS, OLDEST_MS = 10_000, 120_000
"""The least and the greatest age of a sample with which a new sample is compared."""


class Sample(NamedTuple):
    """A group's lag in records, and the sum of its committed offsets, at one moment. `places` is a
    hash of the partitions that both figures cover."""

    tick_ms: int
    lag: int
    committed: int
    places: int = 0


class Change(NamedTuple):
    """The difference between two samples."""

    over_ms: int
    lag: int
    committed: int


class LagSamples:
    """The newest samples of the groups that were asked about last."""

    def __init__(self) -> None:
        self._groups: dict[str, deque[Sample]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def compare(self, group_id: str, now: Sample) -> Change | None:
        """Return the change since the oldest sample of the same partitions; None if that sample is
        too young. Keep `now`, unless a sample of the last SPACING_MS is kept already. Samples of
        other partitions are dropped: a partition's first commit, or the expiry of its offset, must
        not look like a change of the lag."""
        samples = self._groups.pop(group_id, None) or deque(maxlen=SAMPLES_MAX)
        self._groups[group_id] = samples
        while samples and (
            now.tick_ms - samples[0].tick_ms > OLDEST_MS or samples[-1].places != now.places
        ):
            samples.popleft()
        if not samples or now.tick_ms - samples[-1].tick_ms >= SPACING_MS:
            samples.append(now)
        if len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        over_ms = now.tick_ms - samples[0].tick_ms
        if over_ms < YOUNGEST_MS:
            return None
        return Change(over_ms, now.lag - samples[0].lag, now.committed - samples[0].committed)
