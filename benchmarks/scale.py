"""How many topics and partitions does one broker carry, and what do they cost?

The benchmark creates 1,000 topics one after another, then 10,000 partitions at once, without and
with a record in each, then 100,000 partitions at once. It measures the time of these steps and of a
clean stop and start, the memory, and the open files. Data are on the disk (TMPDIR). The broker
makes each topic durable before it creates the next, so the first step depends on this disk;
therefore the time of one `fdatasync` on it is measured too. `--kafka` measures Apache Kafka too,
with at most the given number of partitions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import machine, report
from benchmarks.load import AnyBroker, stopped
from benchmarks.many_partitions import (
    Layout,
    create,
    open_files,
    produce_to_all,
    read_all,
)
from benchmarks.raw_client import RawClient
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import DeleteTopicsRequest

SEQUENTIAL = Layout(1000, 1)
Figures = dict[str, float]


def device_sync_ms(directory: Path, size: int = 220, count: int = 200) -> float:
    """The median milliseconds of an `fdatasync` after as many bytes as a new topic appends."""
    times = []
    descriptor = os.open(directory / "probe", os.O_RDWR | os.O_CREAT)
    for number in range(count):
        os.pwrite(descriptor, bytes(size), number * size)
        began = time.perf_counter()
        os.fdatasync(descriptor)
        times.append((time.perf_counter() - began) * 1000)
    os.close(descriptor)
    return statistics.median(times)


def made(kind: str, directory: Path) -> AnyBroker:
    """Start a broker with its data in a directory."""
    broker: AnyBroker = (
        OttlaBroker(directory, port=free_port()) if kind == "Ottla" else KafkaBroker(directory)
    )
    broker.start()
    return broker


def topics_one_by_one(broker: AnyBroker) -> Figures:
    """Create 1,000 topics with one request each, and delete all with one request."""
    client = RawClient(broker.port)
    before = machine.cpu_seconds(broker.pid)
    found = {"1,000 topics one by one, s": create(client, SEQUENTIAL, 1)}
    found["1,000 topics one by one, CPU-s"] = machine.cpu_seconds(broker.pid) - before
    began = time.monotonic()
    request = DeleteTopicsRequest(topic_names=SEQUENTIAL.names(), timeout_ms=60_000)
    assert all(answer.error_code == 0 for answer in client.ask(request, 5).responses)
    found["1,000 topics deleted by one request, s"] = time.monotonic() - began
    return found


def stop_and_start(broker: AnyBroker, label: str, records: bool) -> Figures:
    """Stop the broker cleanly and start it; measures both, and the memory and open files after the
    start. With `records`, also measures how long one consumer takes to read all partitions."""
    began = time.monotonic()
    broker.stop()
    stopped = time.monotonic()
    broker.start()
    client = RawClient(broker.port)
    found = {
        f"{label}: clean stop, s": stopped - began,
        f"{label}: start, s": time.monotonic() - stopped,
        f"{label}: CPU-s of the start": machine.cpu_seconds(broker.pid),
        f"{label}: memory after the start, MiB": machine.resident_mb(broker.pid),
        f"{label}: descriptors": open_files(broker.pid),
    }
    if records:
        whole = Layout(100, 100)
        began = time.monotonic()
        assert read_all(client, whole)[0] == whole.total
        found[f"{label}: one consumer reads all records, s"] = time.monotonic() - began
    client.close()
    return found


def many(broker: AnyBroker, layout: Layout, records: bool) -> Figures:
    """Create partitions, write to them if `records`, then stop and start; returns the figures."""
    label = f"{layout.total:,} partitions" + (" with a record each" if records else "")
    client = RawClient(broker.port)
    found = {f"{label}: created in, s": create(client, layout, 10_000)}
    if records:
        found[f"{label}: time to write the records, s"] = produce_to_all(client, layout, 1)
    found[f"{label}: memory, MiB"] = machine.resident_mb(broker.pid)
    client.close()
    return found | stop_and_start(broker, label, records)


def measure(kind: str, directory: Path, partitions_max: int) -> Figures:
    """Every figure of one broker."""
    found: Figures = {"one fdatasync of the device, ms": device_sync_ms(directory)}
    broker = made(kind, directory / "one-by-one")
    with stopped(broker):
        found |= topics_one_by_one(broker)
    for layout, records in (
        (Layout(100, 100), False), (Layout(100, 100), True), (Layout(1000, 100), False),
    ):  # fmt: skip
        if layout.total > partitions_max:
            continue
        broker = made(kind, directory / f"{layout.total}-{records}")
        with stopped(broker):
            found |= many(broker, layout, records)
    return found


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--partitions-max", type=int, default=100_000)
    arguments.add_argument("--kafka", type=int, default=0, metavar="PARTITIONS")
    given = arguments.parse_args()
    found: dict[str, Figures] = {}
    for kind, partitions in (("Ottla", given.partitions_max), ("Kafka", given.kafka)):
        if partitions:
            with tempfile.TemporaryDirectory() as directory:
                found[kind] = measure(kind, Path(directory), partitions)
                print(kind, found[kind], flush=True)
    rows = [
        [name, *(f"{figures[name]:.2f}" if name in figures else "" for figures in found.values())]
        for name in found["Ottla"]
    ]
    text = report.table(["", *found], rows)
    report.write("What do many topics and partitions cost?", "scale", text, found)


if __name__ == "__main__":
    main()
