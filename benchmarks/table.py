"""Makes one Markdown table of all figures that have a target, from each benchmark's newest results.

It also makes a plot of the figures that are compared with Kafka's. Below the table it lists the
figures that are worse than Kafka's, and the figures that miss their target.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from benchmarks import compaction, load, report

Measured = dict[str, Any]
BARE, KAFKA, ALONE = "floor", "kafka", "alone"
BESIDE = {KAFKA: "", BARE: " (bare sendfile)", ALONE: " (alone)"}


class Figure(NamedTuple):
    """A figure of Ottla, the figure to compare it with, and the greatest allowed ratio."""

    question: str
    load: str
    key: str
    unit: str
    target: float
    beside: str = KAFKA
    ours: str = "ottla"


PRODUCE, FETCH, LATENCY = "produce-cpu", "fetch-cpu", "latency"
COMPACTION, LARGE = "compaction", "large-topic"
GB, REQUESTS = "broker_cpu_s_per_gb", "broker_cpu_s_per_mreq"
PER_GB, PER_MILLION = "CPU-s a GB", "CPU-s a million"
QUESTIONS = (
    PRODUCE, FETCH, LATENCY, "groups-cpu", COMPACTION, LARGE, "client-rates", "start-time",
    "restart-time", "many-groups",
)  # fmt: skip
WAITING = "1,000 consumers of 4 partitions, acks=1, 100 B every 100 ms"
ONE = "1 consumer, acks=all, 100 B every ms"
WEAKER = load.KAFKAS_FLUSH
RATIOS = (
    Figure(PRODUCE, "60 × 1,000 B, acks=1", GB, PER_GB, 0.30),
    Figure(PRODUCE, "60 × 1,000 B, acks=all", GB, PER_GB, 0.30, ours=WEAKER),
    Figure(PRODUCE, "1,000 × 1,000 B, acks=1", GB, PER_GB, 0.40),
    Figure(PRODUCE, "145 × 100 B, acks=1", GB, PER_GB, 0.20),
    Figure(PRODUCE, "60 × 1,000 B, lz4, idempotent, acks=all", GB, PER_GB, 0.30, ours=WEAKER),
    Figure(PRODUCE, "1 × 100 B, one at a time, one core", REQUESTS, PER_MILLION, 0.15),
    Figure(PRODUCE, "1 × 100 B, 8 connections × 5", REQUESTS, PER_MILLION, 0.10),
    Figure(FETCH, "4 connections, 64 KiB", GB, PER_GB, 0.50),
    Figure(FETCH, "4 connections, 1 MiB", GB, PER_GB, 1.00),
    Figure(FETCH, "4 connections, 1 MiB", GB, PER_GB, 1.20, beside=BARE),
    Figure(FETCH, "4 connections, 64 KiB", GB, PER_GB, 1.20, beside=BARE),
    Figure(LATENCY, WAITING, "p50_us", "p50, µs", 0.10),
    Figure(LATENCY, WAITING, REQUESTS, PER_MILLION, 0.40),
    Figure(LATENCY, ONE, "p50_us", "p50, µs", 0.50, ours=WEAKER),
    Figure(LATENCY, ONE, "p99_us", "p99, µs", 0.50, ours=WEAKER),
    *(Figure(COMPACTION, name, "cpu_s_per_gb", PER_GB, 1.00) for name in compaction.LOADS),
)


class Line(NamedTuple):
    """A line of the table with its verdict."""

    name: str
    unit: str
    ours: float
    theirs: float
    beside: str
    target: str
    met: bool

    @property
    def title(self) -> str:
        """What was measured, with its unit if the name does not contain the unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def ratio(self) -> float:
        """The ratio of Ottla's figure to the other figure."""
        return self.ours / self.theirs


class Results(NamedTuple):
    """The last results of a benchmark, and the release of Apache Kafka that the run measured."""

    measured: Measured
    peer: str


def last(question: str) -> Results | None:
    """The last results of a benchmark; None if it was never run."""
    files = sorted(report.RESULTS.glob(f"*-{question}.json"))
    if not files:
        return None
    found = json.loads(files[-1].read_text())
    return Results(found["measured"], found["machine"]["peer"])


def newest(question: str) -> Measured | None:
    """What the last run of a benchmark measured; None if it was never run."""
    found = last(question)
    return found and found.measured


