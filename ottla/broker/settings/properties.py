"""Reads `.properties` files as Java does: comments, continued lines, escapes, three separators."""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE_ENDS = re.compile(r"\r\n|\r|\n")
BLANK = " \t\f"
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Names and values; the last value of a name counts. Raises ValueError for a broken \u escape.

    Java reads Latin-1. Here a file that is valid UTF-8 is read as UTF-8, since most files are
    written in UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return {name: value for _, name, value in numbered_entries(text)}


def numbered_entries(text: str) -> Iterator[tuple[int, str, str]]:
    r"""Line number, name and value of each entry. Raises ValueError for a broken \u escape."""
    for number, line in _logical_lines(text):
        try:
            yield number, *_entry(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The logical lines, each with the number of its first line. Comments and empty lines are
    skipped; a backslash at the end of a line continues the entry in the next line."""
    begun = ""
    continued = False
    first = 0
    for number, line in enumerate(LINE_ENDS.split(text), 1):
        line = line.lstrip(BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        first = first if continued else number
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        begun += line[:-1] if continued else line
        if not continued:
            yield first, begun
            begun = ""
    if begun:
        yield first, begun


def _entry(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + BLANK:
        at += 2 if line[at] == "\\" else 1
    name, value = line[:at], line[at:].lstrip(BLANK)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(BLANK)
    name = _unescape(name)
    try:
        return name, _unescape(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escaped = match.group(1)
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        # The text is not quoted: it may be a password.
        raise ValueError(f"\\u without four hexadecimal digits at character {match.start() + 1}")
    return LETTERS.get(escaped, escaped)
