"""Does any single request or background task delay another client's small produce?

A probe in a process of its own produces one record of 100 B every 3 ms with acks=1. Meanwhile
another client, or the broker itself, does something large, over and over. The figures are the times
for which the probe waits for its answers; their 99th percentile must stay below 50 ms. Data are on
tmpfs, so that the event loop is measured and not the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import report
from benchmarks.load import MEMORY
from benchmarks.many_partitions import Layout, create, produce_to_all
from benchmarks.raw_client import RawClient, frame
from compat_tests.brokers import OttlaBroker
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)
from ottla.wire.records import Record, build_batch

SETTINGS = (
    "fetch.max.bytes=110000000",
    "log.flush.offset.checkpoint.interval.ms=1000",
    "log.retention.check.interval.ms=1000",
    "log.cleaner.backoff.ms=500",
)
BULK = Layout(1000, 10)
NOW_MS = int(time.time() * 1000)
Work = Callable[[RawClient], None]


def create_topics(client: RawClient, names: list[str], partitions: int, **configs: str) -> None:
    """Make topics with one request."""
    made = CreateTopicsRequest.Topic
    topics = [
        made(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[],
            configs=[made.Config(name=k.replace("_", "."), value=v) for k, v in configs.items()],
        )
        for name in names
    ]
    client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)


def delete_topics(client: RawClient, names: list[str]) -> None:
    """Delete topics with one request."""
    client.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5)


def produce(client: RawClient, topic: str, batch: bytes) -> None:
    """Append a batch to partition 0."""
    made = ProduceRequest.TopicData
    data = made(name=topic, partition_data=[made.PartitionData(index=0, records=batch)])
    client.ask(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data]), 9)


class Works:
    """The work that may delay the probe. Each method of WORKS does one piece of it."""

    def __init__(self, client: RawClient) -> None:
        create(client, BULK)
        produce_to_all(client, BULK, 1, 1000)
        create_topics(client, ["large"], 1)
        batch = build_batch([Record(timestamp=NOW_MS, value=bytes(900_000))])
        for _ in range(115):
            produce(client, "large", batch)
        create_topics(
            client, ["table"], 1, cleanup_policy="compact", segment_bytes="4000000",
            min_cleanable_dirty_ratio="0.01",
        )
        self.number = 0

    def nothing(self, client: RawClient) -> None:
        """Does nothing: the probe runs undisturbed."""
        time.sleep(0.1)

    def partitions_5000(self, client: RawClient) -> None:
        """Create a topic of 5,000 partitions, and delete it."""
        self.number += 1
        create_topics(client, [f"wide{self.number}"], 5000)
        delete_topics(client, [f"wide{self.number}"])

    def topics_1000(self, client: RawClient) -> None:
        """Create 1,000 topics with one request, and delete them with one request."""
        self.number += 1
        names = [f"many{self.number}-{n}" for n in range(1000)]
        create_topics(client, names, 1)
        delete_topics(client, names)

    def written_topics_deleted(self, client: RawClient) -> None:
        """Create 1,000 topics, write a record to each, and delete all with one request."""
        self.number += 1
        names = [f"full{self.number}-{n}" for n in range(1000)]
        create_topics(client, names, 1)
        batch = build_batch([Record(timestamp=NOW_MS, value=bytes(100))])
        for name in names:
            produce(client, name, batch)
        delete_topics(client, names)

    def metadata(self, client: RawClient) -> None:
        """Request the Metadata of all topics (more than 10,000 partitions)."""
        client.ask_frame(frame(MetadataRequest(topics=None), 9))

    def one_request_to_all(self, client: RawClient) -> None:
        """Send a record to each of 10,000 partitions, 5,000 partitions in a request."""
        produce_to_all(client, BULK, 1, 5000)

    def fetch_100_mb(self, client: RawClient) -> None:
        """Fetch 100 MB with one request."""
        made = FetchRequest.Topic
        wanted = made.Partition(partition=0, fetch_offset=0, partition_max_bytes=105_000_000)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=105_000_000, session_id=0,
            session_epoch=-1, topics=[made(topic="large", partitions=[wanted])],
            forgotten_topics_data=[], rack_id="",
        )
        assert len(client.ask_frame(frame(request, 11))) > 100_000_000

    def fetch_of_all(self, client: RawClient) -> None:
        """Fetch a record from each of 10,000 partitions with one request."""
        made = FetchRequest.Topic
        topics = [
            made(
                topic=name,
                partitions=[
                    made.Partition(partition=i, fetch_offset=0, partition_max_bytes=1000)
                    for i in range(BULK.partitions)
                ],
            )
            for name in BULK.names()
        ]
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_id=0,
            session_epoch=-1, topics=topics, forgotten_topics_data=[], rack_id="",
        )
        client.ask_frame(frame(request, 11))

    def compaction(self, client: RawClient) -> None:
        """Write a batch to a compacted topic, which the broker compacts meanwhile."""
        self.number += 1
        keys = (b"%d" % ((self.number * 977 + n) % 50_000) for n in range(2000))
        batch = build_batch([Record(timestamp=NOW_MS, key=k, value=bytes(50)) for k in keys])
        produce(client, "table", batch)


WORKS = {
    "nothing": "nothing else",
    "partitions_5000": "5,000 partitions created at once, and deleted",
    "topics_1000": "1,000 topics created by one request, and deleted by one",
    "written_topics_deleted":
        "1,000 topics created, a record written to each, and all deleted by one request",
    "metadata": "Metadata of 1,000 topics, 10,000 partitions",
    "one_request_to_all": "a produce to 5,000 partitions",
    "fetch_of_all": "a fetch of 10,000 partitions",
    "fetch_100_mb": "a fetch of 100 MB",
    "compaction": "batches written to a topic that is being compacted",
}


@contextmanager
def probe(port: int, module: str = "benchmarks.fairness") -> Iterator[list[float]]:
    """Run the probe of a module in a process for the block: by default a small produce every 3 ms.
    Yields a list, which gets the probe's latencies in ms when the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, "--probe", str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    found: list[float] = []
    yield found
    out, _ = child.communicate("stop\n")
    found += json.loads(out)


