"""How long until a broker serves 2 GB in one partition again after kill -9, and what memory it has?

On the ordinary disk; the page cache survives, as it does when only the process dies. Time is from
the exec of the command to a ListOffsets reply of that partition.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks import load, machine, report
from benchmarks.report import Figures
from compat_tests.brokers import KafkaBroker, OttlaBroker

FILL = {"records": 60, "size": 1000, "acks": 1, "conns": 1, "depth": 4, "warmup": 0}
GIGABYTES = 2


def filled(broker: load.AnyBroker, megabytes: int) -> int:
    """Write that much into one partition; returns its end offset."""
    load.make_topic(broker, "restart", 1)
    load.blast(broker, "produce", "restart", partitions=1, seconds=120, max_mb=megabytes, **FILL)
    return end_offset(broker)


def end_offset(broker: load.AnyBroker) -> int:
    """The partition's end, once it is served."""
    deadline = time.monotonic() + 120
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "restart"})
    try:
        while True:
            try:
                partition = TopicPartition("restart", 0)
                return int(consumer.get_watermark_offsets(partition, timeout=5)[1])
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    finally:
        consumer.close()


def measure(kind: str, rounds: int) -> Figures:
    """Fill once, then kill and start over and over; nothing may be missing."""
    figures: Figures = {"served_s": [], "memory_mb": [], "recovery_cpu_s": []}
    with tempfile.TemporaryDirectory() as directory:
        maker = OttlaBroker if kind == "ottla" else KafkaBroker
        broker: load.AnyBroker = maker(Path(directory))
        broker.start()
        end = filled(broker, GIGABYTES * 1000 * 1000 * 1000 >> 20)
        figures["memory_mb"].append(machine.resident_mb(broker.pid))
        for _ in range(rounds):
            broker.kill()
            began = time.monotonic()
            broker.start()
            if end_offset(broker) != end:
                raise load.LoadFailed(
                    f"{kind} came back with {end_offset(broker)} of {end} records"
                )
            figures["served_s"].append(time.monotonic() - began)
            figures["recovery_cpu_s"].append(machine.cpu_seconds(broker.pid))
            load.blast(broker, "produce", "restart", partitions=1, seconds=60, max_mb=100, **FILL)
            end = end_offset(broker)
        broker.stop()
    return figures


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    measured = {"ottla": measure("ottla", rounds), "kafka": measure("kafka", min(rounds, 2))}
    names = {
        "served_s": ("kill -9 to serving, s", 2),
        "recovery_cpu_s": ("CPU-s until then", 2),
        "memory_mb": ("resident after writing 2 GB, MiB", 1),
    }
    text = report.figures_table(measured, names, with_ratio=True)
    report.write("How long does a restart take after kill -9?", "restart-time", text, measured)


if __name__ == "__main__":
    main()
