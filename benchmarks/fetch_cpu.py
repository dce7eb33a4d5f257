"""How much CPU does a fetched gigabyte cost?

The load generator (blaster, Fetch v12, no sessions) reads a gigabyte again and again from memory,
from the two brokers in turn. The floor is the CPU of a server that sends Ottla's files with
`sendfile` and does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
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
    """The result of each round, by load and broker."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with load.both_brokers() as brokers, contextlib.ExitStack() as stack:
        for broker in brokers.values():
            stack.enter_context(load.topic(broker, "fetch", PARTITIONS))
            load.blast(broker, "produce", "fetch", partitions=PARTITIONS, **FILL)
        bare = stack.enter_context(load.Bare("fetch", segments(brokers["ottla"].directory)))
        targets: dict[str, load.Target] = {**brokers, "floor": bare}
        for number in range(-2, rounds):  # two rounds warm Kafka up and are not kept
            for name, options in LOADS.items():
                for kind, target in targets.items():
                    drain = {"partitions": PARTITIONS, "conns": PARTITIONS, "seconds": 0, **options}
                    result = load.blast(target, "fetch", "fetch", **drain)
                    if number >= 0:
                        results.setdefault(name, {}).setdefault(kind, []).append(result)
    return results


def segments(directory: Path) -> list[Path]:
    """The segment file of each partition. The topic is so small that a partition has only one."""
    name = f"{0:020}.log"
    return [directory / "data" / f"fetch-{index}" / name for index in range(PARTITIONS)]


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    results = measure(arguments.parse_args().rounds)
    rows = []
    for name, by_broker in results.items():
        values = {k: [r["broker_cpu_s_per_gb"] for r in runs] for k, runs in by_broker.items()}
        speeds = [
            report.spread([r["mb_per_s"] for r in by_broker[kind]], 0)
            for kind in ("ottla", "kafka")
        ]
        rows.append(
            [
                name,
                *(report.spread(values[kind]) for kind in ("ottla", "kafka", "floor")),
                report.ratio(values["ottla"], values["kafka"]),
                report.ratio(values["ottla"], values["floor"]),
                *speeds,
            ]
        )
    header = [
        "load", "Ottla CPU-s a GB", report.PEER, "bare sendfile", "Ottla : Kafka",
        "Ottla : bare sendfile", "Ottla MB/s", "Kafka MB/s",
    ]  # fmt: skip
    report.write("What does fetching cost?", "fetch-cpu", report.table(header, rows), results)


if __name__ == "__main__":
    main()
