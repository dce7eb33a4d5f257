"""The rows of a long history, by key: in memory, or in files until it is the key's turn.

Two hours of a history have some ten million reads, which as objects take more memory than a machine
has. Rules look at one key after the other, so only its rows have to be there.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

BUFFER_ROWS = 20_000
"""Rows of one key that are kept before they are written."""


class Spool:
    """Rows by key. With a directory, what is not in memory is in one file there for each key."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.buffers: dict[Hashable, list[Any]] = {}
        self.numbers: dict[Hashable, int] = {}

    def add(self, key: Hashable, row: Any) -> None:
        """Add a row, a Send or a Read."""
        buffer = self.buffers.setdefault(key, [])
        buffer.append(row)
        if self.directory is not None and len(buffer) >= BUFFER_ROWS:
            with self._path(key).open("ab") as file:
                pickle.dump(buffer, file, pickle.HIGHEST_PROTOCOL)
            buffer.clear()

    def keys(self) -> set[Hashable]:
        """Every key that has rows."""
        return set(self.buffers)

    def take(self, key: Hashable) -> list[Any]:
        """The rows of a key, in their order; they are not kept any longer."""
        rows: list[Any] = []
        known: dict[Any, Any] = {}
        for batch in self._written(key):
            for row in batch:
                row.value = known.setdefault(row.value, row.value)     # one object a value
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
