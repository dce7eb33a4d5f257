"""Records of one partition, a screen at a time, back and forth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, no_partition
from ottla.tools.browse.source import Bounds, Source
from ottla.tools.browse.text import heading, row
from ottla.tools.cli.moments import milliseconds
from ottla.tools.cli.offset_text import BEGINNING, END, check_offset

if TYPE_CHECKING:
    from ottla.wire.records import Record


class Page:
    """The records on the screen, in the order of their offsets, one of them selected.

    Records outside the screen are fetched when they are needed, so that a topic of any size takes
    the same memory.
    """

    keys = (
        "↑ ↓ PgUp PgDn g G move   Enter open   o offset   t time   p partition   / search   "
        "n next   f follow   Esc back   q quit"
    )
    heading = heading(1000).rstrip()

    def __init__(self, source: Source, topic: str, partition: int, height: int) -> None:
        self.source, self.height = source, height
        self.place = (topic, partition)
        self.records: list[Record] = []
        self.cursor = 0
        self.following = False
        self.bounds = Bounds(0, 0)
        self.refresh()

    @property
    def title(self) -> str:
        state = "   following" if self.following else ""
        first, end = self.bounds
        shown = f"offsets {first} to {end - 1}" if end > first else "empty"
        return f"{self.place[0]}-{self.place[1]}   {shown}{state}"

    @property
    def chosen(self) -> Record | None:
        return self.records[self.cursor] if self.records else None

    def refresh(self) -> None:
        """Read the partition's offsets again."""
        bounds = self.source.bounds(self.place[0])
        if self.place[1] not in bounds:
            raise ClientError(no_partition(*self.place, len(bounds)))
        self.bounds = bounds[self.place[1]]

    def go(self, text: str) -> None:
        """Show the records at a place in the log: `beginning`, `end`, an offset N, -N (N offsets
        before the end), @TIME, or s@TIME as in kcat."""
        self.refresh()
        check_offset(text, "offset", ("beginning", "end"))
        first, end = self.bounds
        if text in BEGINNING:
            self.show_from(first)
        elif text in END:
            self.show_end()
        elif text.startswith(("s@", "@")):
            self.show_from(
                self.source.at_time(self.place, milliseconds(text.partition("@")[2].strip()))
            )
        else:
            number = int(text)
            self.show_from(max(first, min(end + number if text[0] == "-" else number, end)))

    def show_from(self, offset: int) -> None:
        """Selects the first record at or after an offset. Without one, selects the last record.

        If the selected record and those after it do not fill the screen, shows earlier ones above.
        """
        self.following = False
        fetched = self.source.after(self.place, max(offset, self.bounds.first), self.height)
        room = self.height - len(fetched)
        if room == self.height:
            self.show_end()
            return
        earlier = self.back(fetched[0].offset, room) if room else []
        self.records, self.cursor = [*earlier, *fetched], len(earlier)

    def show_end(self) -> None:
        """Shows the last records, and selects the last one."""
        self.following = False
        self.records = self.back(self.bounds.next, self.height)
        self.cursor = max(0, len(self.records) - 1)

    def back(self, offset: int, count: int) -> list[Record]:
        """The last `count` records before an offset."""
        return self.source.before(self.place, self.bounds.first, offset, count)

    def resize(self, height: int) -> None:
        """Adapt the records to another height."""
        chosen = self.chosen
        self.height = height
        if chosen is None:
            return
        if len(self.records) > height:
            top = min(max(0, self.cursor - height + 1), len(self.records) - height)
            self.records, self.cursor = self.records[top : top + height], self.cursor - top
        else:
            last = self.records[-1].offset + 1
            self.records += self.source.after(self.place, last, height - len(self.records))

    def press(self, key: str, height: int) -> None:
        """Move, or follow new records."""
        moves: dict[str, Callable[[], None]] = {
            "up": self.up, "k": self.up, "down": self.down, "j": self.down,
            "pageup": self.page_up, "b": self.page_up,
            "pagedown": self.page_down, " ": self.page_down,
            "home": lambda: self.go("beginning"), "g": lambda: self.go("beginning"),
            "end": lambda: self.go("end"), "G": lambda: self.go("end"),
        }  # fmt: skip
        if key == "f":
            wanted = not self.following
            self.go("end")
            self.following = wanted
        elif key in moves:
            self.following = False
            moves[key]()
        elif key == "r":
            self.go(str(self.records[0].offset) if self.records else "end")

    def up(self) -> None:
        if self.cursor:
            self.cursor -= 1
        elif self.records:
            self.records = [*self.back(self.records[0].offset, 1), *self.records][: self.height]

    def down(self) -> None:
        if self.cursor < len(self.records) - 1:
            self.cursor += 1
        elif self.more(1):
            self.cursor = len(self.records) - 1

    def page_up(self) -> None:
        earlier = self.back(self.records[0].offset, self.height) if self.records else []
        self.records = [*earlier, *self.records][: self.height]
        if len(earlier) < self.height:
            self.cursor = max(0, self.cursor - self.height + len(earlier))

    def page_down(self) -> None:
        if self.records and (moved := self.more(self.height)) < self.height:
            self.cursor = min(self.cursor + self.height - moved, len(self.records) - 1)

    def more(self, count: int) -> int:
        """Add records that follow the last one; returns how many."""
        offset = self.records[-1].offset + 1 if self.records else self.bounds.first
        fetched = self.source.after(self.place, offset, count)
        if fetched:
            self.records = [*self.records, *fetched][-self.height :]
            self.bounds = self.bounds._replace(next=max(self.bounds.next, fetched[-1].offset + 1))
        return len(fetched)

    def follow(self) -> None:
        """Adds new records. If they fill the screen, skips to the partition's last records."""
        if self.more(self.height) == self.height:
            self.go("end")
            self.following = True
        self.cursor = max(0, len(self.records) - 1)

    def lines(self, width: int, height: int) -> tuple[list[str], int]:
        """The rows, and the number of the selected row."""
        return [row(record, width) for record in self.records[:height]], self.cursor
