"""Does a search in the console keep its budget, and how much does it delay other clients?

    python -m benchmarks.console_search [--gib 10] [--rounds 3] [--seconds 20] [--rate 100]

The searched topic has `--gib` GiB on the ordinary disk (TMPDIR). A client writes small records to
another topic at a steady rate, and reads each record back. The time of a record starts at the
moment when the record was due, so one long wait also makes the times of the next records longer.
There are three kinds of turns: in the first, the client is alone; in the second, searches with the
usual budget run beside it, one after the other; in the third, a search of the whole topic with a
raised budget runs beside it. For each search, the result says how much it has read, and why it
ended.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

from confluent_kafka import Producer

from benchmarks import load, report
from benchmarks.machine import cpu_seconds
from compat_tests.brokers import OttlaBroker
from ottla.client.cluster import ClusterClient
from ottla.tools.admin import topics
from ottla.tools.admin.topics import leader
from ottla.tools.stream.batches import (
    FETCH_MAX,
    PRODUCE_MAX,
    check_produced,
    fetch_request,
    produce_request,
)
from ottla.wire.records import Record, build_batch
from tests.console.consoles import Console

PARTITIONS = 4
VALUE_SIZE = 10_000
WARM_UP = 100
EVERYTHING = {"max_records": 100_000_000, "max_bytes": 20 << 30, "max_seconds": 300}
QUIET, USUAL, WHOLE = "nothing else", "searches with the usual budget", "a search of everything"
Search = dict[str, Any]


def fill(address: str, gib: float) -> None:
    """Creates and fills the searched topic, and creates an empty topic for the client."""
    with ClusterClient(address) as cluster:
        topics.create(cluster, "haystack", partitions=PARTITIONS, replication_factor=1)
        topics.create(cluster, "small", partitions=1, replication_factor=1)
    producer = Producer({
        "bootstrap.servers": address, "linger.ms": 20, "batch.size": 1_000_000, "acks": 1,
        "queue.buffering.max.kbytes": 262_144})
    value = json.dumps({"order": 1, "note": "x" * (VALUE_SIZE - 30)}).encode()
    for number in range(int(gib * (1 << 30) / len(value))):
        while True:
            try:
                producer.produce("haystack", value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0


class Client:
    """Writes small records at a steady rate, and reads each back."""

    def __init__(self, address: str, rate: float) -> None:
        self.cluster, self.rate = ClusterClient(address), rate
        self.connection = self.cluster.node(leader(self.cluster, ("small", 0)))
        self.batch = build_batch([Record(value=b"x" * 100)])
        for _ in range(WARM_UP):
            self.there_and_back()

    def there_and_back(self) -> None:
        """Writes one record and reads it back."""
        request = produce_request("small", 0, self.batch, acks=1)
        at = check_produced(self.connection.call(request, at_most=PRODUCE_MAX))
        read = self.connection.call(fetch_request("small", [(0, at)]), at_most=FETCH_MAX)
        assert read.responses[0].partitions[0].records, "the record is there"

    def run(self, stop: threading.Event) -> list[float]:
        """Works until `stop`; returns the milliseconds of each record."""
        found, due = [], time.perf_counter()
        while not stop.is_set():
            due += 1 / self.rate
            time.sleep(max(due - time.perf_counter(), 0))
            self.there_and_back()
            found.append((time.perf_counter() - due) * 1000)
        return found


def search(console: Console, **budget: int) -> Search:
    """Runs a search that finds nothing; returns how much it has read, and why it ended."""
    query = urlencode({"from": "oldest", "text": "nowhere", **budget})
    connection = console.connection()
    connection.timeout = 400
    connection.request("GET", f"/api/v1/topics/haystack/records?{query}")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return {"ended": found["ended"], "budget": found["budget"], **found["scanned"]}


def beside(client: Client, console: Console, what: str, seconds: float) -> dict[str, Any]:
    """Runs the client beside `what`; returns the client's times and the results of the searches."""
    stop, times = threading.Event(), list[float]()
    running = threading.Thread(target=lambda: times.extend(client.run(stop)))
    running.start()
    searches, end = [], time.monotonic() + seconds
    while what != QUIET and time.monotonic() < end:
        searches.append(search(console, **(EVERYTHING if what == WHOLE else {})))
    time.sleep(max(end - time.monotonic(), 0))
    stop.set()
    running.join()
    return {"ms": times, "searches": searches}


def measured(
    broker: OttlaBroker, client: Client, console: Console, what: str, seconds: float
) -> dict[str, Any]:
    """One turn: the result of `beside`, and the shares of a core that broker and console used."""
    pids = broker.pid, console.process.pid
    before, began = [*map(cpu_seconds, pids)], time.monotonic()
    one = beside(client, console, what, seconds)
    passed = time.monotonic() - began
    one["broker %"], one["console %"] = (
        100 * (cpu_seconds(pid) - then) / passed for pid, then in zip(pids, before, strict=True)
    )
    return one


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The results of all turns, by what runs beside the client."""
    found: dict[str, list[dict[str, Any]]] = {QUIET: [], USUAL: [], WHOLE: []}
    with tempfile.TemporaryDirectory() as folder:
        broker = OttlaBroker(Path(folder))
        with load.running(broker):
            fill(broker.bootstrap, options.gib)
            os.sync()                   # otherwise the disk would write during the first turns
            client = Client(broker.bootstrap, options.rate)
            with client.cluster, Console(broker.bootstrap, Path(folder)) as console:
                for _ in range(options.rounds):
                    for what, runs in found.items():
                        runs.append(measured(broker, client, console, what, options.seconds))
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return quantiles(values, n=100)[98]


def rows_of(found: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """A row for each load beside the client."""
    quiet = median(p99(one["ms"]) for one in found[QUIET])
    return [
        [
            what, report.spread([median(one["ms"]) for one in runs]),
            report.spread([p99(one["ms"]) for one in runs]),
            f"{median(p99(one['ms']) for one in runs) / quiet:.2f} ×",
            report.spread([one["broker %"] for one in runs], 0),
            report.spread([one["console %"] for one in runs], 0),
            "; ".join(sorted({of_a_search(each) for one in runs for each in one["searches"]})[:3]),
        ]
        for what, runs in found.items()
    ]


def of_a_search(one: Search) -> str:
    """A search as text: how much it has read of its budget, and why it ended."""
    return (f"read {one['bytes'] >> 20} MiB (limit {one['budget']['bytes'] >> 20} MiB) in"
            f" {one['seconds']:.0f} s (limit {one['budget']['seconds']} s),"
            f" ended: `{one['ended']}`")


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn, at least")
    parser.add_argument("--rate", type=float, default=100.0, help="of the client, records a second")
    options = parser.parse_args()
    found = measure(options)
    header = ["what runs beside the client", "p50, ms", "p99, ms", "p99 / p99 alone",
              "broker, % of a core", "console, % of a core",
              "searches (equal results once, at most 3)"]
    report.write(
        "How much does a search in the console delay other clients?", "console-search",
        f"The searched topic has {options.gib:g} GiB on disk. A client writes {options.rate:g} "
        "records of 100 B a second to another topic with acks=1, and reads each back; p50 and p99 "
        "are its times for this. The last column says how much a search read, how long it took, "
        "and why it ended. After *ended*, `end` means that the search reached the end of the "
        "topic; `bytes`, `records` or `seconds` means that it reached this limit."
        f"\n\n{report.table(header, rows_of(found))}", found)


if __name__ == "__main__":
    main()
