"""How much CPU does a gigabyte produced cost, and a small request?

Closed loop, raw wire load (blaster, Produce v9), segments on tmpfs, both brokers in the same run,
taking turns.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks import load, report

PARTITIONS = 4
LOADS: dict[str, dict[str, Any]] = {
    "60 × 1,000 B, acks=1": {"records": 60, "size": 1000, "acks": 1, "conns": 4, "depth": 4},
    "60 × 1,000 B, acks=all": {"records": 60, "size": 1000, "acks": -1, "conns": 4, "depth": 4},
    "1,000 × 100 B, acks=1": {"records": 1000, "size": 100, "acks": 1, "conns": 4, "depth": 4},
    "1 × 100 B, 16 conns × 5": {"records": 1, "size": 100, "acks": 1, "conns": 16, "depth": 5},
}  # fmt: skip
LIMIT = {"partitions": PARTITIONS, "seconds": 4, "warmup": 1, "max_mb": 1500}


def measure(rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By load and broker, one result a round."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with load.both_brokers() as brokers:
        for number in range(-1, rounds):  # the first round compiles Kafka's code and is not kept
            for which, (name, options) in enumerate(LOADS.items()):
                for kind, broker in brokers.items():
                    with load.topic(broker, f"produce-{which}-{number}", PARTITIONS) as topic:
                        result = load.blast(broker, "produce", topic, **LIMIT, **options)
                    if number >= 0:
                        results.setdefault(name, {}).setdefault(kind, []).append(result)
    return results


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    results = measure(arguments.parse_args().rounds)
    rows = []
    for name, by_broker in results.items():
        small = LOADS[name]["records"] == 1
        figure, digits = ("broker_cpu_s_per_mreq", 1) if small else ("broker_cpu_s_per_gb", 2)
        ours, theirs = ([r[figure] for r in by_broker[k]] for k in ("ottla", "kafka"))
        rate = "req_per_s" if small else "mb_per_s"
        rows.append(
            [
                name,
                "CPU-s a million requests" if small else "CPU-s a GB",
                report.spread(ours, digits),
                report.spread(theirs, digits),
                report.ratio(ours, theirs),
                f"{report.user_share(by_broker['ottla'])}, {report.user_share(by_broker['kafka'])}",
                *(report.spread([r[rate] for r in by_broker[k]], 0) for k in ("ottla", "kafka")),
            ]
        )
    header = [
        "load",
        "figure",
        "Ottla",
        "Kafka 4.3.1",
        "ratio",
        "user space",
        "Ottla MB/s or req/s",
        "Kafka",
    ]
    text = report.table(header, rows)
    report.write("What does producing cost?", "produce-cpu", text, results)


if __name__ == "__main__":
    main()
