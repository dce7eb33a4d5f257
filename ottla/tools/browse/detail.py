"""The view of one complete record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tools.browse.text import whole

if TYPE_CHECKING:
    from ottla.wire.records import Record

MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


class Detail:
    """One record as lines that can be scrolled."""

    keys = "↑ ↓ PgUp PgDn scroll   ← → other record   Esc back   q quit"
    heading = ""

    def __init__(self, place: tuple[str, int], record: Record) -> None:
        self.title = f"{place[0]}-{place[1]} offset {record.offset}"
        self.record = record
        self.top = 0
        self.made: tuple[int, list[str]] = (0, [])

    def press(self, key: str, height: int) -> None:
        """Scroll."""
        count = len(self.made[1])
        pages = {"pageup": -height, "b": -height, "pagedown": height, " ": height}
        if key in ("home", "g", "end", "G"):
            step = count if key in ("end", "G") else -count
        else:
            step = MOVES.get(key) or pages.get(key, 0)
        self.top = max(0, min(self.top + step, count - height))

    def lines(self, width: int, height: int) -> tuple[list[str], int]:
        """The shown lines; none is selected (-1)."""
        if self.made[0] != width:
            self.made = (width, whole(self.record, width))
        return self.made[1][self.top : self.top + height], -1
