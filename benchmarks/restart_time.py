"""After kill -9, how long does it take until a broker serves 2 GB in one partition again?

With `--partitions N` the 2 GB are spread over N partitions, which are recovered a few at a time.
Data are on the ordinary disk. The page cache survives, as it does when only the process dies. The
time is from the start of the command to a ListOffsets reply for each partition. The memory is that
of the broker after it has received the 2 GB, before it is killed.
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


def filled(broker: load.AnyBroker, megabytes: int, partitions: int) -> int:
    """Creates the topic and writes `megabytes` MiB; returns the sum of the end offsets."""
    load.make_topic(broker, "restart", partitions)
    load.blast(
        broker, "produce", "restart", partitions=partitions, seconds=120, max_mb=megabytes, **FILL
    )
    return end_offset(broker, partitions)


def end_offset(broker: load.AnyBroker, partitions: int) -> int:
    """Waits until all partitions are served; returns the sum of their end offsets."""
    deadline = time.monotonic() + 120
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "restart"})
    total = 0
    try:
        for index in range(partitions):
            total += end_of(consumer, index, deadline)
        return total
    finally:
        consumer.close()


def end_of(consumer: Consumer, index: int, deadline: float) -> int:
    while True:
        try:
            partition = TopicPartition("restart", index)
            return int(consumer.get_watermark_offsets(partition, timeout=5)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def measure(kind: str, rounds: int, partitions: int) -> Figures:
    """Fill the broker once, then kill and start it repeatedly; returns the figures. Fails if a
    record is missing."""
    figures: Figures = {"served_s": [], "memory_mb": [], "recovery_cpu_s": []}
    with tempfile.TemporaryDirectory() as directory:
        maker = OttlaBroker if kind == "ottla" else KafkaBroker
        broker: load.AnyBroker = maker(Path(directory))
        with load.running(broker):
            end = filled(broker, GIGABYTES * 1000 * 1000 * 1000 >> 20, partitions)
            figures["memory_mb"].append(machine.resident_mb(broker.pid))
            for _ in range(rounds):
                broker.kill()
                began = time.monotonic()
                broker.start()
                found = end_offset(broker, partitions)
                if found != end:
                    raise load.LoadFailed(f"{kind} came back with {found} of {end} records")
                figures["served_s"].append(time.monotonic() - began)
                figures["recovery_cpu_s"].append(machine.cpu_seconds(broker.pid))
                load.blast(
                    broker, "produce", "restart", partitions=partitions, seconds=60, max_mb=100,
                    **FILL,
                )
                end = end_offset(broker, partitions)
    return figures


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--partitions", type=int, default=1)
    chosen = arguments.parse_args()
    rounds, partitions = chosen.rounds, chosen.partitions
    measured = {
        "ottla": measure("ottla", rounds, partitions),
        "kafka": measure("kafka", min(rounds, 2), partitions),
    }
    names = {
        "served_s": ("kill -9 until 2 GB are served again, s", 2),
        "recovery_cpu_s": ("CPU-s until then", 2),
        "memory_mb": ("resident after writing 2 GB, MiB", 1),
    }
    text = report.figures_table(measured, names, with_ratio=True)
    name = "restart-time" if partitions == 1 else f"restart-time-{partitions}"
    report.write("How long does a restart take after kill -9?", name, text, measured)


if __name__ == "__main__":
    main()
