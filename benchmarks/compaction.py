"""What does compacting a gigabyte cost, in CPU, memory, and other clients' latency?

A topic is filled with cleanup.policy=delete, then switched to compact. The CPU is what all threads
of the broker use until its cleaner's checkpoint has passed the last sealed segment, minus what the
broker uses when idle. Data are on the ordinary disk, and the brokers alternate. Then, on tmpfs, a
client of Ottla produces 48 MB/s in batches of 60 KB, with and without a compaction beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks import load, machine, report
from benchmarks.raw_client import RawClient
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.wire.messages import ProduceRequest
from ottla.wire.records import Record, build_batch

SETTINGS = (
    "log.cleaner.backoff.ms=500",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.segment.delete.delay.ms=1000",
)
SEGMENT_BYTES = 64 << 20
RECORDS_PER_BATCH = 500
VALUES = [random.Random(n).randbytes(2048) for n in range(64)]
PACED = {"conns": 4, "depth": 4, "rate": 800, "records": 60, "size": 1000, "acks": 1, "warmup": 1}
CLEANED_WITHIN_SECONDS = 600.0


class Load(NamedTuple):
    """The number and the size of records, and the number of keys. If each record has its own key,
    the keys are in order."""

    records: int
    size: int
    keys: int

    def batches(self) -> Iterator[bytes]:
        """The records in batches."""
        chance, now = random.Random(7), int(time.time() * 1000)
        for first in range(0, self.records, RECORDS_PER_BATCH):
            numbers = range(first, min(first + RECORDS_PER_BATCH, self.records))
            keys: Sequence[int] = numbers
            if self.keys < self.records:
                keys = chance.choices(range(self.keys), k=len(numbers))
            yield build_batch(
                Record(
                    timestamp=now,
                    key=b"key-%08d" % key,
                    value=VALUES[n % len(VALUES)][: self.size],
                )
                for n, key in zip(numbers, keys, strict=True)
            )


LOADS = {
    "1,000 B values, each key ten times": Load(1_000_000, 1000, 100_000),
    "100 B values, each key ten times": Load(5_000_000, 100, 500_000),
    "100 B values, ten million keys once each": Load(10_000_000, 100, 10_000_000),
}


def fill(broker: load.AnyBroker, topic: str, wanted: Load) -> None:
    """Write a topic of one partition, with sealed segments and an active segment."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES)}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(60)
    load.wait_until_led(broker, topic, 1)
    client = RawClient(broker.port)
    for batch in wanted.batches():
        request = ProduceRequest(
            acks=1, timeout_ms=30_000,
            topic_data=[
                ProduceRequest.TopicData(
                    name=topic,
                    partition_data=[ProduceRequest.TopicData.PartitionData(index=0, records=batch)],
                )
            ],
        )  # fmt: skip
        error = client.ask(request, 9).responses[0].partition_responses[0].error_code
        if error:
            raise load.LoadFailed(f"produce to {topic}: error {error}")
    client.close()


