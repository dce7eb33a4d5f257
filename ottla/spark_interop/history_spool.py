"""The sends and polls of a long history, by key: in memory, or in files until the key is checked.

Two hours of a history have some ten million values, more than fit into memory. Rules check one key
after another, so only the values of one key must be in memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

BUFFER_VALUES = 20_000
"""If this many values of a key are in memory, they are written to the key's file."""


class Spool:
    """Rows (Sends or Polls) by key. With a directory, older rows are in files there, one per key.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.buffers: dict[Hashable, list[Any]] = {}
        self.kept: dict[Hashable, int] = {}     # values in a buffer
        self.numbers: dict[Hashable, int] = {}

    def add(self, key: Hashable, row: Any) -> None:
        """Add a row: the values of one operation."""
        buffer = self.buffers.setdefault(key, [])
        buffer.append(row)
        if self.directory is None:
            return
        self.kept[key] = self.kept.get(key, 0) + len(row.values)
        if self.kept[key] >= BUFFER_VALUES:
            with self._path(key).open("ab") as file:
                pickle.dump(buffer, file, pickle.HIGHEST_PROTOCOL)
            buffer.clear()
            self.kept[key] = 0

    def keys(self) -> set[Hashable]:
        """Every key that has rows."""
        return set(self.buffers)

    def take(self, key: Hashable) -> list[Any]:
        """The rows of a key, in order; the spool then drops them."""
        rows: list[Any] = []
        known: dict[Any, Any] = {}
        for batch in self._written(key):
            for row in batch:
                # Equal values become one object, to save memory.
                row.values = list(map(known.setdefault, row.values, row.values))
            rows += batch
        return rows + self.buffers.pop(key, [])

    def _written(self, key: Hashable) -> Iterator[list[Any]]:
        if key not in self.numbers:
            return
        with self._path(key).open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)
        self._path(key).unlink()

    def _path(self, key: Hashable) -> Path:
        number = self.numbers.setdefault(key, len(self.numbers))
        assert self.directory is not None
        return self.directory / f"rows-{id(self)}-{number}"