def peers() -> str:
    """A text: which results were compared with which release of Apache Kafka."""
    questions: dict[str, list[str]] = {}
    for question in QUESTIONS:
        if (found := last(question)) is not None:
            questions.setdefault(found.peer, []).append(question)
    return "; ".join(f"{peer}: {', '.join(names)}" for peer, names in questions.items())


def ratios() -> Iterable[Line]:
    """The lines of RATIOS, whose target is a ratio."""
    for figure in RATIOS:
        measured = newest(figure.question)
        if measured is None or figure.load not in measured:
            continue
        runs = measured[figure.load]
        if not {figure.ours, figure.beside} <= runs.keys():
            continue
        ours, theirs = (
            statistics.median(r[figure.key] for r in runs[kind])
            for kind in (figure.ours, figure.beside)
        )
        title = figure.load if figure.ours == "ottla" else f"{figure.load}, no flush"
        yield Line(
            title, figure.unit, ours, theirs, figure.beside, f"≤ {figure.target:.2f} ×",
            ours <= figure.target * theirs,
        )  # fmt: skip


def groups() -> Iterable[Line]:
    """The lines for groups, whose target is a ratio to Kafka's figure."""
    measured = newest("groups-cpu") or {}
    for name, unit, target in (
        ("heartbeat", PER_MILLION, 0.3),
        ("offset commit", PER_MILLION, 0.3),
        ("KIP-848 heartbeat", PER_MILLION, 0.3),
        ("settle", "s until 500 members have joined again", 1.0),
    ):
        runs = measured.get(name, {})
        for kind in ("ottla", WEAKER):
            if {kind, KAFKA} <= runs.keys():
                ours, theirs = (statistics.median(runs[each]) for each in (kind, KAFKA))
                title = name if kind == "ottla" else f"{name}, no flush"
                met = ours <= target * theirs
                yield Line(title, unit, ours, theirs, KAFKA, f"≤ {target:.2f} ×", met)


def disturbed() -> Iterable[Line]:
    """The lines for a client's figure beside other work, compared with the same figure alone."""
    paced = (newest(COMPACTION) or {}).get("paced produce")
    if paced is not None:
        for key, title, target in (
            ("p99", "produce beside a compaction: p99, µs", 1.5),
            ("CPU", "produce beside a compaction, without the cleaner's CPU: CPU-µs a request",
             1.1),
        ):
            beside, alone = (statistics.median(paced[f"{key} {w}"]) for w in ("beside", "alone"))
            met = beside <= target * alone
            yield Line(title, "", beside, alone, ALONE, f"≤ {target:.2f} ×", met)
    large = (newest(LARGE) or {}).get("ottla")
    if large is not None:
        beside, alone = (
            statistics.median(r["p99_us"] for r in large[w]) for w in ("beside", "alone")
        )
        title = "produce beside a reader of old records: p99, µs"
        yield Line(title, "", beside, alone, ALONE, "≤ 2.00 ×", beside <= 2 * alone)


def rates() -> Iterable[Line]:
    """The lines for stock clients, which must not be slower with Ottla than with Kafka."""
    for name, runs in (newest("client-rates") or {}).items():
        ours, theirs = (statistics.median(runs[kind]) for kind in (WEAKER, KAFKA))
        yield Line(name, "records/s", ours, theirs, KAFKA, "≥ 1.00 ×", ours >= theirs)


def bounds() -> Iterable[Line]:
    """The lines whose target is an absolute figure; also the memory after 2 GB, whose target is a
    ratio."""
    wanted: tuple[tuple[str, str, str, float], ...] = (
        ("start-time", "first_ms", "start to Metadata, ms", 300.0),
        ("start-time", "idle_mb", "resident when idle, MiB", 40.0),
        ("restart-time", "served_s", "kill -9 until 2 GB are served again, s", 1.0),
        ("many-groups", "all_ms", "start to the offsets of 10,000 groups, ms", 1000.0),
    )
    for question, key, title, limit in wanted:
        measured = newest(question)
        if measured is not None and KAFKA in measured:
            ours, theirs = (statistics.median(measured[kind][key]) for kind in ("ottla", KAFKA))
            yield Line(title, "", ours, theirs, KAFKA, f"≤ {limit:g}", ours <= limit)
    measured = newest("restart-time")
    if measured is not None:
        ours, theirs = (statistics.median(measured[k]["memory_mb"]) for k in ("ottla", KAFKA))
        yield Line(
            "resident after writing 2 GB, MiB", "", ours, theirs, KAFKA, "≤ 0.10 ×",
            ours <= 0.1 * theirs,
        )  # fmt: skip


