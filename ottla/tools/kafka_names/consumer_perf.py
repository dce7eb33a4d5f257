"""kafka-consumer-perf-test: the lines of Apache Kafka's ConsumerPerformance.

Ottla's own code fetches the records, not librdkafka.
"""

from __future__ import annotations

import sys
import time

from ottla.tools.admin import topics
from ottla.tools.admin.offsets import EARLIEST, LATEST
from ottla.tools.kafka_names.common import cluster_of, matching, properties_of
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.java import metrics_table
from ottla.tools.properties import pairs
from ottla.tools.stream.load import FetchLoad, fetch

COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def run(options: Options) -> int:
    """Consume and print the figures."""
    options.check_numbers()
    options.needs("bootstrap-server")
    if options.has("topic") + options.has("include") != 1:
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if options.has("messages") + options.has("num-records") != 1:
        raise UsageError(
            "Exactly one of the following arguments is required: [messages], [num-records]"
        )
    if options.has("messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.", file=sys.stderr)
    properties = properties_of(options)
    properties.update(pairs(options.all("command-property"), "--command-property"))
    wanted = options.number("num-records" if options.has("num-records") else "messages", 0)
    idle = options.number("timeout", 10_000)
    with cluster_of(options.one("bootstrap-server"), properties) as cluster:
        names = [options.one("topic")] if options.has("topic") else matching(
            options.one("include"), topics.names(cluster))
        load = FetchLoad(
            names,
            wanted,
            LATEST if options.has("from-latest") else EARLIEST,
            options.number("fetch-size", 1 << 20),
            idle,
            properties.get("isolation.level") == "read_committed",
        )
        report = Report(options)
        got = fetch(cluster, load, report.add)
    if got < wanted:
        print(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({idle} "
            "ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    report.end()
    if options.has("print-metrics"):
        print(metrics_table(
            "consumer-fetch-manager-metrics", "perf-consumer-client", report.metrics()))
    return 0


def moment() -> str:
    """The time in the default format of Kafka's tool."""
    now = time.time()
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f":{int(now * 1000) % 1000:03}"


class Report:
    """Prints either a line for each interval, or one line at the end."""

    def __init__(self, options: Options) -> None:
        self.detailed = options.has("show-detailed-stats")
        self.interval = options.number("reporting-interval", 5000) / 1000
        self.begun, self.began = time.monotonic(), moment()     # to measure with, and to print
        self.records = self.bytes = self.window_records = self.window_bytes = 0
        self.window = self.begun
        self.fetches = 0
        if not options.has("hide-header"):
            first = "time, threadId, " if self.detailed else "start.time, end.time, "
            print(first + COLUMNS)

    def add(self, records: int, size: int) -> None:
        """Count one fetch."""
        self.fetches += 1
        self.records += records
        self.bytes += size
        self.window_records += records
        self.window_bytes += size
        now = time.monotonic()
        if self.detailed and now - self.window >= self.interval:
            figures = self.figures(now - self.window, self.window_records, self.window_bytes)
            print(f"{moment()}, 0, {figures}", flush=True)
            self.window, self.window_records, self.window_bytes = now, 0, 0

    def end(self) -> None:
        """Prints the line at the end, unless there was a line for each interval."""
        if not self.detailed:
            took = time.monotonic() - self.begun
            print(f"{self.began}, {moment()}, {self.figures(took, self.records, self.bytes)}")

    def metrics(self) -> dict[str, float]:
        """The figures, under the names of a Java consumer's metrics."""
        seconds = max(time.monotonic() - self.begun, 1e-6)
        fetches = max(self.fetches, 1)
        return {
            "bytes-consumed-rate": self.bytes / seconds,
            "bytes-consumed-total": self.bytes,
            "fetch-size-avg": self.bytes / fetches,
            "fetch-total": self.fetches,
            "records-consumed-rate": self.records / seconds,
            "records-consumed-total": self.records,
            "records-per-request-avg": self.records / fetches,
        }

    def figures(self, seconds: float, records: int, size: int) -> str:
        """All columns except the first two, which are times."""
        seconds = max(seconds, 1e-6)
        rates = f"{self.bytes / (1 << 20):.4f}, {size / (1 << 20) / seconds:.4f}"
        counts = f"{self.records}, {records / seconds:.4f}"
        fetching = f"{size / (1 << 20) / seconds:.4f}, {records / seconds:.4f}"
        return f"{rates}, {counts}, 0, {int(seconds * 1000)}, {fetching}"
