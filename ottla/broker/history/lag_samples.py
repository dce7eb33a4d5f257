"""What a broker remembers between requests about groups and transactions: samples of a group's lag,
which show whether it grows; who waits for a transaction, and whose it is."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

GROUPS_MAX = 1000
SAMPLES_MAX = 13
HELD_MAX, PRODUCING_MAX = 10_000, 10_000
RELEASED_MS = 60_000
SPACING_MS = 5_000
YOUNGEST_MS, OLDEST_MS = 10_000, 120_000
"""The least and the greatest age of a sample for a comparison."""


class Sample(NamedTuple):
    """A group's lag in records, and the sum of its committed offsets, at one moment."""

    tick_ms: int
    lag: int
    committed: int


class Change(NamedTuple):
    """The difference between two samples."""

    over_ms: int
    lag: int
    committed: int


class HeldBack:
    """When each group was last seen waiting for an open transaction in a partition: after its end,
    the group needs a moment to read on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int], int] = {}

    def note(self, key: tuple[str, str, int], tick_ms: int) -> None:
        """A group (and a topic's partition) waits for an open transaction."""
        self._seen.pop(key, None)
        self._seen[key] = tick_ms
        if len(self._seen) > HELD_MAX:
            del self._seen[next(iter(self._seen))]

    def ago(self, key: tuple[str, str, int], tick_ms: int) -> int | None:
        """How long ago a group was seen waiting; None after RELEASED_MS."""
        seen = self._seen.get(key)
        return None if seen is None or tick_ms - seen > RELEASED_MS else tick_ms - seen


class Producing(NamedTuple):
    """The client that requested a transactional id last."""

    user: str
    client: str | None
    host: str


class TransactionalClients:
    """The clients that requested the transactional ids which this broker coordinates."""

    def __init__(self) -> None:
        self._clients: dict[str, Producing] = {}

    def note(self, transactional_id: str, client: Producing) -> None:
        """A client has got the transactional id."""
        self._clients.pop(transactional_id, None)
        self._clients[transactional_id] = client
        if len(self._clients) > PRODUCING_MAX:
            del self._clients[next(iter(self._clients))]

    def of(self, transactional_id: str) -> Producing | None:
        """The client; None if it requested the id before this broker started."""
        return self._clients.get(transactional_id)


class LagSamples:
    """The newest samples of the groups that were asked about last."""

    def __init__(self) -> None:
        self._groups: dict[str, deque[Sample]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def compare(self, group_id: str, now: Sample) -> Change | None:
        """Keep a sample; returns the change since the oldest sample, None if the oldest sample is
        too young."""
        samples = self._groups.pop(group_id, None) or deque(maxlen=SAMPLES_MAX)
        self._groups[group_id] = samples
        while samples and now.tick_ms - samples[0].tick_ms > OLDEST_MS:
            samples.popleft()
        if not samples or now.tick_ms - samples[-1].tick_ms >= SPACING_MS:
            samples.append(now)
        if len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        over_ms = now.tick_ms - samples[0].tick_ms
        if over_ms < YOUNGEST_MS:
            return None
        return Change(over_ms, now.lag - samples[0].lag, now.committed - samples[0].committed)
