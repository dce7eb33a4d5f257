"""How long one turn of the broker's loop takes, estimated from counted work.

The estimate is the same on every machine. A line of the broker's Python counts as LINE_SECONDS. The
work of compiled code is counted in bytes that are read from and written to the disk, syncs on the
loop, and decompressed bytes. The broker's clock shows the estimated time, so that work in slices
ends its slices accordingly.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import ottla
from ottla.wire import compression
from tests.log.faulty_disk import FaultyFile
from tests.simulation.disk import SimDisk
from tests.simulation.loop import SimLoop
from tests.simulation.options import Options
from tests.simulation.world import World

PRODUCT = f"{Path(ottla.__file__).parent}{os.sep}"
"""The folder of the code whose lines count. The separator at the end matters: the folder of the
checkout may be named ottla, too, and has a .venv, whose lines do not count."""
LINE_SECONDS = 1e-7
"""A line of Python: about 15 million a second."""
READ_SECONDS = 2e-6
"""A read or a write of a file, plus BYTE_SECONDS."""
BYTE_SECONDS = 0.5e-9
SYNC_SECONDS = 0.005
"""A sync on the loop; a sync in a thread is not counted."""
DECOMPRESSED_BYTE_SECONDS = 3e-9


class HoldsWorld(World):
    """A world without faults whose clock shows the work of the broker's turns."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        super().__init__(seed, Options(settings=settings))
        self.work = 0.0
        """Seconds of the current turn."""
        self.counting = self.in_turn = False
        self.tracing = True
        self.longest = 0.0
        self.longest_real = 0.0
        self.turns = 0
        self.lines: Counter[CodeType] = Counter()
        self.longest_lines: Counter[CodeType] = Counter()

    def spent(self) -> float:
        return self.now + self.work + 1e-7

    def _guarded(self, call: Callable[[], None]) -> None:
        turn = getattr(call, "__func__", None) is SimLoop.turn
        if not (self.counting and turn):
            super()._guarded(call)
            return
        self.work, self.lines = 0.0, Counter()
        self.in_turn = True
        if self.tracing:
            sys.settrace(self._called)
        began = time.perf_counter()
        try:
            super()._guarded(call)
        finally:
            sys.settrace(None)
            self.in_turn = False
        self.longest_real = max(self.longest_real, time.perf_counter() - began)
        self.turns += 1
        if self.work > self.longest:
            self.longest, self.longest_lines = self.work, self.lines
        self.now += self.work
        self.work = 0.0

    def add(self, seconds: float) -> None:
        """Count work for the current turn, unless a thread does it."""
        if self.in_turn:
            self.work += seconds

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name.startswith(PRODUCT):
            return self._line
        return None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.work += LINE_SECONDS
            self.lines[frame.f_code] += 1
        return self._line

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Measure the turns of a block."""
        self.longest = self.longest_real = 0.0
        self.turns = 0
        self.counting = True
        before, pread, decompress = SimDisk.before, FaultyFile.pread, compression.decompress

        def counted_before(disk: SimDisk, kind: str, path: str, size: int = 0) -> int:
            if kind == "sync":
                self.add(SYNC_SECONDS)
            elif kind in ("write", "read"):
                self.add(READ_SECONDS + size * BYTE_SECONDS)
            return before(disk, kind, path, size)

        def counted_pread(file: FaultyFile, size: int, position: int) -> bytes:
            data = pread(file, size, position)
            self.add(len(data) * BYTE_SECONDS)
            return data

        def counted_decompress(*arguments: Any) -> bytes:
            plain = decompress(*arguments)
            self.add(len(plain) * DECOMPRESSED_BYTE_SECONDS)
            return plain

        holders = [m for n, m in sys.modules.items()
                   if n.startswith("ottla.") and getattr(m, "decompress", None) is decompress]
        patches = [mock.patch.object(m, "decompress", counted_decompress) for m in holders]
        patches += [
            mock.patch.object(SimDisk, "before", counted_before),
            mock.patch.object(FaultyFile, "pread", counted_pread),
        ]
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            try:
                yield
            finally:
                self.counting = False

    def where(self, count: int = 5) -> str:
        """The functions with the most lines in the longest turn."""
        found = self.longest_lines.most_common(count)
        return ", ".join(f"{c.co_qualname}:{c.co_firstlineno} {n}" for c, n in found)
