"""Timers, in a heap that is ordered by deadline; the caller passes the current time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.groups.result import TimerKey


class Timers:
    """Named deadlines. Moving or cancelling a timer leaves an outdated entry in the heap; `next_ms`
    skips such entries."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, TimerKey]] = []
        self._at: dict[TimerKey, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: TimerKey, at_ms: int | None) -> None:
        """Set, move or (with None) cancel the timer of this name."""
        if at_ms is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at_ms:
            self._at[key] = at_ms
            heappush(self.heap, (at_ms, key))
        if len(self.heap) > 64 + 2 * len(self._at):
            self.heap = [(at, key) for key, at in self._at.items()]
            heapify(self.heap)
        assert len(self._at) <= len(self.heap), "a timer that is set is not in the heap"

    def next_ms(self) -> int | None:
        """When the earliest timer is due."""
        heap, at = self.heap, self._at
        while heap and at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, tick_ms: int) -> TimerKey | None:
        """Removes and returns the earliest timer if it is due by now."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > tick_ms:
            return None
        key = heappop(self.heap)[1]
        assert self._at[key] == at_ms, "the timer was set for another time"
        del self._at[key]
        return key
