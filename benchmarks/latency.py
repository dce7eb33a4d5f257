"""How soon does a record reach its consumer, and what do a thousand waiting consumers cost?

The load generator (blaster) produces a record every 1 or 100 ms while consumers wait in long polls.
A latency is the time from sending a record until a consumer receives it. Data are on tmpfs, and the
brokers take turns. In the load with a thousand consumers, each consumer reads one of four
partitions, so a record wakes 250 consumers. The floor is the result with a server that does nothing
but write the record and send it to these consumers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import load, report

SETTINGS = (
    "socket.listen.backlog.size=4096",
    "max.incremental.fetch.session.cache.slots=5000",
)
LOADS: dict[str, dict[str, Any]] = {
    "1 consumer, acks=all, 100 B every ms": {
        "conns": 1, "acks": -1, "probe_ms": 1, "seconds": 10, "warmup": 1,
    },
    "1,000 consumers of 4 partitions, acks=1, 100 B every 100 ms": {
        "conns": 1000, "acks": 1, "probe_ms": 100, "max_wait_ms": 5000, "seconds": 6, "warmup": 2,
    },
}  # fmt: skip


def measure(
    rounds: int, seconds_max: float = 60.0
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The result of each round, by load and broker."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with load.both_brokers(*SETTINGS, kafkas_flush=True) as brokers:
        for number in range(-2, rounds):  # two rounds warm Kafka up and are not kept
            for which, (name, load_options) in enumerate(LOADS.items()):
                options = {**load_options, "seconds": min(load_options["seconds"], seconds_max)}
                partitions = 1 if options["conns"] == 1 else 4
                for kind, broker in brokers.items():
                    if kind == load.KAFKAS_FLUSH and options["acks"] != -1:
                        continue
                    with load.topic(broker, f"latency-{which}-{number}", partitions) as topic:
                        result = load.blast(
                            broker, "idle", topic, partitions=partitions, **options
                        )
                    if number >= 0:
                        results.setdefault(name, {}).setdefault(kind, []).append(result)
                if number >= 0 and options["acks"] == 1:
                    results[name].setdefault("floor", []).append(floor(partitions, options))
    return results


def floor(partitions: int, options: dict[str, Any]) -> dict[str, Any]:
    """The result of the same load on `bare`, a server that does the least possible work."""
    with tempfile.TemporaryDirectory(dir=load.MEMORY) as directory:
        files = [Path(directory) / str(index) for index in range(partitions)]
        with load.Bare("latency", files) as bare:
            return load.blast(bare, "idle", "latency", partitions=partitions, **options)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds-max", type=float, default=60.0, help="of each run")
    chosen = arguments.parse_args()
    results = measure(chosen.rounds, chosen.seconds_max)
    rows = []
    for name, by_broker in results.items():
        for key, title in (
            ("p50_us", "p50, µs"),
            ("p99_us", "p99, µs"),
            ("broker_cpu_s_per_mreq", "CPU-s a million fetches"),
        ):
            values = {kind: [r[key] for r in runs] for kind, runs in by_broker.items()}
            for kind in ("ottla", load.KAFKAS_FLUSH):
                if kind in values:
                    rows.append(
                        [
                            name if kind == "ottla" else f"{name}, no flush",
                            title,
                            report.spread(values[kind], 0),
                            report.spread(values["kafka"], 0),
                            report.ratio(values[kind], values["kafka"]),
                            report.spread(values["floor"], 0) if "floor" in values else "",
                        ]
                    )
    header = ["load", "figure", "Ottla", report.PEER, "ratio", "floor"]
    report.write(
        "How long does a record take to reach its consumer?",
        "latency",
        report.table(header, rows),
        results,
    )


if __name__ == "__main__":
    main()