def begin_compaction(broker: load.AnyBroker, topic: str) -> None:
    """Set the topic's cleanup.policy to compact."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def cleaned_up_to(directory: Path, topic: str) -> int:
    """The topic's offset in the cleaner's checkpoint, which has the same format in both brokers; 0
    if the topic is not in it."""
    for path in directory.rglob("cleaner-offset-checkpoint"):
        for line in path.read_text().splitlines()[2:]:
            name, partition, offset = line.rsplit(" ", 2)
            if (name, partition) == (topic, "0"):
                return int(offset)
    return 0


def compact(broker: load.AnyBroker, topic: str) -> dict[str, float]:
    """Let the broker compact the topic; returns its cost."""
    directory = broker.directory
    segments = sorted(directory.rglob(f"{topic}-0/*.log"))
    size = sum(path.stat().st_size for path in segments[:-1])
    goal = int(segments[-1].stem)
    peak = resident = machine.resident_mb(broker.pid)
    idle_before = machine.cpu_seconds(broker.pid)
    time.sleep(2)
    idle = (machine.cpu_seconds(broker.pid) - idle_before) / 2
    before, began = machine.cpu_seconds(broker.pid), time.monotonic()
    begin_compaction(broker, topic)
    while cleaned_up_to(directory, topic) < goal:
        if time.monotonic() - began > CLEANED_WITHIN_SECONDS:
            raise load.LoadFailed(f"{topic} was not compacted in {CLEANED_WITHIN_SECONDS} s")
        peak = max(peak, machine.resident_mb(broker.pid))
        time.sleep(0.05)
    seconds = time.monotonic() - began
    used = machine.cpu_seconds(broker.pid) - before - idle * seconds
    return {
        "cpu_s_per_gb": used / (size / 1e9),
        "mb_per_s": size / seconds / 1e6,
        "more_memory_mb": peak - resident,
        "read_gb": size / 1e9,
    }


def measure_cost(rounds: int, names: list[str]) -> dict[str, dict[str, list[dict[str, float]]]]:
    """The result of each round, by load and broker."""
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        brokers: dict[str, load.AnyBroker] = {
            "ottla": OttlaBroker(Path(directory) / "ottla", SETTINGS),
            "kafka": KafkaBroker(Path(directory) / "kafka", SETTINGS),
        }
        for broker in brokers.values():
            stack.enter_context(load.running(broker))
        for name in names:
            wanted = LOADS[name]
            for number in range(rounds):
                for kind, broker in brokers.items():
                    topic = f"compact-{names.index(name)}-{number}"
                    fill(broker, topic, wanted)
                    result = compact(broker, topic)
                    results.setdefault(name, {}).setdefault(kind, []).append(result)
                    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                    admin.delete_topics([topic])[topic].result(60)
    return results


def measure_neighbour(rounds: int) -> dict[str, list[float]]:
    """Produce to Ottla at a steady rate, alone and beside a compaction, with the scrub enabled.

    Returns the p99 of the produce requests in µs, and the broker's CPU µs per request. From the CPU
    beside a compaction, the compaction's own CPU is subtracted. To learn it, the broker first
    compacts another topic with as much data while no client produces.
    """
    results: dict[str, list[float]] = {
        name: [] for name in ("p99 alone", "p99 beside", "CPU alone", "CPU beside")
    }
    with tempfile.TemporaryDirectory(dir=load.MEMORY) as directory:
        broker = OttlaBroker(Path(directory), SETTINGS)
        with load.running(broker):
            load.make_topic(broker, "paced", 4)

            def paced(seconds: float) -> tuple[float, int]:
                result = load.blast(
                    broker, "produce", "paced", partitions=4, seconds=seconds, **PACED
                )
                requests = int(PACED["rate"] * (seconds + PACED["warmup"]))
                return float(result["p99_us"]), requests

            for number in range(rounds):
                for topic in (f"first-{number}", f"second-{number}"):
                    fill(broker, topic, Load(600_000, 1000, 60_000))
                cost = compact(broker, f"first-{number}")
                before = machine.cpu_seconds(broker.pid)
                p99, requests = paced(10)
                results["p99 alone"].append(p99)
                used = machine.cpu_seconds(broker.pid) - before
                results["CPU alone"].append(used / requests * 1e6)
                cleaning = threading.Thread(target=compact, args=(broker, f"second-{number}"))
                before = machine.cpu_seconds(broker.pid)
                cleaning.start()
                time.sleep(1)
                p99, requests = paced(10)
                cleaning.join()
                used = machine.cpu_seconds(broker.pid) - before
                used -= cost["cpu_s_per_gb"] * cost["read_gb"]
                results["p99 beside"].append(p99)
                results["CPU beside"].append(used / requests * 1e6)
    return results


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="the first load only")
    chosen = arguments.parse_args()
    names = list(LOADS)[:1] if chosen.quick else list(LOADS)
    load.build(load.BLASTER)
    cost = measure_cost(chosen.rounds, names)
    rows = []
    for name, by_broker in cost.items():
        for key, title, digits in (
            ("cpu_s_per_gb", "CPU-s a GB", 2),
            ("mb_per_s", "MB/s", 0),
            ("more_memory_mb", "memory above idle, MiB", 0),
        ):
            ours, theirs = ([r[key] for r in by_broker[kind]] for kind in ("ottla", "kafka"))
            columns = [report.spread(ours, digits), report.spread(theirs, digits)]
            rows.append([name, title, *columns, report.ratio(ours, theirs)])
    neighbour = measure_neighbour(chosen.rounds)
    text = report.table(["load", "figure", "Ottla", report.PEER, "ratio"], rows)
    beside = [
        [
            figure,
            *(report.spread(neighbour[f"{key} {when}"], 0) for when in ("alone", "beside")),
            report.ratio(neighbour[f"{key} beside"], neighbour[f"{key} alone"]),
        ]
        for key, figure in (
            ("p99", "p99, µs"), ("CPU", "CPU-µs a request, without the cleaner's CPU"),
        )
    ]
    header = ["800 produces a second, 60 KB each, to Ottla", "alone", "beside a compaction",
              "ratio"]
    text += "\n\n" + report.table(header, beside)
    measured = {**cost, "paced produce": neighbour}
    report.write("What does compaction cost?", "compaction", text, measured)


if __name__ == "__main__":
    main()
