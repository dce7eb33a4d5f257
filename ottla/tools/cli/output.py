"""How commands print: tables for people, JSON for programs, names for scripts."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.errors import ClientError
from ottla.tools.findings import size_text
from ottla.tools.printable import BOLD, PLAIN
from ottla.wire.units import readable

Row = Mapping[str, Any]
SIZES = {"bytes", "size", "free", "total", "usable", "received", "sent"}
"""Columns with numbers of bytes. They have units on a terminal only."""


class NotConfirmed(ClientError):
    """An action that cannot be undone was not confirmed."""


def show(
    options: Namespace, columns: Sequence[str], rows: Iterable[Row], wide: Sequence[str] = ()
) -> None:
    """Prints rows in the requested format. The format `name` prints only the first column."""
    found = list(rows)
    chosen = options.output or "table"
    if chosen == "json":
        print(json.dumps([dict(row) for row in found], indent=2, ensure_ascii=False))
    elif chosen == "jsonl":
        for row in found:
            print(json.dumps(dict(row), ensure_ascii=False))
    elif chosen == "name":
        for name in dict.fromkeys(row[columns[0]] for row in found):
            print(name)
    else:
        table([*columns, *(wide if chosen == "wide" else ())], found)


def table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints aligned columns, with numbers to the right. On a terminal, the heading is bold, unless
    NO_COLOR is set."""
    show_cell = cell_with_units if sys.stdout.isatty() else lambda row, one: cell(row.get(one))
    cells = [[show_cell(row, one) for one in columns] for row in rows]
    heads = [column.replace("_", "-").upper() for column in columns]
    widths = [max(len(line[place]) for line in [heads, *cells]) for place in range(len(columns))]
    right = [
        all(isinstance(row.get(column), int | float | None) for row in rows) and bool(rows)
        for column in columns
    ]
    print(bold(line_of(heads, widths, right)))
    for line in cells:
        print(line_of(line, widths, right))


def cell_with_units(row: Row, column: str) -> str:
    """A value in a table on a terminal: times and sizes have units."""
    value = row.get(column)
    if column in SIZES and isinstance(value, int):
        return size_text(value)
    if column == "value":
        return with_unit(str(row.get("name", row.get("quota"))), value)
    if isinstance(value, dict):
        return " ".join(f"{name}={with_unit(name, one)}" for name, one in value.items())
    return cell(value)


def with_unit(name: str, value: Any) -> str:
    """The value of a setting, followed by the same value with a unit."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    text = readable(name, str(whole))
    return f"{cell(value)} ({text})" if text else cell(value)


def line_of(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    """One line of a table."""
    parts = [
        text.rjust(width) if flush else text.ljust(width)
        for text, width, flush in zip(line, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={one}" for key, one in value.items())
    return str(value)


def bold(text: str) -> str:
    """The text in bold if standard output is a terminal on which colours are wanted."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"{BOLD}{text}{PLAIN}"
    return text


def done(options: Namespace, text: str) -> None:
    """Reports on stderr what was done, or, with --dry-run, what would have been done."""
    prefix = "would have " if getattr(options, "dry_run", False) else ""
    print(prefix + text, file=sys.stderr)


def confirm(options: Namespace, what: str, name: str) -> None:
    """Asks the user to type `name`, for an action that cannot be undone. Raises NotConfirmed."""
    if options.yes or getattr(options, "dry_run", False):
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{what} cannot be undone: confirm with --yes")
    print(f"{what} cannot be undone. Type {name} to proceed: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise NotConfirmed(f"the answer was not {name}: nothing was changed")
