"""Remembers which clients have lately set offsets of a group without being its members, so that
only news is reported.

A tool sets offsets once. But consumers that manage their partitions themselves commit every few
seconds, and several of them may use the same group.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

QUIET_MS = 600_000
"""After this time without a commit, a client's next commit is news."""
BACK_MS, BACK_MAX = 3_600_000, 5
"""A commit that sets offsets back is news, but only the first BACK_MAX of a client within BACK_MS.
The limit exists since two consumers that commit the same partitions set each other's offsets back
all the time."""
SETTERS_MAX = 10_000


class Seen(NamedTuple):
    """The commits of one client."""

    last_ms: int
    since_ms: int
    """When the counting of `back` began."""
    back: int
    """The number of commits that set offsets back."""


class Setters:
    """The clients that committed last. Times are monotonic. Only the hashes of the names are kept,
    since names can be long."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def is_news(self, key: Hashable, back: bool, tick_ms: int) -> bool:
        """Note a commit of a client in a group; returns whether it is news."""
        seen = self._seen.pop(hash(key), None)
        is_quiet = seen is None or tick_ms - seen.last_ms >= QUIET_MS
        if seen is None or tick_ms - seen.since_ms >= BACK_MS:
            seen = Seen(tick_ms, tick_ms, 0)
        self._seen[hash(key)] = Seen(tick_ms, seen.since_ms, seen.back + back)
        if len(self._seen) > SETTERS_MAX:
            del self._seen[next(iter(self._seen))]
        return is_quiet or (back and seen.back < BACK_MAX)