def prefer(pid: int) -> None:
    """If permitted, gives a process the highest priority, so that it does not wait for a core."""
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, pid, -15)


def run_probe(port: int) -> None:
    """The work of the probe's process, until a line arrives on standard input."""
    client = RawClient(port)
    create_topics(client, ["probe"], 1)
    batch = build_batch([Record(timestamp=NOW_MS, value=bytes(100))])
    produce(client, "probe", batch)
    ask_until_told(lambda: produce(client, "probe", batch), 0.003)


def ask_until_told(ask: Callable[[], object], every_seconds: float) -> None:
    """Calls `ask` until a line arrives on standard input, then prints each call's milliseconds."""
    print("ready", flush=True)
    prefer(0)
    found = []
    while not select.select([sys.stdin], [], [], every_seconds)[0]:
        began = time.perf_counter()
        ask()
        found.append((time.perf_counter() - began) * 1000)
    print(json.dumps(found))


def percentile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def measure(seconds: float, chosen: list[str]) -> dict[str, list[float]]:
    """The probe's latencies in ms, by the work that runs beside it."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        broker = OttlaBroker(Path(directory), SETTINGS, port=free_port())
        broker.start()
        prefer(broker.pid)
        try:
            client = RawClient(broker.port)
            works = Works(client)
            for name in chosen:
                with probe(broker.port) as latencies:
                    deadline = time.monotonic() + seconds
                    while time.monotonic() < deadline:
                        getattr(works, name)(client)
                found[name] = latencies
                figures = (f"{percentile(latencies, q):.2f}" for q in (0.5, 0.99, 1))
                print(name, *figures, flush=True)
        finally:
            broker.stop()
    return found


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=8)
    arguments.add_argument("--only", nargs="*", default=list(WORKS))
    arguments.add_argument("--probe", type=int)
    given = arguments.parse_args()
    if given.probe:
        run_probe(given.probe)
        return
    found = measure(given.seconds, given.only)
    rows = [
        [
            WORKS[name], str(len(values)),
            *(f"{percentile(values, share):.1f}" for share in (0.5, 0.99, 1.0)),
        ]
        for name, values in found.items()
    ]
    text = report.table(
        ["other work", "number of small produces", "p50, ms", "p99, ms (50 allowed)",
         "longest, ms"], rows
    )
    report.write(
        "What delays another client's small produce?", "fairness", text,
        {name: [percentile(v, s) for s in (0.5, 0.99, 1.0)] for name, v in found.items()},
    )


if __name__ == "__main__":
    main()
