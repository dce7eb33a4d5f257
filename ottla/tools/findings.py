"""The findings of a log directory's check, and how they are reported."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ottla.tools.progress_line import ProgressLine
from ottla.wire.wording import counted

RESTORE = (
    "restore the file from a copy or another replica; without one, only the records before the"
    " damage can be read"
)
READ_AGAIN = "nothing to do: the last stop was not clean, and the next start rebuilds"
NAMED_MAX = 3
"""The note about rebuilt files names the first file, and at most this many others."""
REBUILD = "stop the broker and delete the file: the next start rebuilds it from the segments"
CREATED_AGAIN = "start the broker: a start rebuilds the file from the segments"
PROGRESS_SECONDS = 5.0


@dataclass
class DumpFindings:
    """What `ottla log dump` found besides the lines that it prints."""

    texts: list[str] = field(default_factory=list)
    """They are printed at the end, as by Kafka's tool."""
    damaged: dict[str, None] = field(default_factory=dict)
    """The damaged files. Offsets that are not consecutive are no damage: compaction leaves gaps."""

    def tell(self, *texts: str) -> None:
        """Adds texts that do not mark a file as damaged."""
        self.texts += texts

    def damage(self, path: str, *texts: str) -> None:
        """Marks a file as damaged, and adds texts about the damage. No text is needed if a line
        that is printed about the file already shows the damage."""
        self.texts += texts
        self.damaged[path] = None


class ImportRefused(Exception):
    """The import is not possible as requested; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem. With `note`, it is an observation that needs no repair."""

    path: str
    what: str
    advice: str = ""
    position: int | None = None
    offset: int | None = None
    note: bool = False

    def __str__(self) -> str:
        where = self.path
        if self.position is not None:
            where += f" at byte {self.position}"
        if self.offset is not None:
            where += f" (offset {self.offset})"
        line = f"{'note: ' if self.note else ''}{where}: {self.what}"
        return f"{line}\n    {self.advice}" if self.advice else line


class Repeats:
    """Findings that may occur in each batch of a partition: the first of each kind is reported,
    with the number of the others. The files that the next start rebuilds share one note."""

    def __init__(self) -> None:
        self._rebuilt: dict[str, str] = {}
        self._first: dict[str, Finding] = {}
        self._more: Counter[str] = Counter()
        self._last: dict[str, int | None] = {}

    def add(self, kind: str, finding: Finding) -> None:
        """Counts a finding. Notes and errors must have different kinds."""
        if kind in self._first:
            self._more[kind] += 1
            self._last[kind] = finding.offset
        else:
            self._first[kind] = finding

    def is_rebuilt(self, path: str, what: str) -> None:
        """Adds a file that the next start rebuilds; `what` says what is wrong with it now."""
        self._rebuilt.setdefault(path, what)

    def tell(self, report: Report) -> None:
        """Reports the rebuilt files in one note, and the first finding of each kind."""
        if self._rebuilt:
            path, *more_paths = self._rebuilt
            what, files = self._rebuilt[path], "the file"
            if more_paths:
                named = [os.path.basename(other) for other in more_paths[:NAMED_MAX]]
                if len(more_paths) > NAMED_MAX:
                    named.append(counted(len(more_paths) - NAMED_MAX, "other file"))
                what += f"; other files are behind the log, too: {', '.join(named)}"
                files = "the files"
            report.add(Finding(path, what, f"{READ_AGAIN} {files}", note=True))
        for kind, finding in self._first.items():
            if more := self._more[kind]:
                others = f"{more} others like this" if more > 1 else "one other like this"
                finding = replace(
                    finding, what=f"{finding.what}; {others} up to offset {self._last[kind]}")
            report.add(finding)


@dataclass(slots=True)
class Report:
    """Prints findings as they are made, and counts them."""

    quiet: bool = False
    bytes_due: int = 0
    bytes_done: int = 0
    errors: int = 0
    notes: int = 0
    now: Callable[[], float] = time.monotonic
    told_at: float = field(init=False)
    line: ProgressLine = field(init=False)
    """Progress on a terminal. Elsewhere, `moved` prints a line every few seconds."""

    def __post_init__(self) -> None:
        self.told_at = self.now()
        self.line = ProgressLine(0, "bytes", now=self.now)

    def add(self, finding: Finding) -> None:
        """Counts and prints a finding; `quiet` suppresses the printing of notes."""
        if finding.note:
            self.notes += 1
            if self.quiet:
                return
        else:
            self.errors += 1
        self.line.clear()
        print(finding, flush=True)

    def say(self, line: str) -> None:
        """Prints a line about something that is sound, unless `quiet`."""
        self.line.clear()
        if not self.quiet:
            print(line, flush=True)

    def moved(self, size: int) -> None:
        """Counts checked bytes; shows the progress now and then."""
        self.bytes_done += size
        if self.line.wanted:
            self.line.total = self.bytes_due
            self.line.reach(self.bytes_done)
            return
        if self.now() - self.told_at < PROGRESS_SECONDS:
            return
        share = 100 * self.bytes_done / max(1, self.bytes_due)
        print(f"… {share:.0f} % of {size_text(self.bytes_due)} checked", file=sys.stderr,
              flush=True)
        self.told_at = self.now()


def offsets_text(start_offset: int, end_offset: int) -> str:
    """Where a log begins, and the offset that its next record gets. Neither depends on which
    records compaction has removed in between."""
    return f"first offset {start_offset}, next offset {end_offset}"


def size_text(size: int) -> str:
    """A number of bytes in readable form."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} B"
