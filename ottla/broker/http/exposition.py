"""The Prometheus text format: one group of lines for each metric.

A scrape of a large broker is megabytes: it is written in pieces, between which clients are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROWS_PER_PIECE = 2000

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


def gauge(name: str, help_text: str, value: object, **where: object) -> Iterator[str]:
    """A gauge with one value."""
    return metric(name, "gauge", help_text, [(labels(**where), value)])


def counter(name: str, help_text: str, value: object, **where: object) -> Iterator[str]:
    """A counter with one value."""
    return metric(name, "counter", help_text, [(labels(**where), value)])
