"""Metrics of topics and partitions, under the names of Kafka's JMX exporter and of kafka_exporter.

Dashboards use both: Strimzi's, and Grafana's 7589.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import ROWS_PER_PIECE, escaped, labels, metric

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.replication.partition import Partition

TRAFFIC: dict[str, tuple[str, str]] = {
    "messagesin": ("messages_in", "Records appended."),
    "bytesin": ("bytes_in", "Bytes of record batches appended."),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers."),
    "totalproducerequests": ("produces", "Partitions of produce requests."),
    "totalfetchrequests": ("fetches", "Partitions of fetch responses."),
    "failedproducerequests": ("failed_produces", "Partitions of produce requests that failed."),
    "failedfetchrequests": ("failed_fetches", "Partitions of fetch requests that failed."),
}
"""By the suffix of Kafka's name: the attribute of a partition that counts, and its description."""
NOT_HERE = ("replicationbytesin", "replicationbytesout")
"""Replication traffic, always reported as 0; dashboards add it up."""

PARTITION: dict[str, tuple[str, int | Callable[[Partition], object]]] = {
    "kafka_log_log_size": ("Bytes on disk.", lambda p: p.log.size_bytes),
    "kafka_log_log_logstartoffset": ("The first offset.", lambda p: p.log.log_start_offset),
    "kafka_log_log_logendoffset": ("The next offset.", lambda p: p.log.log_end_offset),
    "kafka_log_log_numlogsegments": ("Segments.", lambda p: p.log.segment_count),
    "kafka_cluster_partition_underminisr": ("1 below min.insync.replicas.", 0),
    "kafka_cluster_partition_insyncreplicascount": ("In-sync replicas.", 1),
    "kafka_cluster_partition_replicascount": ("Replicas.", 1),
    "kafka_cluster_partition_laststableoffsetlag": (
        "Offsets that open transactions hold back.",
        lambda p: p.high_watermark - p.last_stable_offset(),
    ),
    "kafka_topic_partition_current_offset": (
        "The offset up to which consumers can read.", lambda p: p.high_watermark),
    "kafka_topic_partition_oldest_offset": (
        "The first offset.", lambda p: p.log.log_start_offset),
    "kafka_topic_partition_in_sync_replica": ("In-sync replicas.", 1),
    "kafka_topic_partition_leader": ("The leader's node id.", lambda p: p.leader_id),
    "kafka_topic_partition_leader_is_preferred": (
        "1 if the leader is the preferred one.", 1),
    "kafka_topic_partition_replicas": ("Replicas.", 1),
    "kafka_topic_partition_under_replicated_partition": (
        "1 if replicas are missing.", 0),
}


def traffic_metrics(broker: BrokerContext) -> Iterator[str]:
    """Produce and fetch traffic, by topic and in total; deleted topics stay in the totals."""
    gone = broker.replicas.gone
    topics = [
        (labels(topic=name), [p for p in partitions if p is not None])
        for name, partitions in sorted(broker.replicas.by_name.items())
    ]
    for name, (attribute, help_text) in TRAFFIC.items():
        rows = [(where, sum(getattr(p, attribute) for p in found)) for where, found in topics]
        total = sum(value for _, value in rows) + gone.get(attribute, 0)
        full = f"kafka_server_brokertopicmetrics_{name}_total"
        yield from metric(full, "counter", help_text, [("", total), *rows])
    for name in NOT_HERE:
        full = f"kafka_server_brokertopicmetrics_{name}_total"
        yield from metric(full, "counter", "Bytes between brokers.", [("", 0)])
    rows = [(where, len(found)) for where, found in topics]
    yield from metric("kafka_topic_partitions", "gauge", "Partitions of a topic.", rows)


def partition_metrics(broker: BrokerContext) -> Iterator[str]:
    """Offsets, sizes and replicas of each partition. Optimized: there may be 100,000."""
    found: list[tuple[str, Partition]] = []
    for name, partitions in sorted(broker.replicas.by_name.items()):
        topic = escaped(name)
        found += [
            (f'{{topic="{topic}",partition="{p.index}"}}', p) for p in partitions if p is not None
        ]
        yield ""
    for name, (help_text, value) in PARTITION.items():
        yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
        for start in range(0, len(found), ROWS_PER_PIECE):
            rows = found[start : start + ROWS_PER_PIECE]
            if callable(value):
                yield "".join([f"{name}{where} {value(p)}\n" for where, p in rows])
            else:
                yield "".join([f"{name}{where} {value}\n" for where, _ in rows])
