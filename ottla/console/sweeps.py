"""Examines thousands of names, some of them in each call: all at once would take too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ottla.client.errors import ClientError

Value = TypeVar("Value")


class Sweep(Generic[Value]):
    """The last result for each name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.values: dict[str, Value] = {}
        self.read_at: dict[str, float] = {}
        self.left = 0
        """How many names have not been examined yet."""

    def look(
        self, names: Iterable[str], read: Callable[[str], Value], seconds: float
    ) -> dict[str, Value]:
        """Examine the names whose last examination was longest ago, as many as the time allows;
        forget names that no longer exist. Names that could not be read have no value."""
        there = set(names)
        for gone in self.read_at.keys() - there:
            self.values.pop(gone, None)
            del self.read_at[gone]
        until = self.clock() + seconds
        for name in sorted(there, key=lambda one: (self.read_at.get(one, 0.0), one)):
            if self.clock() > until:
                break
            try:
                self.values[name] = read(name)
            except ClientError:
                self.values.pop(name, None)
            self.read_at[name] = self.clock()
        self.left = len(there) - len(self.read_at)
        return self.values
