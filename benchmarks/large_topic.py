"""Does a consumer that reads a topic larger than memory slow down the topic's writer?

A topic on the ordinary disk is filled. Then a producer writes to it at a steady rate, first alone,
then beside a consumer that reads the topic from the beginning as fast as the disk allows. The
brokers run one after the other, because there is room for only one topic of this size.

The page cache is full during the measurement, as on any broker with more data than memory. In a
virtual machine, memory that a benchmark frees may go back to the host. The benchmark would then
measure how the host allocates this memory again, with stalls of 100 ms that no broker causes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks import load, machine, report
from compat_tests.brokers import KafkaBroker, OttlaBroker

TOPIC, PARTITIONS = "large", 4
FILL = {"records": 1000, "size": 1000, "acks": 1, "conns": 4, "depth": 2, "warmup": 0}
FILL_MB = 4000  # per run of the load generator, which may take five minutes at most
PACED = {"conns": 4, "depth": 4, "rate": 800, "records": 60, "size": 1000, "acks": 1, "warmup": 1}
READ = {"conns": PARTITIONS, "partition_bytes": 1 << 20}
READ_BYTES = 18 << 30  # more than the consumer reads in a round
CACHE_SPARE = 1 << 30  # this much memory stays free, so that nothing has to be evicted
BROKERS: dict[str, type[load.AnyBroker]] = {"ottla": OttlaBroker, "kafka": KafkaBroker}
SPARE = 5 << 30  # this much of the disk stays free


def room_for(gigabytes: int, directory: Path) -> None:
    """Exit with a message if the disk has no room for the topic."""
    free = shutil.disk_usage(directory).free
    if free < gigabytes * 10**9 + SPARE:
        raise SystemExit(
            f"{directory} has {free / 1e9:.0f} GB free, {gigabytes} and some to spare are needed:"
            " set TMPDIR or ask for fewer --gigabytes"
        )


def fill(broker: load.AnyBroker, gigabytes: int) -> None:
    """Create the topic and write this many gigabytes to it."""
    load.make_topic(broker, TOPIC, PARTITIONS)
    left = gigabytes * 10**9 >> 20  # MiB
    while left > 0:
        size = min(left, FILL_MB)
        load.blast(
            broker, "produce", TOPIC, partitions=PARTITIONS, seconds=280, max_mb=size, **FILL
        )
        left -= size


def refresh(broker: load.AnyBroker) -> None:
    """Evicts the reader's data from the page cache, and fills the cache with later data."""
    paths = list(broker.directory.rglob(f"{TOPIC}-*/*.log"))
    paths.sort(key=lambda path: (path.name, path.parent.name))
    read = 0
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        if read < READ_BYTES:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            read += os.fstat(descriptor).st_size
        elif machine.free_memory() > CACHE_SPARE:
            while os.read(descriptor, 1 << 20):
                pass
        os.close(descriptor)


def measure(
    kind: type[load.AnyBroker], gigabytes: int, rounds: int, seconds: float
) -> dict[str, list[dict[str, Any]]]:
    """The results of all rounds: of the writer alone, of the writer beside the reader, and of the
    reader."""
    results: dict[str, list[dict[str, Any]]] = {"alone": [], "beside": [], "reader": []}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        room_for(gigabytes, Path(name))
        broker = kind(Path(name), ("log.retention.ms=-1",))
        broker.start()
        try:
            fill(broker, gigabytes)

            def write() -> dict[str, Any]:
                return load.blast(
                    broker, "produce", TOPIC, partitions=PARTITIONS, seconds=seconds, **PACED
                )

            def read() -> None:
                result = load.blast(
                    broker, "fetch", TOPIC, partitions=PARTITIONS, seconds=seconds + 2,
                    behind=True, **READ,
                )  # fmt: skip
                results["reader"].append(result)

            for _ in range(rounds):
                refresh(broker)
                results["alone"].append(write())
                reader = threading.Thread(target=read)
                reader.start()
                results["beside"].append(write())
                reader.join()
        finally:
            broker.stop()
    return results


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gigabytes", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=10.0)
    chosen = arguments.parse_args()
    load.build(load.BLASTER)
    measured = {}
    rows = []
    for name, kind in BROKERS.items():
        by_phase = measure(kind, chosen.gigabytes, chosen.rounds, chosen.seconds)
        measured[name] = by_phase
        speed = report.spread([r["mb_per_s"] for r in by_phase["reader"]], 0)
        for key, what in (("p50_us", "p50, µs"), ("p99_us", "p99, µs")):
            alone, beside = ([r[key] for r in by_phase[when]] for when in ("alone", "beside"))
            rows.append(
                [
                    f"{name}, {what}",
                    report.spread(alone, 0),
                    report.spread(beside, 0),
                    report.ratio(beside, alone),
                    speed,
                ]
            )
    header = [
        f"800 produces a second, 60 KB each, to a topic of {chosen.gigabytes} GB; memory"
        f" {machine.memory_gib():.0f} GiB",
        "alone", "beside a reader", "ratio", "the reader's MB/s, from the disk",
    ]  # fmt: skip
    text = report.table(header, rows)
    report.write(
        "How much does a reader of old records delay a writer?", "large-topic", text, measured)


if __name__ == "__main__":
    main()
