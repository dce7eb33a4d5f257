"""The Prometheus text format: one group of lines for each metric.

A scrape of a large broker is megabytes long, so it is written in pieces, and clients are served in
between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.http.partition_rows import PartitionRows

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROWS_PER_PIECE = 500
"""How many rows one piece has. To format them takes some 30 µs, which is less than a slice of a
scrape (`server.SLICE_SECONDS`)."""

Labels = Mapping[str, object]


def escaped(value: object) -> str:
    """A label's value, escaped for use between quotation marks."""
    text = str(value)
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text


def labels(**values: object) -> str:
    """`{name="value",…}`, or "" without labels. A trailing underscore of a name is removed."""
    inside = ",".join(f'{k.rstrip("_")}="{escaped(v)}"' for k, v in values.items())
    return f"{{{inside}}}" if inside else ""


def metric(
    name: str, kind: str, help_text: str, rows: Iterable[tuple[str, object]]
) -> Iterator[str]:
    """A metric's lines in pieces; each row has labels, made by `labels`, and a value."""
    lines = [f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"]
    for where, value in rows:
        lines.append(f"{name}{where} {value}\n")
        if len(lines) > ROWS_PER_PIECE:
            yield "".join(lines)
            lines = []
    yield "".join(lines)


def rows_metric(
    name: str, help_text: str, rows: PartitionRows, column: int, kind: str = "gauge",
    thousandths: bool = False, total: int | None = None,
) -> Iterator[str]:
    """A metric's lines in pieces: one line for each of `rows` that has a value. If `total` is
    given, the first line has no labels and `total` as its value."""
    yield f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n" + (
        "" if total is None else f"{name} {total}\n")
    for start in range(0, len(rows), ROWS_PER_PIECE):
        yield rows.lines(name, column, start, start + ROWS_PER_PIECE, thousandths)


def gauge(name: str, help_text: str, value: object, **where: object) -> Iterator[str]:
    """A gauge with one value."""
    return metric(name, "gauge", help_text, [(labels(**where), value)])


def counter(name: str, help_text: str, value: object, **where: object) -> Iterator[str]:
    """A counter with one value."""
    return metric(name, "counter", help_text, [(labels(**where), value)])
