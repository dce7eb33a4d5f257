"""Makes text from outside safe for a terminal."""

from __future__ import annotations

import re
import sys
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All control characters except tab and line feed: C0, DEL and C1."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
OWN = re.compile(r"(\x1b\[[01]m)")


def printable(text: str) -> str:
    """Replaces control characters by text such as \\x1b, so that a terminal does not execute
    them."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class SafeTerminal:
    """Standard output on a terminal. Only the control sequences for bold text pass unchanged."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Print text."""
        parts = OWN.split(text)
        self._stream.write(
            "".join(part if number % 2 else printable(part) for number, part in enumerate(parts)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_terminal() -> None:
    """Make standard output show control characters as text, if it is a terminal."""
    if sys.stdout is not None and sys.stdout.isatty() and not isinstance(sys.stdout, SafeTerminal):
        sys.stdout = SafeTerminal(sys.stdout)