def worse_than_kafka(line: Line) -> bool:
    """Whether Kafka's figure in this line is better than Ottla's."""
    if line.beside != KAFKA:
        return False
    return line.ratio < 1 if line.unit == "records/s" else line.ratio > 1


def plot(lines: list[Line]) -> str:
    """An SVG that shows the ratios as bars from 1, on a logarithmic scale."""
    import math

    height, left, width = 22, 430, 420
    low, high = -2.0, 1.0  # powers of ten
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}"'
        f' height="{height * (len(lines) + 2)}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]

    def across(ratio: float) -> float:
        return left + width * (min(max(math.log10(ratio), low), high) - low) / (high - low)

    for power in (0.01, 0.1, 1.0, 10.0):
        x = across(power)
        parts.append(
            f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{height}" y2="{height * (len(lines) + 1)}"'
            f' stroke="#bbb"/><text x="{x:.0f}" y="14" text-anchor="middle">{power:g} ×</text>'
        )
    for number, line in enumerate(lines):
        y = height * (number + 1)
        begin, end = sorted((across(line.ratio), across(1.0)))
        better = not worse_than_kafka(line)
        label = line.title.replace("&", "&amp;").replace("<", "&lt;")
        parts.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{label}</text>'
            f'<rect x="{begin:.0f}" y="{y + 4}" width="{max(end - begin, 1):.0f}" height="14"'
            f' fill="{"#2a7" if better else "#c43"}"/>'
            f'<text x="{left + width + 6}" y="{y + 15}">{line.ratio:.2f}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def listing(title: str, lines: Iterable[Line], text: Callable[[Line], str]) -> list[str]:
    """A heading and one point for each line, or "None." without lines."""
    points = [f"- {text(line)}" for line in lines]
    return [f"## {title}", "", *(points or ["None."]), ""]


def main() -> None:
    """The command."""
    lines = [*ratios(), *groups(), *disturbed(), *rates(), *bounds()]
    rows = [
        [
            line.title,
            f"{line.ours:,.2f}",
            f"{line.theirs:,.2f}{BESIDE[line.beside]}",
            f"{line.ratio:.2f} ×",
            line.target,
            "yes" if line.met else "**no**",
        ]
        for line in lines
    ]
    header = ["figure", "Ottla", "Apache Kafka", "ratio", "target", "met"]
    name = f"{datetime.now(UTC):%Y-%m-%d}-table"
    text = "\n".join(
        [
            "# Everything that has a target", "",
            "Figures are medians, measured without authorization and quotas. In rows with *no"
            " flush*, Ottla has `ottla.acks.all.flush=false`: like Kafka, it then does not flush"
            " before it answers. `python -m benchmarks.table` made this page from the newest"
            " results in this folder; those name the machine, the versions, the rounds and their"
            " spread.", "",
            "Rows that begin like *60 × 1,000 B* are of produce requests, each with a batch of 60"
            " records with values of 1,000 B; *8 connections × 5* is 8 connections, each with 5"
            " requests in flight. *4 connections, 64 KiB* are fetches of up to 64 KiB. Rows that"
            " begin with *1 consumer* or *1,000 consumers* are of the time from sending a record"
            " until a consumer receives it, and of the CPU for this. Rows with *values* are"
            " compactions. *settle* is the rebalance of a group.", "",
            f"Compared with {peers()}.", "",
            f"![ratios]({name}.svg)", "", report.table(header, rows), "",
            *listing(
                "Worse than Apache Kafka", filter(worse_than_kafka, lines),
                lambda line: f"{line.title}: {line.ratio:.2f} ×",
            ),
            *listing(
                "Targets that are missed", (line for line in lines if not line.met),
                lambda line: f"{line.title}: {line.ours:,.2f} = {line.ratio:.2f} ×"
                f" {line.theirs:,.2f}{BESIDE[line.beside]}, wanted {line.target}",
            ),
        ]
    )  # fmt: skip
    (report.RESULTS / f"{name}.md").write_text(text)
    beside_kafka = [line for line in lines if line.beside == KAFKA]
    (report.RESULTS / f"{name}.svg").write_text(plot(beside_kafka))
    print(text)


if __name__ == "__main__":
    main()
