"""A bounded memory of events: a ring for each key, and a limit on the memory of all rings together.

Adding an event costs a few dictionary operations; there are no timers and no sweeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

EACH_MAX = 100
BYTES_MAX = 16 << 20
TEXT_CHARS_MAX = 249
"""The length of the longest topic name. Topic names must not be cut: before a user sees an event,
the user's access to its topics is checked by name."""
LISTED_MAX = 20
EVENT_BYTES, RING_BYTES = 500, 900
"""The bytes that an event and a ring take besides their characters, measured by `tracemalloc`."""

Key = TypeVar("Key")


class Event(NamedTuple):
    """Something that happened. Programs read `fields`; `sentences` makes a sentence from them on
    request."""

    at_ms: int
    """Unix time."""
    tick_ms: int
    """Monotonic time, for durations."""
    kind: str
    fields: Mapping[str, Any]
    times: int = 1
    """How many times the event has happened."""
    last_ms: int = -1
    """Unix time of the last occurrence, -1 if there was only one."""


def event(at_ms: int, tick_ms: int, kind: str, fields: Mapping[str, Any]) -> Event:
    """An event whose texts and lists are shortened to a bounded size."""
    return Event(at_ms, tick_ms, kind, {name: cut(value) for name, value in fields.items()})


def cut(value: Any) -> Any:
    """A text or a list, shortened to a bounded size."""
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return value[:TEXT_CHARS_MAX] + "…"
    if isinstance(value, tuple):
        listed = tuple(cut(each) for each in value[:LISTED_MAX])
        return (*listed, "…") if len(value) > LISTED_MAX else listed
    return value


def _bytes_of(of: Event) -> int:
    return EVENT_BYTES + sum(_characters(value) for value in of.fields.values())


def _characters(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(_characters(each) for each in value)
    return 4 * len(value) if isinstance(value, str) else 0


class Rings(Generic[Key]):
    """The newest events of each key. If all rings together exceed `bytes_max`, the key that has had
    no event for the longest time loses its oldest events."""

    def __init__(self, each_max: int = EACH_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.each_max, self.bytes_max = each_max, bytes_max
        self.bytes = 0
        self._rings: dict[Key, deque[Event]] = {}
        """The key with the newest event is the last one."""

    def __contains__(self, key: Key) -> bool:
        return key in self._rings

    def __len__(self) -> int:
        return len(self._rings)

    def of(self, key: Key) -> list[Event]:
        """The events of a key, the oldest first."""
        return list(self._rings.get(key, ()))

    def last(self, key: Key) -> Event | None:
        """The newest event of a key."""
        ring = self._rings.get(key)
        return ring[-1] if ring else None

    def add(self, key: Key, of: Event, *, alone: bool = False) -> None:
        """Add an event. If it equals the key's newest event, the count of that event grows instead,
        unless `alone` is set."""
        ring = self._rings.pop(key, None)
        if ring is None:
            ring = deque()
            self.bytes += _ring_bytes(key)
        self._rings[key] = ring
        if ring and not alone and (ring[-1].kind, ring[-1].fields) == (of.kind, of.fields):
            ring[-1] = ring[-1]._replace(times=ring[-1].times + 1, last_ms=of.at_ms)
            return
        ring.append(of)
        self.bytes += _bytes_of(of)
        if len(ring) > self.each_max:
            self.bytes -= _bytes_of(ring.popleft())
        self._limit()

    def repeat(self, key: Key, old: Event, at_ms: int, fields: Mapping[str, Any]) -> None:
        """Count the event `old` of a key once more, and replace its fields."""
        ring = self._rings.pop(key)
        self._rings[key] = ring
        new = old._replace(
            fields={name: cut(value) for name, value in fields.items()}, times=old.times + 1,
            last_ms=at_ms)
        ring[ring.index(old)] = new
        self.bytes += _bytes_of(new) - _bytes_of(old)
        self._limit()

    def _limit(self) -> None:
        while self.bytes > self.bytes_max:
            self._drop_oldest()
        assert self.bytes >= 0, "more bytes were subtracted than added"

    def _drop_oldest(self) -> None:
        key, ring = next(iter(self._rings.items()))
        self.bytes -= _bytes_of(ring.popleft())
        if not ring:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """Drop all events of a key."""
        ring = self._rings.pop(key, None)
        if ring is not None:
            self.bytes -= _ring_bytes(key) + sum(map(_bytes_of, ring))


def _ring_bytes(key: Any) -> int:
    return RING_BYTES + _characters(key)
