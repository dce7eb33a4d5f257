"""Records as lines that fit on a screen. Characters that do not print are shown as escapes, so that
a record's content cannot move the cursor, change colours or ring a bell."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.wire.records import Record

VALUE_MAX = 1 << 20
"""How many bytes of a value are shown."""
ROW_MAX = 400
"""How many bytes of a key or a value are used for a row of a list."""
KEY_WIDTH = 20


def printable(text: str) -> str:
    """The text with non-printable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def columns_of(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in exactly `width` columns: filled with blanks, or cut off with an ellipsis."""
    sizes = [columns_of(one) for one in text]
    if sum(sizes) <= width:
        return text + " " * (width - sum(sizes))
    kept, used = [], 0
    for character, size in zip(text, sizes, strict=True):
        if used + size > width - 1:
            break
        kept.append(character)
        used += size
    return "".join(kept) + "…" * (width > 0) + " " * (width - used - 1)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns."""
    lines: list[str] = []
    line: list[str] = []
    used = 0
    for character in text:
        size = columns_of(character)
        if used + size > width and line:
            lines.append("".join(line))
            line, used = [], 0
        line.append(character)
        used += size
    return [*lines, "".join(line)]


def data(value: bytes | None) -> str:
    """A key or a value in a row: text, or hexadecimal digits for bytes that are not text."""
    if value is None:
        return "(null)"
    part = value[:ROW_MAX]
    try:
        # The truncation may have split the last character.
        text = part.decode() if len(part) == len(value) else part.decode(errors="ignore")
    except UnicodeDecodeError:
        return "0x" + part.hex()
    return printable(text)


def moment(timestamp: int) -> str:
    """A timestamp as a date in UTC."""
    if timestamp < 0:
        return "-"
    try:
        date = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return date.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp % 1000:03d}"


def heading(width: int) -> str:
    """The names of a row's columns."""
    return cut(f"{'OFFSET':>12}  {'TIME (UTC)':<23}  {'KEY':<{KEY_WIDTH}}  VALUE", width)


def row(record: Record, width: int) -> str:
    """One record in a line."""
    when = moment(record.timestamp)
    line = f"{record.offset:>12}  {when:<23}  {cut(data(record.key), KEY_WIDTH)}  "
    return cut(line + data(record.value), width)


def whole(record: Record, width: int) -> list[str]:
    """Everything about one record; a JSON value is indented."""
    lines = [f"offset     {record.offset}", f"timestamp  {moment(record.timestamp)}"]
    if record.timestamp >= 0:
        lines[-1] += f" ({record.timestamp})"
    for name, value in record.headers:
        lines += wrapped(f"header     {printable(name)} = {data(value)}", width)
    lines += labelled("key", record.key, width)
    lines += labelled("value", record.value, width)
    return lines


def labelled(name: str, value: bytes | None, width: int) -> list[str]:
    """A key or a value under its name."""
    if value is None:
        return [f"{name:<9}  (null)"]
    lines = [f"{name:<9}  {counted(len(value), 'byte')}", ""]
    shown = value[:VALUE_MAX]
    for line in laid_out(shown, whole=len(shown) == len(value)):
        lines += wrapped(line, width)
    if len(shown) < len(value):
        lines.append(f"… not shown: {counted(len(value) - len(shown), 'more byte')}")
    return [*lines, ""]


def laid_out(value: bytes, *, whole: bool) -> Sequence[str]:
    """The lines of a value: JSON with indentation, text, or a hexadecimal dump."""
    try:
        text = value.decode(errors="strict" if whole else "ignore")
    except UnicodeDecodeError:
        return [
            f"{place:08x}  {part.hex(' '):<47}  "
            + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
            for place in range(0, len(value), 16)
            if (part := value[place : place + 16])
        ]
    if text[:1] in ("{", "["):
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # it only looked like JSON: show the unchanged text
    return [printable(line.expandtabs(4)) for line in text.split("\n")]
