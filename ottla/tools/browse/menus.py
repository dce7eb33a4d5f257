"""The lists of topics and of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tools.browse.text import cut, printable
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.tools.browse.source import Bounds

MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


class Menu:
    """A list with one selected row, whose name is `pick`. In a list of partitions, `topic` is their
    topic; in a list of topics, it is empty."""

    keys = "↑ ↓ PgUp PgDn move   Enter open   Esc back   r refresh   q quit"

    def __init__(self, topic: str, heading: str, rows: list[tuple[str, str]]) -> None:
        self.topic, self.heading, self.rows = topic, heading, rows
        self.title = topic or counted(len(rows), "topic")
        self.cursor = 0

    @property
    def pick(self) -> str:
        return self.rows[self.cursor][0] if self.rows else ""

    def press(self, key: str, height: int) -> None:
        """Move."""
        pages = {"pageup": -height, "b": -height, "pagedown": height, " ": height}
        if key in ("home", "g", "end", "G"):
            step = len(self.rows) if key in ("end", "G") else -len(self.rows)
        else:
            step = MOVES.get(key) or pages.get(key, 0)
        self.cursor = max(0, min(self.cursor + step, len(self.rows) - 1))

    def lines(self, width: int, height: int) -> tuple[list[str], int]:
        """The shown rows, and the number of the selected row."""
        top = self.cursor // height * height
        shown = [cut(printable(text), width) for _, text in self.rows[top : top + height]]
        return shown, self.cursor - top


def of_topics(topics: list[tuple[str, int]]) -> Menu:
    """The list of all topics."""
    rows = [(name, f"{count:>10}  {name}") for name, count in topics]
    return Menu("", f"{'PARTITIONS':>10}  TOPIC", rows)


def of_partitions(topic: str, bounds: dict[int, Bounds]) -> Menu:
    """The list of one topic's partitions."""
    rows = [
        (str(index), f"{index:>9}  {one.first:>14}  {one.next:>14}  {one.next - one.first:>14}")
        for index, one in sorted(bounds.items())
    ]
    heading = f"{'PARTITION':>9}  {'FIRST':>14}  {'NEXT':>14}  {'OFFSETS':>14}"
    return Menu(topic, heading, rows)
