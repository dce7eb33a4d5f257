"""Converts the bytes that a terminal sends to names of keys."""

from __future__ import annotations

SEQUENCES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "[H": "home", "[F": "end",
    "OA": "up", "OB": "down", "OC": "right", "OD": "left", "OH": "home", "OF": "end",
    "[1~": "home", "[7~": "home", "[4~": "end", "[8~": "end", "[5~": "pageup", "[6~": "pagedown",
}  # fmt: skip
CONTROLS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x04": "q",
            "\x15": "clear"}  # fmt: skip
ESCAPE = "\x1b"
LONGEST = 16
"""The longest escape sequence in characters."""


def decode(text: str) -> list[str]:
    """The keys in text that was read at once. Unknown sequences are left out.

    A terminal sends a sequence in one piece, so an escape character without a sequence after it is
    the Escape key.
    """
    names: list[str] = []
    while text:
        first, text = text[0], text[1:]
        if first == ESCAPE and text[:1] in ("[", "O"):
            size = length(text)
            name = SEQUENCES.get(text[:size])
            text = text[size:]
            if name:
                names.append(name)
        elif first == ESCAPE:
            names.append("escape")
        elif first in CONTROLS:
            names.append(CONTROLS[first])
        elif first.isprintable():
            names.append(first)
    return names


def length(text: str) -> int:
    """The length of the sequence at the start of `text`. The sequence begins with `[` or `O` and
    ends with a letter or a tilde."""
    if text[0] == "O":
        return min(2, len(text))
    for place, character in enumerate(text[1:LONGEST], 1):
        if "@" <= character <= "~":
            return place + 1
    return len(text)
