"""Writes results to `results/`, as dated JSON and as a Markdown table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine

RESULTS = Path(__file__).with_name("results")
POM = Path(__file__).with_name("peers") / "kafka" / "pom.xml"
PEER = "Kafka " + POM.read_text().partition("<kafka.version>")[2].partition("<")[0]
BROKERS = {"ottla": "Ottla", "kafka": PEER}
Figures = dict[str, list[float]]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range: `1.20 (1.10–1.40)`."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The ratio of our median to Kafka's."""
    return f"{statistics.median(ours) / statistics.median(theirs):.2f} ×"


def user_share(results: Sequence[dict[str, Any]]) -> str:
    """The share of user time in the CPU time: `15 %`."""
    return f"{100 * statistics.median(r['broker_user_share'] for r in results):.0f} %"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures_table(
    measured: Mapping[str, Figures], rows: Mapping[str, tuple[str, int]], with_ratio: bool = False
) -> str:
    """One row for each figure, with its title and digits; one column for each broker of BROKERS."""
    lines = [
        [text, *(spread(figures[name], digits) for figures in measured.values())]
        for name, (text, digits) in rows.items()
    ]
    header = ["", *(BROKERS[kind] for kind in measured)]
    if with_ratio:
        header.append("ratio")
        for name, line in zip(rows, lines, strict=True):
            line.append(ratio(measured["ottla"][name], measured["kafka"][name]))
    return table(header, lines)


def path(name: str) -> Path:
    """The path of today's result with this name, without its suffix."""
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{name}"


def write(question: str, name: str, text: str, measured: dict[str, Any]) -> None:
    """Write `results/<date>-<name>.json` and `.md`, and print the table."""
    facts = machine.description() | {"peer": PEER}
    base = path(name)
    base.with_suffix(".json").write_text(
        json.dumps({"machine": facts, "measured": measured}, indent=1) + "\n"
    )
    where = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in facts.items())
    base.with_suffix(".md").write_text(f"# {question}\n\n{text}\n\nMachine: {where}.\n")
    print(f"{question}\n\n{text}\n", flush=True)
