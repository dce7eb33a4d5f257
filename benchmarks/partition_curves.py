"""How much CPU does a request about unchanged partitions cost?

The figures are the broker's CPU per request, with 1 to 100,000 partitions. Apache Kafka has 1,000
at most, because with 10,000 new partitions it did not answer the first poll of all of them within
two minutes. There are four requests: the poll of an idle consumer, which is an incremental fetch in
a session over all partitions (KIP-227); a fetch of one partition without a session; and Metadata of
one topic and of all topics. Data are on tmpfs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine, plot, report
from benchmarks.fairness import create_topics
from benchmarks.load import MEMORY, running
from benchmarks.many_partitions import Layout, create
from benchmarks.raw_client import RawClient, frame
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import FetchRequest, MetadataRequest

LAYOUTS = (
    Layout(1, 1), Layout(10, 1), Layout(10, 10), Layout(10, 100), Layout(100, 100),
    Layout(1000, 100),
)
KAFKA_PARTITIONS_MAX = 1_000
FETCH, METADATA = 12, 9
FIGURES = {
    "idle poll of all": "an idle poll over all partitions",
    "poll of one": "a poll of one partition, no session",
    "Metadata of one": "Metadata of one topic",
    "Metadata of all": "Metadata of all topics",
}
Curves = dict[str, dict[str, list[tuple[int, float]]]]


def fetch_request(layout: Layout | None, session_id: int, epoch: int) -> Any:
    """A fetch of all partitions of a layout from offset 0; without a layout, a fetch that names no
    partitions and continues a session."""
    made = FetchRequest.Topic
    topics = [
        made(
            topic=name,
            partitions=[
                made.Partition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20)
                for i in range(layout.partitions)
            ],
        )
        for name in (layout.names() if layout else ())
    ]
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_id=session_id,
        session_epoch=epoch, topics=topics, forgotten_topics_data=[], rack_id="",
    )


def cpu_us(pid: int, seconds: float, run: Callable[[], object]) -> float:
    """The CPU microseconds that a process needs for one call of `run`."""
    run()
    count, before, deadline = 0, machine.cpu_seconds(pid), time.monotonic() + seconds
    while time.monotonic() < deadline:
        run()
        count += 1
    return max(machine.cpu_seconds(pid) - before, 0.005) / count * 1e6


def figures(broker: OttlaBroker | KafkaBroker, layout: Layout, seconds: float) -> dict[str, float]:
    """The CPU microseconds of each request, with the partitions of this layout."""
    client = RawClient(broker.port)
    opened = client.ask(fetch_request(layout, 0, 0), FETCH)
    state = [opened.session_id, 0]

    def poll() -> None:
        state[1] += 1
        client.ask_frame(frame(fetch_request(None, *state), FETCH))

    one = frame(fetch_request(Layout(1, 1), 0, -1), FETCH)
    one_topic = frame(
        MetadataRequest(
            topics=[MetadataRequest.Topic(name="only")], allow_auto_topic_creation=False
        ),
        METADATA,
    )
    all_topics = frame(MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA)
    found = {
        "idle poll of all": cpu_us(broker.pid, seconds, poll),
        "poll of one": cpu_us(broker.pid, seconds, lambda: client.ask_frame(one)),
        "Metadata of one": cpu_us(broker.pid, seconds, lambda: client.ask_frame(one_topic)),
        "Metadata of all": cpu_us(broker.pid, seconds, lambda: client.ask_frame(all_topics)),
    }
    client.close()
    return found


def measure(kind: str, layouts: tuple[Layout, ...], seconds: float, found: Curves) -> None:
    """Measure each layout on a new broker, which has no other partitions; adds to `found`."""
    for layout in layouts:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            broker: OttlaBroker | KafkaBroker
            if kind == "Ottla":
                broker = OttlaBroker(Path(directory), port=free_port())
            else:
                broker = KafkaBroker(Path(directory))
            with running(broker):
                client = RawClient(broker.port)
                create(client, layout, 5000)
                create_topics(client, ["only"], 1)
                time.sleep(1 if kind == "Ottla" else 5 + layout.total / 1000)
                if kind == "Kafka":
                    figures(broker, layout, seconds)  # warms Kafka up
                for name, value in figures(broker, layout, seconds).items():
                    found.setdefault(name, {}).setdefault(kind, []).append((layout.total, value))
                    print(f"{kind} {layout.total} {name}: {value:.1f} us", flush=True)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--partitions-max", type=int, default=100_000)
    arguments.add_argument("--no-kafka", action="store_true")
    given = arguments.parse_args()
    layouts = tuple(each for each in LAYOUTS if each.total <= given.partitions_max)
    found: Curves = {}
    measure("Ottla", layouts, given.seconds, found)
    if not given.no_kafka:
        smaller = tuple(each for each in layouts if each.total <= KAFKA_PARTITIONS_MAX)
        measure("Kafka", smaller, given.seconds, found)
    write(found, layouts)


def write(found: Curves, layouts: tuple[Layout, ...]) -> None:
    """Write the table and the plot."""
    rows = []
    for name, by_kind in found.items():
        for kind, points in by_kind.items():
            values = dict(points)
            cells = [f"{values[e.total]:.0f}" if e.total in values else "" for e in layouts]
            rows.append([f"{FIGURES[name]}, {kind}", *cells])
    text = report.table(
        ["CPU µs a request, by number of partitions", *(f"{each.total:,}" for each in layouts)],
        rows,
    )
    report.write("What do unchanged partitions cost?", "partition-curves", text, found)
    series = {
        f"{name}, {kind}": points
        for name, by_kind in found.items()
        for kind, points in by_kind.items()
        if name in ("idle poll of all", "Metadata of one")
    }
    path = report.path("partition-curves").with_suffix(".svg")
    plot.write(path, "CPU of a request about unchanged partitions", "partitions on the broker",
               "CPU, µs", series)


if __name__ == "__main__":
    main()
