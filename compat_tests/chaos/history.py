"""The history of a run, one event a line, as `ottla.spark_interop.history_events` defines it."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class History:
    """The file of events; several threads may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("w")
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        self.sends = self.reads = 0
        self.acked_at = time.monotonic()
        self.longest_gap = 0.0

    def note(self, event: dict[str, Any]) -> None:
        """Write one event with the current time."""
        with self.lock:
            # Not `json.dump`, whose encoder is written in Python and would use most of a core.
            self.file.write(json.dumps({**event, "t_ns": time.monotonic_ns()}) + "\n")

    def acked(self, sends: int) -> None:
        """Count acknowledged sends, and update the longest time without one."""
        with self.lock:
            now = time.monotonic()
            self.longest_gap = max(self.longest_gap, now - self.acked_at)
            self.acked_at, self.sends = now, self.sends + sends

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields all events. Call it only after the clients have ended."""
        self.file.flush()
        with self.path.open() as lines:
            for line in lines:
                yield json.loads(line)


class Process:
    """One process of the history, which does one operation at a time."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.begin_again()

    def begin_again(self) -> None:
        """Continue as another process: the last operation's outcome is unknown."""
        self.number, self.idx = next(self.history.numbers), 0

    def invoke(self, f: str, mops: list[Any], **fields: Any) -> None:
        """Write that an operation begins."""
        self.idx, self.f = self.idx + 1, f
        self.history.note({
            "process": self.number, "idx": self.idx, "type": "invoke", "f": f, "mops": mops,
            **fields,
        })

    def end(self, kind: str, mops: list[Any], **fields: Any) -> None:
        """Write how the operation ended: `ok`, `fail`, or `info` if the outcome is unknown."""
        self.history.note({
            "process": self.number, "idx": self.idx, "type": kind, "f": self.f, "mops": mops,
            **fields,
        })
        if kind == "info":
            self.begin_again()
