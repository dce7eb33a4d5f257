"""`make bench` runs the benchmarks of QUESTIONS, one after the other, then makes the table.

`make bench-quick` runs most of them for a shorter time: one round, short loads, fewer partitions.
Its results go to `results/quick`, which is not committed.
"""

from __future__ import annotations

import sys
import time
import traceback
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
    loop_holds,
    many_groups,
    partition_curves,
    produce_cpu,
    recompression_cpu,
    report,
    restart_time,
    rules_cpu,
    scale,
    scrape_cpu,
    scrub_cpu,
    start_time,
    table,
    tls_cpu,
)

ONE_ROUND = ["--rounds", "1"]
QUESTIONS: tuple[tuple[ModuleType, list[str]], ...] = (
    (start_time, ONE_ROUND),
    (produce_cpu, [*ONE_ROUND, "--only", "60 × 1,000 B, acks=1"]),
    (recompression_cpu, ONE_ROUND),
    (fetch_cpu, ONE_ROUND),
    (tls_cpu, [*ONE_ROUND, "--megabytes", "100", "--connections", "100"]),
    (rules_cpu, ONE_ROUND),
    (latency, [*ONE_ROUND, "--seconds-max", "2"]),
    (groups_cpu, ONE_ROUND),
    (many_groups, [*ONE_ROUND, "--groups", "2000", "--without-kafka"]),
    (flush_rate, ONE_ROUND),
    (restart_time, ONE_ROUND),
    (large_topic, ["--gigabytes", "2", "--rounds", "1"]),
    (client_rates, [*ONE_ROUND, "--quick"]),
    (compaction, [*ONE_ROUND, "--quick"]),
    (scrub_cpu, [*ONE_ROUND, "--megabytes", "128"]),
    (scrape_cpu, [*ONE_ROUND, "--seconds", "5"]),
    (scale, ["--partitions-max", "10000"]),
    (partition_curves, ["--partitions-max", "1000", "--seconds", "0.3", "--no-kafka"]),
    (fairness, ["--seconds", "1.5"]),
    (loop_holds, ["--rounds", "2"]),
    (connections, ["--rounds", "1", "--seconds", "1"]),
)
"""Each benchmark, and the arguments that make it quick."""
TOO_LONG_FOR_QUICK = (
    groups_cpu, large_topic, restart_time, client_rates, compaction, recompression_cpu,
)  # fmt: skip


def ask(question: ModuleType, arguments: list[str]) -> bool:
    """Run a benchmark as its own command line would; returns whether it succeeded."""
    sys.argv = [question.__name__, *arguments]
    began = time.monotonic()
    try:
        question.main()
    except (Exception, SystemExit) as error:
        # One benchmark may fail, for example on a small disk; the other benchmarks still run.
        traceback.print_exc()
        print(f"bench: {question.__name__} has no answer: {error}", file=sys.stderr)
        return False
    print(f"bench: {question.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    return True


def main() -> None:
    """The command."""
    quick = "--quick" in sys.argv[1:]
    if quick:
        report.RESULTS = report.RESULTS / "quick"
    answered = [
        ask(question, arguments if quick else [])
        for question, arguments in QUESTIONS
        if not quick or question not in TOO_LONG_FOR_QUICK
    ]
    if not quick:
        answered.append(ask(table, []))
    sys.exit(not all(answered))


if __name__ == "__main__":
    main()
