"""The browser's views, prompts and search. Takes the names of keys, and returns lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, TimedOut, Unreachable
from ottla.tools.browse.detail import Detail
from ottla.tools.browse.menus import Menu, of_partitions, of_topics
from ottla.tools.browse.page import Page
from ottla.tools.browse.text import cut, printable
from ottla.wire.errors import ProtocolError

if TYPE_CHECKING:
    from ottla.tools.browse.source import Source

FRAME = 3
"""Lines in addition to the rows: the title, the heading, the line at the bottom."""
PROMPTS = {
    "o": "offset (N, -N, beginning, end): ",
    "t": "time (2026-01-31T12:00:00 or milliseconds): ",
    "p": "partition: ",
    "/": "search keys, values and headers for: ",
}
TEXT_MAX = 200


class Browser:
    """A stack of views: topics, partitions, records, one record."""

    def __init__(self, source: Source, height: int, start: str = "beginning") -> None:
        self.source, self.start = source, start
        self.rows = max(1, height - FRAME)
        self.views: list[Menu | Page | Detail] = []
        self.prompt = ""
        self.typed = ""
        self.message = ""
        self.wanted = ""
        self.search: Iterator[tuple[int, bool]] | None = None
        self.over = False

    def open_topics(self) -> None:
        self.views.append(of_topics(self.source.topics()))

    def open_topic(self, topic: str) -> None:
        """Opens the list of a topic's partitions, or its records if it has only one partition."""
        bounds = self.source.bounds(topic)
        if len(bounds) == 1:
            self.open_partition(topic, next(iter(bounds)))
        else:
            self.views.append(of_partitions(topic, bounds))

    def open_partition(self, topic: str, partition: int) -> None:
        page = Page(self.source, topic, partition, self.rows)
        page.go(self.start)
        self.views.append(page)

    @property
    def waits(self) -> bool:
        """Whether the browser waits for a key. It does not wait while a search runs."""
        return self.search is None

    def press(self, key: str) -> None:
        """Handle one key. Errors are shown at the bottom."""
        self.message = ""
        if self.search is not None:
            self.search = None
            self.message = "the search was stopped"
            return
        self.guarded(lambda: self.type(key) if self.prompt else self.act(key))

    def tick(self) -> None:
        """Continue a search by one fetch, or follow new records."""
        if self.search is not None:
            self.guarded(self.search_on)
        elif isinstance(view := self.views[-1], Page) and view.following:
            self.guarded(view.follow)

    def guarded(self, work: Callable[[], None]) -> None:
        """Run a function. If it fails, show the error at the bottom, end the search, and stop
        following new records."""
        try:
            work()
        except (ClientError, ProtocolError, OSError) as failed:
            self.message = " ".join(str(failed).split())
            self.search = None
            for view in self.views:
                if isinstance(view, Page):
                    view.following = False
            if isinstance(failed, Unreachable | TimedOut | OSError):
                self.source.cluster.close()  # the next key connects again

    def resize(self, height: int) -> None:
        """Change the height of the screen."""
        self.rows = max(1, height - FRAME)
        for view in self.views:
            if isinstance(view, Page):
                self.guarded(partial(view.resize, self.rows))

    def act(self, key: str) -> None:
        view = self.views[-1]
        if key == "q":
            self.over = True
        elif key in ("escape", "backspace"):
            self.close()
        elif key == "enter":
            self.enter()
        elif isinstance(view, Page) and key in PROMPTS:
            self.prompt, self.typed = key, ""
        elif isinstance(view, Page) and key == "n" and self.wanted:
            self.find(view)
        elif isinstance(view, Page) and key in ("left", "right", "[", "]"):
            self.beside(view, -1 if key in ("left", "[") else 1)
        elif isinstance(view, Detail) and key in ("left", "right"):
            self.turn(-1 if key == "left" else 1)
        elif isinstance(view, Menu) and key == "r":
            self.renew(view)
        else:
            view.press(key, self.rows)

    def close(self) -> None:
        """Returns to the previous view. Closing the first view ends the program."""
        self.views.pop()
        self.over = not self.views

    def enter(self) -> None:
        """Open the selected row."""
        view = self.views[-1]
        if isinstance(view, Page) and view.chosen is not None:
            view.following = False
            self.views.append(Detail(view.place, view.chosen))
        elif isinstance(view, Menu) and view.pick:
            if view.topic:
                self.open_partition(view.topic, int(view.pick))
            else:
                self.open_topic(view.pick)

    def renew(self, view: Menu) -> None:
        """Read the same list again."""
        if view.topic:
            fresh = of_partitions(view.topic, self.source.bounds(view.topic))
        else:
            fresh = of_topics(self.source.topics())
        fresh.cursor = max(0, min(view.cursor, len(fresh.rows) - 1))
        self.views[-1] = fresh

    def beside(self, page: Page, step: int) -> None:
        """Show the partition before or after this one."""
        indexes = sorted(self.source.bounds(page.place[0]))
        place = indexes.index(page.place[1]) + step
        if 0 <= place < len(indexes):
            self.replace(page.place[0], indexes[place])
        else:
            self.message = f"this is the {'first' if step < 0 else 'last'} partition"

    def replace(self, topic: str, partition: int) -> None:
        """Show another partition instead of this one."""
        self.open_partition(topic, partition)
        del self.views[-2]

    def turn(self, step: int) -> None:
        """Show the record before or after this one."""
        page = self.views[-2]
        assert isinstance(page, Page)
        before = page.chosen
        page.press("up" if step < 0 else "down", self.rows)
        if page.chosen is not None and page.chosen is not before:
            self.views[-1] = Detail(page.place, page.chosen)
        else:
            self.message = f"there is no {'earlier' if step < 0 else 'later'} record"

    def type(self, key: str) -> None:
        """Handle one key at a prompt."""
        if key == "escape":
            self.prompt = ""
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif key == "clear":
            self.typed = ""
        elif key == "enter":
            asked, self.prompt = self.prompt, ""
            self.answer(asked, self.typed)
        elif len(key) == 1 and len(self.typed) < TEXT_MAX:
            self.typed += key

    def answer(self, asked: str, text: str) -> None:
        """Handle the text typed at a prompt."""
        page = self.views[-1]
        assert isinstance(page, Page)
        if not text:
            return
        if asked == "o":
            page.go(text.strip())
        elif asked == "t":
            page.go(f"@{text.strip()}")
        elif asked == "p":
            if not text.strip().isdecimal():
                raise ClientError(f"partition {text}: expected a number")
            self.replace(page.place[0], int(text))
        else:
            self.wanted = text
            self.find(page)

    def find(self, page: Page) -> None:
        """Begin to search after the selected record."""
        page.following = False
        begin = page.chosen.offset + 1 if page.chosen else page.bounds.first
        self.search = self.source.search(page.place, begin, self.wanted.encode())
        self.message = f"searching from offset {begin}: any key stops it"

    def search_on(self) -> None:
        """Do one step of the search, which is one fetch."""
        page = self.views[-1]
        assert self.search is not None and isinstance(page, Page)
        offset, found = next(self.search, (-1, False))
        if offset < 0:
            self.search = None
            self.message = f"{self.wanted!r} does not occur from here to the end"
        elif found:
            self.search = None
            page.show_from(offset)
            self.message = f"{self.wanted!r} found at offset {offset}"
        else:
            self.message = f"searching at offset {offset} of {page.bounds.next}: any key stops it"

    def screen(self, width: int) -> tuple[list[str], int]:
        """All lines from top to bottom, and the number of the selected line (-1 for none)."""
        view = self.views[-1]
        lines, chosen = view.lines(width, self.rows)
        bottom = self.message or view.keys
        if self.prompt:
            bottom = PROMPTS[self.prompt] + self.typed + "▏"
        blank = [""] * (self.rows - len(lines))
        shown = [
            cut(printable(view.title), width),
            cut(view.heading, width),
            *lines,
            *blank,
            cut(printable(bottom), width).rstrip(),
        ]
        return shown, chosen + 2 if chosen >= 0 and lines else -1
