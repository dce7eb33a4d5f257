"""How long one turn of the broker's event loop takes, estimated from counted work.

The estimate is the same on every machine. Each executed line of the broker's Python adds
LINE_SECONDS. The work of compiled code is estimated from the bytes that are read from and written
to the disk, the syncs on the loop, and the decompressed bytes. The broker's clock shows the
estimated time, so tasks that limit their time in each turn stop after this time.
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
"""The folder of the code whose lines are counted. The separator at the end matters: the checkout's
folder may be named ottla, too, and has a .venv, whose lines are not counted."""
LINE_SECONDS = 1e-7
"""For each executed line of Python, as on a machine that executes 10 million lines a second."""
READ_SECONDS = 2e-6
"""For each read or write of a file, in addition to BYTE_SECONDS for each byte."""
BYTE_SECONDS = 0.5e-9
SYNC_SECONDS = 0.005
"""For each sync on the loop. Syncs in threads are not counted."""
DECOMPRESSED_BYTE_SECONDS = 3e-9


class HoldsWorld(World):
    """A world without faults whose clock shows the work of the broker's turns."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        super().__init__(seed, Options(settings=settings))
        self.work = 0.0
        """The estimated seconds of the current turn."""
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
        """Add work to the current turn, unless a thread does it."""
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
        """Measure the turns of the loop during a block of code."""
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
        """The functions with the most executed lines in the longest turn."""
        found = self.longest_lines.most_common(count)
        return ", ".join(f"{c.co_qualname}:{c.co_firstlineno} {n}" for c, n in found)
