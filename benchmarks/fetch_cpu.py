"""How much CPU does a gigabyte fetched cost?

Raw wire load (blaster, Fetch v12, no sessions) drains the same gigabyte from the page cache,
both brokers in turns.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from benchmarks import load, report

PARTITIONS = 4
FILL = {
    "records": 60,
    "size": 1000,
    "acks": 1,
    "conns": 4,
    "depth": 4,
    "warmup": 0,
    "seconds": 60,
    "max_mb": 1000,
}
LOADS: dict[str, dict[str, Any]] = {
    "4 connections, 1 MiB": {"partition_bytes": 1 << 20},
    "4 connections, 64 KiB": {"partition_bytes": 64 << 10},
}


def measure(rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By load and broker, one result a round."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with load.both_brokers() as brokers, contextlib.ExitStack() as topics:
        for broker in brokers.values():
            topics.enter_context(load.topic(broker, "fetch", PARTITIONS))
            load.blast(broker, "produce", "fetch", partitions=PARTITIONS, **FILL)
        for number in range(-2, rounds):  # the first two compile Kafka's code and are not kept
            for name, options in LOADS.items():
                for kind, broker in brokers.items():
                    drain = {"partitions": PARTITIONS, "conns": PARTITIONS, "seconds": 0, **options}
                    result = load.blast(broker, "fetch", "fetch", **drain)
                    if number >= 0:
                        results.setdefault(name, {}).setdefault(kind, []).append(result)
    return results


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    results = measure(arguments.parse_args().rounds)
    rows = []
    for name, by_broker in results.items():
        ours, theirs = (
            [r["broker_cpu_s_per_gb"] for r in by_broker[k]] for k in ("ottla", "kafka")
        )
        speeds = [report.spread([r["mb_per_s"] for r in by_broker[k]], 0) for k in by_broker]
        figures = [report.spread(ours), report.spread(theirs), report.ratio(ours, theirs)]
        rows.append([name, *figures, *speeds])
    header = ["load", "Ottla CPU-s a GB", "Kafka 4.3.1", "ratio", "Ottla MB/s", "Kafka MB/s"]
    report.write("What does fetching cost?", "fetch-cpu", report.table(header, rows), results)


if __name__ == "__main__":
    main()
