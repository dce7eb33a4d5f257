"""kafka-producer-perf-test: the lines of Apache Kafka's ProducerPerformance.

Ottla's own code sends the records, not librdkafka.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from uuid import uuid4

from ottla.tools.cli.target_topic import create_aloud
from ottla.tools.kafka_names.common import cluster_of, properties_of
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.java import metrics_table
from ottla.tools.kafka_names.main import Failed, complain
from ottla.tools.properties import pairs
from ottla.tools.stream.client_settings import acks_of
from ottla.tools.stream.load import (
    BATCH_BYTES,
    Latencies,
    ProduceLoad,
    codec_of,
    numbers,
    produce,
    random_value,
)


def run(options: Options) -> int:
    """Send the records and print the figures."""
    options.only_flags()
    options.needs("topic", "num-records", "throughput")
    if sum(options.has(x) for x in ("record-size", "payload-file", "payload-monotonic")) != 1:
        raise UsageError(
            "exactly one of --record-size, --payload-file and --payload-monotonic is needed"
        )
    if options.has("producer-props"):
        print(
            "Option --producer-props has been deprecated and will be removed in a future "
            "version. Use --command-property instead.",
            file=sys.stderr,
        )
    duration_ms = options.number("transaction-duration-ms", TRANSACTION_MS)
    if duration_ms <= 0:
        raise UsageError("--transaction-duration-ms should be > 0")
    properties = properties_of(options)
    for flag in ("producer-props", "command-property"):
        properties.update(pairs(options.all(flag), f"--{flag}"))
    address = options.one("bootstrap-server") or properties.get("bootstrap.servers", "")
    if not address:
        raise UsageError(
            "At least one of --bootstrap-server, --command-property, --producer-props, "
            "--producer.config or --command-config must name the brokers"
        )
    random = Random(options.number("random-seed", 0))
    load = ProduceLoad(
        topic=options.one("topic"),
        records=options.number("num-records", 0),
        values=values_of(options, random),
        keys=keys_of(options, random),
        throughput=throughput_of(options),
        acks=-1 if (acks := acks_of(properties.get("acks", "all"))) == "all" else int(acks),
        codec=codec_of(properties.get("compression.type", "none")),
        batch_bytes=numbers(properties, "batch.size", BATCH_BYTES),
        transactional_id=transactional_id(options, properties),
        transaction_ms=duration_ms,
    )
    if load.transactional_id and load.acks != -1:
        raise Failed("Must set acks to all in order to use the idempotent producer.")
    warmup = options.number("warmup-records", 0)
    if warmup:
        print(
            f"Warmup first {warmup} records. Steady state results will print after the complete "
            "test summary."
        )
    with cluster_of(address, properties) as cluster:
        cluster.any()
        say = partial(complain, "kafka-producer-perf-test")
        create_aloud(cluster, load.topic, say, waits=False)
        report = Report(warmup, options.number("reporting-interval", 5000))
        report.measure(cluster, load)
        if options.has("print-metrics"):
            print(metrics_table("producer-metrics", "perf-producer-client", report.metrics()))
    return 0


def transactional_id(options: Options, properties: Mapping[str, str]) -> str:
    """The transactional id, or "" if no flag or property requests transactions."""
    given = options.one("transactional-id") or properties.get("transactional.id", "")
    if not given and options.has("transaction-duration-ms"):
        given = f"performance-producer-{uuid4()}"
    return given


def throughput_of(options: Options) -> float:
    """The highest number of records per second; 0 or less means no limit."""
    try:
        return float(options.one("throughput"))
    except ValueError:
        raise UsageError(f"--throughput {options.one('throughput')}: expected a number") from None


def keys_of(options: Options, random: Random) -> Iterator[bytes] | None:
    """The keys of the records, which are numbers; None if the records have no keys."""
    distribution = options.one("key-distribution", "none")
    if distribution not in DISTRIBUTIONS:
        raise UsageError(
            f"argument --key-distribution: invalid choice: '{distribution}' (choose from"
            f" {{{','.join(DISTRIBUTIONS)}}})"
        )
    size = options.number("record-key-range", 0)
    if options.has("record-key-range") and size <= 0:
        raise UsageError("--record-key-range should be greater than zero.")
    if distribution == "none":
        if size:
            raise UsageError(
                "--key-distribution must be 'range' or 'random' when --record-key-range is"
                " specified."
            )
        return None
    if not size:
        raise UsageError(
            "--record-key-range is required when --key-distribution is 'range' or 'random'."
        )
    numbers = (
        cycle(range(size)) if distribution == "range" else iter(partial(random.randrange, size), -1)
    )
    return (str(number).encode() for number in numbers)


def values_of(options: Options, random: Random) -> list[bytes]:
    """The values that the records get in turn."""
    if options.has("payload-monotonic"):
        return [str(number).encode() for number in range(options.number("num-records", 1))]
    if options.has("record-size"):
        return [random_value(options.number("record-size", 1), random)]
    path = options.one("payload-file")
    print(f"Reading payloads from: {Path(path).absolute()}")
    delimiter = options.one("payload-delimiter", "\\n").replace("\\n", "\n").encode()
    try:
        parts = [part for part in Path(path).read_bytes().split(delimiter) if part]
    except OSError as failed:
        raise Failed(f"cannot read {path}: {failed.strerror}") from failed
    if not parts:
        raise Failed(f"{path} holds no records")
    print(f"Number of records read: {len(parts)}")
    return parts


DISTRIBUTIONS = ("none", "range", "random")
TRANSACTION_MS = 3000
"""How long a transaction lasts unless --transaction-duration-ms is given."""


class Report:
    """Prints lines during a run and at its end."""

    def __init__(self, warmup: int, interval_ms: int) -> None:
        self.warmup, self.interval = warmup, interval_ms / 1000
        self.total, self.window = Latencies(), Latencies()
        self.steady: Latencies | None = None         # of the records after the warmup
        self.batches = 0

    def measure(self, cluster: object, load: ProduceLoad) -> None:
        """Produces the load, and prints the lines."""
        produce(cluster, load, self.add)  # type: ignore[arg-type]
        self.last(self.total, "records sent")
        if self.steady is not None:
            self.last(self.steady, "steady state records sent")

    def add(self, records: int, size: int, ms: float) -> None:
        """Count an acknowledged batch."""
        self.batches += 1
        self.total.add(records, size, ms)
        self.window.add(records, size, ms)
        if self.warmup and self.total.records > self.warmup:
            if self.steady is None:
                self.steady = Latencies()
            self.steady.add(records, size, ms)
        if time.monotonic() - self.window.started >= self.interval:
            rate, mebibytes = self.window.rates()
            print(
                f"{self.window.records} records sent, {rate:.1f} records/sec ({mebibytes:.2f} "
                f"MB/sec), {self.window.average_ms:.1f} ms avg latency, "
                f"{self.window.most_ms:.1f} ms max latency.",
                flush=True,
            )
            self.window = Latencies()

    def metrics(self) -> dict[str, float]:
        """The figures, under the names of a Java producer's metrics."""
        rate, _ = self.total.rates()
        seconds = self.total.records / max(rate, 1e-9)
        batches = max(self.batches, 1)
        return {
            "batch-size-avg": self.total.bytes / batches,
            "outgoing-byte-rate": self.total.bytes / max(seconds, 1e-6),
            "outgoing-byte-total": self.total.bytes,
            "record-send-rate": rate,
            "record-send-total": self.total.records,
            "records-per-request-avg": self.total.records / batches,
            "request-latency-avg": self.total.average_ms,
            "request-latency-max": self.total.most_ms,
            "request-total": self.batches,
        }

    def last(self, one: Latencies, what: str) -> None:
        rate, mebibytes = one.rates()
        shares = [one.percentile(share) for share in (0.5, 0.95, 0.99, 0.999)]
        print(
            f"{one.records} {what}, {rate:f} records/sec ({mebibytes:.2f} MB/sec), "
            f"{one.average_ms:.2f} ms avg latency, {one.most_ms:.2f} ms max latency, "
            f"{shares[0]} ms 50th, {shares[1]} ms 95th, {shares[2]} ms 99th, "
            f"{shares[3]} ms 99.9th."
        )
