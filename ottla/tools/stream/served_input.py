"""Standard input that calls a writer's callbacks while no input arrives."""

from __future__ import annotations

import io
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 16
SERVE_SECONDS = 0.5
"""The interval at which the writer's callbacks are called while no input arrives."""


class ServedInput(io.FileIO):
    """Standard input; before it reads, and while no input arrives, it calls `serve`, which runs the
    writer's callbacks."""

    def __init__(self, number: int, serve: Callable[[], None]) -> None:
        super().__init__(number, closefd=False)
        self._serve = serve

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._serve()
        while not select.select([self], [], [], SERVE_SECONDS)[0]:
            self._serve()
        return super().readinto(buffer)


def served(file: BinaryIO, serve: Callable[[], None]) -> BinaryIO:
    """Wraps standard input in ServedInput. Input without a file descriptor is returned unchanged,
    since it never waits."""
    try:
        return io.BufferedReader(ServedInput(file.fileno(), serve), CHUNK)
    except io.UnsupportedOperation:
        return file
