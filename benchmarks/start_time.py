"""How long does a start take until the first Metadata reply, and how much memory and CPU does an
idle broker use?

The time begins with the start of the broker's process, and Metadata is requested every 10 ms. The
time does not include the formatting of Kafka's data directory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks import machine, report
from benchmarks.load import stopped
from benchmarks.peers.kafka.ready import wait_until_ready
from benchmarks.report import Figures
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.tools.zookeeper.local import free_port

SETTLE_SECONDS, IDLE_SECONDS = 3.0, 5.0


def start_ottla(directory: Path) -> tuple[OttlaBroker, float]:
    """Start a broker; returns it, and the milliseconds to its first Metadata reply."""
    broker = OttlaBroker(directory, port=free_port())
    began_ns = time.time_ns()
    broker.spawn()
    _, metadata_ms = wait_until_ready("127.0.0.1", broker.port, 30, began_ns, broker.pid)
    broker.wait_for_ready_line()
    return broker, metadata_ms


def start_kafka(directory: Path) -> tuple[KafkaBroker, float]:
    """Start Apache Kafka; returns it, and the milliseconds to its first Metadata reply."""
    broker = KafkaBroker(directory)
    broker.start()
    return broker, broker.started_ms


def measure(kind: str, rounds: int) -> Figures:
    """In every round, start the broker with an empty data directory and measure it while idle, then
    do the same with the data of the first start; returns the figures."""
    figures: Figures = {
        "first_ms": [],
        "again_ms": [],
        "ready_cpu_s": [],
        "idle_mb": [],
        "idle_cpu_percent": [],
    }
    start = start_ottla if kind == "ottla" else start_kafka
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            for which in ("first_ms", "again_ms"):
                broker, metadata_ms = start(Path(directory))
                with stopped(broker):
                    figures[which].append(metadata_ms)
                    figures["ready_cpu_s"].append(machine.cpu_seconds(broker.pid))
                    time.sleep(SETTLE_SECONDS)
                    before = machine.cpu_seconds(broker.pid)
                    time.sleep(IDLE_SECONDS)
                    used = machine.cpu_seconds(broker.pid) - before
                    figures["idle_cpu_percent"].append(100 * used / IDLE_SECONDS)
                    figures["idle_mb"].append(machine.resident_mb(broker.pid))
    return figures


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    measured = {"ottla": measure("ottla", rounds), "kafka": measure("kafka", min(rounds, 2))}
    names = {
        "first_ms": ("empty data, ms to Metadata", 0),
        "again_ms": ("restart, ms to Metadata", 0),
        "ready_cpu_s": ("CPU-s until ready", 2),
        "idle_mb": ("resident when idle, MiB", 1),
        "idle_cpu_percent": ("CPU when idle, % of a core", 1),
    }
    text = report.figures_table(measured, names)
    report.write(
        "How long does a start take, and what does idling cost?", "start-time", text, measured
    )


if __name__ == "__main__":
    main()
