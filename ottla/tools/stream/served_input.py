"""Standard input that calls a writer's callbacks while no input arrives."""

from __future__ import annotations

import io
import os
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 16
SERVE_SECONDS = 0.5
"""The interval at which the writer's callbacks are called while no input arrives."""
AHEAD_BYTES = 16 << 20
AHEAD_SECONDS = 1.0
"""Before the first record is sent, at most this many bytes of a pipe are read, for at most this
time after the first byte."""


class ServedInput(io.FileIO):
    """Standard input that calls `serve` before it reads, and while no input arrives. `serve` runs
    the writer's callbacks."""

    def __init__(self, number: int, serve: Callable[[], None]) -> None:
        super().__init__(number, closefd=False)
        self._serve = serve
        self._held = io.BytesIO()

    def ahead(self, wanted: bytes) -> tuple[bytes, bool]:
        """The beginning of the input, and whether the input ends there. Later reads return this
        beginning again. Waits for more only if the first bytes contain `wanted`."""
        self._wait()
        parts = [os.read(self.fileno(), min(CHUNK, AHEAD_BYTES))]
        deadline, room = time.monotonic() + AHEAD_SECONDS, AHEAD_BYTES - len(parts[0])
        while wanted in parts[0] and parts[-1] and room > 0:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self], [], [], left)[0]:
                break
            parts.append(os.read(self.fileno(), min(CHUNK, room)))
            room -= len(parts[-1])
        self._held = io.BytesIO(b"".join(parts))
        return self._held.getvalue(), not parts[-1]

    def _wait(self) -> None:
        self._serve()
        while not select.select([self], [], [], SERVE_SECONDS)[0]:
            self._serve()

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        if held := self._held.readinto(buffer):
            return held
        self._wait()
        return super().readinto(buffer)


def served(file: BinaryIO, serve: Callable[[], None]) -> BinaryIO:
    """Wraps standard input in ServedInput. Input without a file descriptor is returned unchanged,
    since it never waits."""
    try:
        return io.BufferedReader(ServedInput(file.fileno(), serve), CHUNK)
    except io.UnsupportedOperation:
        return file


def ahead(file: BinaryIO, wanted: bytes) -> tuple[bytes, bool]:
    """Calls `ServedInput.ahead` if `served` has returned this file and it is no terminal. Otherwise
    reads nothing, and returns no bytes and False: a record that a person types at a terminal must
    not wait for the next one."""
    raw = file.raw if isinstance(file, io.BufferedReader) else None
    if isinstance(raw, ServedInput) and not raw.isatty():
        return raw.ahead(wanted)
    return b"", False
