"""Progress: a topic of the destination keeps the position up to which each pipeline has written.

A group's offsets would expire (offsets.retention.minutes); a compacted topic keeps the newest
record of each key for ever. Progress is written in the same transaction as the rows (KIP-98):

    key    {"pipeline": its name, "from": the source's cluster, "to": the topic, "lane": a number}
    value  {"position": a number, "source": the rows' origin, "topics": {name: id} written to}

A lane is a partition of the destination topic. The records of all lanes of a pipeline are in one
partition of the progress topic. A reader first waits until all transactions have ended that were
open when it began. In that partition, a pipeline's last record may follow an open transaction of
another pipeline, and cannot be read before that transaction ends.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.spark_interop.cluster import Cluster, consumer_goes_on
from ottla.spark_interop.errors import PipelineError
from ottla.wire.wording import counted

TOPIC = "ottla.pipelines.progress"
PARTITIONS = 8  # fixed: it determines the partition of a pipeline
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "retention.ms": "-1"}
PATIENCE_SECONDS = 240  # longer than a transaction may be open
RECORDS_MAX = 1000  # of one call of `consume`
POLL_SECONDS = 0.05
FETCH_WAIT_MS_MAX = 10  # so that the end of the partition is noticed soon
_fit: set[str] = set()  # ids of progress topics that `prepare` has checked


@dataclass(frozen=True)
class Entry:
    """The newest position of a lane."""

    position: int
    source: str
    topics: dict[str, str]


def prepare(cluster: Cluster) -> str:
    """Creates the topic if needed and returns its id. Raises PipelineError if it has wrong
    settings."""
    there = cluster.topic_ids([TOPIC])[TOPIC]
    if there in _fit:
        return str(there)
    if there is None:
        cluster.create(TOPIC, PARTITIONS, CONFIG)
    policy, count = cluster.settings(TOPIC)["cleanup.policy"].value, len(cluster.partitions(TOPIC))
    if count < PARTITIONS or policy != "compact":
        raise PipelineError(
            f"{TOPIC} at {cluster.bootstrap}, which keeps the progress of pipelines, has "
            f"{counted(count, 'partition')} and cleanup.policy={policy}, but needs {PARTITIONS} "
            "partitions and cleanup.policy=compact. Delete the topic: the next run of a pipeline "
            "creates it"
        )
    there = cluster.topic_id(TOPIC)
    _fit.add(there)
    return there


def partition_of(writer: str, source_cluster: str, topic: str) -> int:
    """The partition that holds a pipeline's progress."""
    return zlib.crc32(f"{writer} {source_cluster} {topic}".encode()) % PARTITIONS


def key(writer: str, source_cluster: str, topic: str, lane: int) -> str:
    """The key of a lane's records."""
    return json.dumps({"pipeline": writer, "from": source_cluster, "to": topic, "lane": lane})


def value(position: int, source: str, topics: dict[str, str]) -> str:
    """The value of a record."""
    return json.dumps({"position": position, "source": source, "topics": topics})


def read(cluster: Cluster, partition: int, begin: int = 0) -> tuple[dict[str, Entry], int]:
    """The newest committed entry of each key from an offset on, and the end of the partition."""
    end = cluster.ends(TOPIC, committed=False, partitions=[partition])[partition]
    entries: dict[str, Entry] = {}
    if begin >= end:
        return entries, begin
    for name, text in _records(cluster, partition, begin, end):
        given = json.loads(text)
        entries[name] = Entry(given["position"], given["source"], given["topics"])
    return entries, end


def _records(
    cluster: Cluster, partition: int, begin: int, end: int
) -> Iterator[tuple[str, bytes]]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(cluster.client(**{
        "group.id": TOPIC, "enable.auto.commit": False, "isolation.level": "read_committed",
        "enable.partition.eof": True, "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": FETCH_WAIT_MS_MAX,
    }))  # fmt: skip
    deadline, at = time.monotonic() + PATIENCE_SECONDS, begin
    try:
        consumer.assign([TopicPartition(TOPIC, partition, begin)])
        while at < end:
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"a transaction on {TOPIC} has been open for {PATIENCE_SECONDS} s: find it "
                    "with `ottla transaction list`, and run this pipeline again once the "
                    "transaction has ended"
                )
            for message in consumer.consume(RECORDS_MAX, POLL_SECONDS):
                error = message.error()
                if error is None:
                    at = message.offset() + 1
                    yield message.key().decode(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    at = max(at, message.offset())
                elif not consumer_goes_on(error):
                    raise PipelineError(f"{TOPIC} cannot be read: {error.str()}")
    finally:
        consumer.close()
