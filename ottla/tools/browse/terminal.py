"""The terminal: reads raw keys, draws whole screens. Its state is restored in any case."""

from __future__ import annotations

import codecs
import os
import select
import signal
import termios
import tty
from types import FrameType, TracebackType
from typing import Self

from ottla.tools.browse.keys import decode

ALTERNATE, NORMAL = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
INVERSE, BOLD, PLAIN = "\x1b[7m", "\x1b[1m", "\x1b[0m"
SMALLEST = (20, 5)


class Terminal:
    """Standard input and output as a screen with a keyboard."""

    def __init__(self, source: int, target: int, *, colours: bool) -> None:
        self.source, self.target, self.colours = source, target, colours
        self.drawn: list[str] = []
        self.text = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def __enter__(self) -> Self:
        self.saved = termios.tcgetattr(self.source)
        self.handler = signal.signal(signal.SIGTERM, self.ended)
        tty.setcbreak(self.source)
        settings = termios.tcgetattr(self.source)
        settings[6][termios.VSUSP] = b"\x00"  # no Ctrl-Z: it would leave this screen in the shell
        termios.tcsetattr(self.source, termios.TCSANOW, settings)
        self.write(ALTERNATE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTERM, self.handler)
        try:
            self.write(NORMAL)
            termios.tcsetattr(self.source, termios.TCSADRAIN, self.saved)
        except (OSError, termios.error):
            pass  # the terminal is closed: nothing to restore

    def ended(self, number: int, frame: FrameType | None) -> None:
        """Handles SIGTERM with an exception, so that `__exit__` restores the terminal."""
        raise SystemExit(128 + number)

    def size(self) -> tuple[int, int]:
        """Columns and lines. A terminal of unknown size reports zero: assume 80 x 24."""
        reported = os.get_terminal_size(self.target)
        if not reported.columns or not reported.lines:
            return 80, 24
        return max(reported.columns, SMALLEST[0]), max(reported.lines, SMALLEST[1])

    def draw(self, lines: list[str], chosen: int) -> None:
        """Show a screen. If nothing has changed, nothing is written."""
        styled = [self.style(line, place, chosen) for place, line in enumerate(lines)]
        if styled == self.drawn:
            return
        self.drawn = styled
        text = f"{REST_OF_LINE}\r\n".join(styled)
        self.write(HOME + text + REST_OF_LINE + REST_OF_SCREEN)

    def style(self, line: str, place: int, chosen: int) -> str:
        """Styles a line: title and heading bold, the selected line inverse. The selected line is
        inverse even without colours, as nothing else marks it."""
        if place == chosen:
            return f"{INVERSE}{line}{PLAIN}"
        return f"{BOLD}{line}{PLAIN}" if place < 2 and self.colours else line

    def keys(self, seconds: float) -> list[str] | None:
        """The keys that are pressed within this time; None when the terminal is closed."""
        ready, _, _ = select.select([self.source], [], [], seconds)
        if not ready:
            return []
        try:
            data = os.read(self.source, 1024)
        except OSError:
            return None
        return decode(self.text.decode(data)) if data else None

    def write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self.target, data) :]
