"""How many topics and partitions does one broker carry, and what do they cost?

Topics created one after another, many partitions at once, a record to each of 10,000 partitions,
then 100,000 partitions: memory, descriptors, clean stop and start. On the disk (TMPDIR), since
topics are made durable one by one; the device's own `fdatasync` of as many bytes is measured too.
`--kafka` measures Apache Kafka too, with the given number of partitions.
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
from compat_tests.brokers import KafkaBroker, OttlaBroker, free_port
from ottla.wire.messages import DeleteTopicsRequest

SEQUENTIAL = Layout(1000, 1)
Figures = dict[str, float]


def device_sync_ms(directory: Path, size: int = 220, count: int = 200) -> float:
    """The median time of an append of one topic's bytes and its `fdatasync`."""
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
    """A started broker over a directory."""
    broker: AnyBroker = (
        OttlaBroker(directory, port=free_port()) if kind == "Ottla" else KafkaBroker(directory)
    )
    broker.start()
    return broker


def topics_one_by_one(broker: AnyBroker) -> Figures:
    """1,000 topics created with a request each, deleted with one."""
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
    """A clean stop, a start to the first answer, memory and descriptors then."""
    began = time.monotonic()
    broker.stop()
    stopped = time.monotonic()
    broker.start()
    client = RawClient(broker.port)
    found = {
        f"{label}: clean stop, s": stopped - began,
        f"{label}: start, s": time.monotonic() - stopped,
        f"{label}: CPU-s of the start": machine.cpu_seconds(broker.pid),
        f"{label}: MiB after the start": machine.resident_mb(broker.pid),
        f"{label}: descriptors": open_files(broker.pid),
    }
    if records:
        whole = Layout(100, 100)
        began = time.monotonic()
        assert read_all(client, whole)[0] == whole.total
        found[f"{label}: one consumer reads a record of each, s"] = time.monotonic() - began
    client.close()
    return found


def many(broker: AnyBroker, layout: Layout, records: bool) -> Figures:
    """Partitions created, written to, stopped and started."""
    label = f"{layout.total:,} partitions" + (" with a record" if records else "")
    client = RawClient(broker.port)
    found = {f"{label}: created in, s": create(client, layout, 10_000)}
    if records:
        found[f"{label}: a record to each, s"] = produce_to_all(client, layout, 1)
    found[f"{label}: MiB"] = machine.resident_mb(broker.pid)
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
