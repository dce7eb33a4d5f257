"""`make bench`: every question, one after the other, then the table of them all.

`make bench-quick` asks most of them less: one round, short loads, fewer partitions. Its results go
to `results/quick`, which is not kept.
"""

from __future__ import annotations

import sys
from types import ModuleType

from benchmarks import (
    client_rates,
    compaction,
    connections,
    fairness,
    fetch_cpu,
    flush_rate,
    groups_cpu,
    large_topic,
    latency,
    many_groups,
    partition_curves,
    produce_cpu,
    recompression_cpu,
    report,
    restart_time,
    scale,
    scrub_cpu,
    start_time,
    table,
)

ONE_ROUND = ["--rounds", "1"]
QUESTIONS: tuple[tuple[ModuleType, list[str]], ...] = (
    (start_time, ONE_ROUND),
    (produce_cpu, [*ONE_ROUND, "--only", "60 × 1,000 B, acks=1"]),
    (recompression_cpu, ONE_ROUND),
    (fetch_cpu, ONE_ROUND),
    (latency, ONE_ROUND),
    (groups_cpu, ONE_ROUND),
    (many_groups, [*ONE_ROUND, "--groups", "2000", "--without-kafka"]),
    (flush_rate, ONE_ROUND),
    (restart_time, ONE_ROUND),
    (large_topic, ["--gigabytes", "2", "--rounds", "1"]),
    (client_rates, [*ONE_ROUND, "--quick"]),
    (compaction, [*ONE_ROUND, "--quick"]),
    (scrub_cpu, [*ONE_ROUND, "--megabytes", "128"]),
    (scale, ["--partitions-max", "10000"]),
    (partition_curves, ["--partitions-max", "1000", "--seconds", "0.3", "--no-kafka"]),
    (fairness, ["--seconds", "1.5"]),
    (connections, ["--seconds", "2"]),
)
"""Each question, and what makes it a quick one."""
TOO_LONG_FOR_QUICK = (
    groups_cpu, large_topic, restart_time, client_rates, compaction, recompression_cpu,
)  # fmt: skip


def ask(question: ModuleType, arguments: list[str]) -> None:
    """Run a question as its own command line would."""
    sys.argv = [question.__name__, *arguments]
    question.main()


def main() -> None:
    """The command."""
    if "--quick" in sys.argv[1:]:
        report.RESULTS = report.RESULTS / "quick"
        for question, arguments in QUESTIONS:
            if question not in TOO_LONG_FOR_QUICK:
                ask(question, arguments)
        return
    for question, _ in QUESTIONS:
        ask(question, [])
    ask(table, [])


if __name__ == "__main__":
    main()
