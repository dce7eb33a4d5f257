"""Java's output formats that scripts may depend on: exceptions, tables of fixed columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from ottla.wire.errors import ErrorCode

ERRORS = "org.apache.kafka.common.errors."


@cache
def names() -> dict[int, tuple[str, str]]:
    """For each error code, the class and the usual message of the exception in Kafka's clients."""
    rows = (Path(__file__).parent / "errors.tsv").read_text(encoding="ascii").splitlines()
    return {int(code): (name, text) for code, name, text in (row.split("\t") for row in rows)}


def message_of(code: int, message: str | None = None) -> str:
    """The broker's message, or the usual message for this code."""
    known = names().get(code, names()[ErrorCode.UNKNOWN_SERVER_ERROR])
    return message or known[1]


def exception_of(code: int, message: str | None = None) -> str:
    """`org.apache.kafka.common.errors.SomethingException: message`."""
    known = names().get(code, names()[ErrorCode.UNKNOWN_SERVER_ERROR])
    return f"{ERRORS}{known[0]}: {message or known[1]}"


def metrics_table(group: str, client: str, values: Mapping[str, float]) -> str:
    """Metrics in the form of the perf tools' --print-metrics."""
    names = {f"{group}:{name}:{{client-id={client}}}": value for name, value in values.items()}
    width = max(map(len, names))
    lines = ["", f"{'Metric Name':<{width}}   Value"]
    lines += [f"{name:<{width}} : {value:.3f}" for name, value in sorted(names.items())]
    return "\n".join(lines)


def pretty_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as argparse4j's tools print it: a column is as wide as its widest cell, and a tab
    follows each column."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "\t".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + "\t"
        for row in cells
    ]
    return "\n".join(lines)
