"""kafka-e2e-latency: the time from sending a record to receiving it.

Ottla's own code sends and fetches the records, not librdkafka.
"""

from __future__ import annotations

import secrets
import sys
import time
from typing import TYPE_CHECKING

from ottla.client.connection import Connection
from ottla.client.similar_names import similar
from ottla.tools.admin import offsets, topics
from ottla.tools.cli.target_topic import created_text
from ottla.tools.kafka_names.common import cluster_of, properties_of
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.main import Failed, complain
from ottla.tools.properties import read_client_properties
from ottla.tools.stream.batches import (
    FETCH_MAX,
    PRODUCE_MAX,
    check_produced,
    fetch_request,
    produce_request,
)
from ottla.tools.stream.load import random_value
from ottla.wire.batch import batches
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

POSITIONAL = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
WAIT_MS = 60_000


def run(options: Options) -> int:
    """Measures the latencies, and prints every thousandth latency and the percentiles."""
    properties = properties_of(options)
    if options.positional:
        if len(options.positional) not in (5, 6):
            raise UsageError(
                "Invalid number of arguments. Expected 5 or 6 positional arguments, but got "
                f"{len(options.positional)}. Usage: bootstrap-server topic num-records "
                "producer-acks record-size [optional] command-config"
            )
        print(
            "WARNING: Positional argument usage is deprecated and will be removed in Apache "
            "Kafka 5.0. Please use named arguments instead",
            file=sys.stderr,
        )
        for name, value in zip(POSITIONAL, options.positional, strict=False):
            options.values[name] = [value]
        if len(options.positional) == 6:
            properties.update(read_client_properties(options.positional[5]))
    options.needs("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
    acks = options.one("producer-acks")
    if acks not in ("1", "all"):
        raise UsageError(
            "Latency testing requires synchronous acknowledgement. Please use 1 or all"
        )
    with cluster_of(options.one("bootstrap-server"), properties) as cluster:
        prepare(cluster, options.one("topic"))
        times = measure(options, cluster, -1 if acks == "all" else 1)
    times.sort()
    print(f"Avg latency: {sum(times) / len(times):.4f} ms")
    half, most, nearly = (
        int(times[min(len(times) - 1, int(len(times) * share))]) for share in (0.5, 0.99, 0.999)
    )
    print(f"Percentiles: 50th = {half}, 99th = {most}, 99.9th = {nearly}")
    return 0


def prepare(cluster: ClusterClient, topic: str) -> None:
    """Creates the topic if it is missing."""
    known = topics.names(cluster)
    if topic in known:
        return
    print(
        f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication '
        "factor = 1"
    )
    topics.create(cluster, topic, partitions=1, replication_factor=1)
    if similar(topic, known):
        complain("kafka-e2e-latency", created_text(cluster, topic, 1))


def record_of(options: Options) -> Record:
    """A record with the sizes that the flags request."""
    key_size = options.number("record-key-size", 0)
    headers = [
        (
            secrets.token_hex(options.number("record-header-key-size", 2))[
                : max(1, options.number("record-header-key-size", 2))
            ],
            random_value(options.number("record-header-size", 0)),
        )
        for _ in range(options.number("num-headers", 0))
    ]
    return Record(
        -1,
        int(time.time() * 1000),
        random_value(key_size) if key_size else None,
        random_value(options.number("record-size", 0)),
        headers,
    )


def measure(options: Options, cluster: ClusterClient, acks: int) -> list[float]:
    """The milliseconds from sending each record until it was fetched."""
    topic = options.one("topic")
    at = offsets.required(cluster, {(topic, 0): offsets.LATEST}, created=True)[topic, 0]
    leader = cluster.with_retries(lambda: topics.leader(cluster, (topic, 0)))
    sender = cluster.node(leader)
    address = cluster.brokers[leader]
    times: list[float] = []
    with Connection(address, security=cluster.security) as receiver:
        receiver.negotiate()
        for number in range(options.number("num-records", 0)):
            request = produce_request(topic, 0, build_batch([record_of(options)]), acks=acks)
            begun = time.monotonic()
            fetching = receiver.send(
                fetch_request(topic, [(0, at)], wait_ms=WAIT_MS), at_most=FETCH_MAX
            )
            check_produced(sender.call(request, at_most=PRODUCE_MAX))
            [answer] = receiver.answer(fetching).responses
            found = list(batches(answer.partitions[0].records or b""))
            if not found:
                raise Failed(f"poll() timed out before finding a result (timeout:[{WAIT_MS}ms])")
            times.append((time.monotonic() - begun) * 1000)
            at = found[-1].next_offset
            if number % 1000 == 0:
                print(f"{number}\t{times[-1]}")
    if not times:
        raise UsageError("--num-records must be at least 1")
    return times
