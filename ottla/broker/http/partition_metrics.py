"""Metrics of topics and partitions, under the names of Kafka's JMX exporter and of kafka_exporter.

Strimzi's dashboards use the names of the JMX exporter, and Grafana's dashboard 7589 uses the names
of kafka_exporter. kafka_exporter's metrics describe the whole cluster, so a broker writes them only
for the partitions that it leads. Each partition then appears only once among all brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import counter, rows_metric
from ottla.broker.http.partition_rows import FIGURES, LED, Reading
from ottla.replication.counters import COUNTED, PartitionCounters

if TYPE_CHECKING:
    from ottla.replication.replicas import Replicas

TRAFFIC: dict[str, tuple[str, str]] = {
    "messagesin": ("messages_in", "Records appended."),
    "bytesin": ("bytes_in", "Bytes of record batches appended."),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers."),
    "totalproducerequests": ("produces", "Produce requests, counted once per partition."),
    "totalfetchrequests": ("fetches", "Fetch responses, counted once per partition."),
    "failedproducerequests": (
        "failed_produces", "Failures of produce requests, counted once per partition."),
    "failedfetchrequests": (
        "failed_fetches", "Failures of fetch requests, counted once per partition."),
    "bytesrejected": ("bytes_rejected", "Bytes of record batches refused as too large."),
    "producemessageconversions": (
        "produce_conversions", "Records stored in another format or codec than they were sent in."),
    "fetchmessageconversions": (
        "fetch_conversions", "Records sent in another format or codec than they are stored in."),
}
"""For each suffix of Kafka's metric names, the counter and its description."""
BETWEEN_BROKERS: dict[str, tuple[str, str]] = {
    "kafka_server_brokertopicmetrics_replicationbytesin_total": (
        "replicated_in", "Bytes of record batches copied from leaders."),
    "kafka_server_brokertopicmetrics_replicationbytesout_total": (
        "replicated_out", "Bytes of record batches sent to followers."),
    "kafka_server_replicamanager_isrshrinks_total": (
        "isr_shrinks", "Replicas that left the in-sync set."),
    "kafka_server_replicamanager_isrexpands_total": (
        "isr_expands", "Replicas that joined the in-sync set."),
}
"""Counters that exist only as a total of all topics. For each name, the counter and its
description."""

PARTITION: dict[str, tuple[str, str]] = {
    "kafka_log_log_size": ("size", "Bytes on disk."),
    "kafka_log_log_logstartoffset": ("start", "The first offset."),
    "kafka_log_log_logendoffset": ("end", "The next offset."),
    "kafka_log_log_numlogsegments": ("segments", "Segments."),
    "kafka_cluster_partition_underminisr": ("under_min_isr", "1 if below min.insync.replicas."),
    "kafka_cluster_partition_atminisr": ("at_min_isr", "1 if at min.insync.replicas."),
    "kafka_cluster_partition_insyncreplicascount": ("in_sync", "In-sync replicas; 0 on followers."),
    "kafka_cluster_partition_replicascount": ("replicas", "Replicas; 0 on followers."),
    "kafka_cluster_partition_laststableoffsetlag": (
        "stable_lag", "Offsets that open transactions hold back."),
    "kafka_topic_partition_current_offset": (
        "led_end", "The offset up to which consumers can read."),
    "kafka_topic_partition_oldest_offset": ("led_start", "The first offset."),
    "kafka_topic_partition_in_sync_replica": ("led_in_sync", "In-sync replicas."),
    "kafka_topic_partition_leader": ("leader", "The leader's node id."),
    "kafka_topic_partition_leader_is_preferred": (
        "preferred", "1 if the leader is the preferred one."),
    "kafka_topic_partition_replicas": ("led_replicas", "Replicas."),
    "kafka_topic_partition_under_replicated_partition": (
        "under_replicated", "1 if replicas are out of sync."),
}
"""For each metric's name, the figure of `partition_rows` and its description."""
READ_PER_SLICE = 50


class ScrapedPartitions:
    """What a scrape has read: the figures of each partition, the traffic of each topic.

    The set of partitions is fixed when the scrape begins. A partition that is deleted during the
    scrape is counted once, as an existing one.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.gone = PartitionCounters()
        self.gone.add(replicas.gone)
        self.leaving = [each for left in replicas.leaving for each in left]
        self.reading = Reading(replicas.by_name)
        self.rows, self.topics = self.reading.partitions, self.reading.topics

    def read(self) -> Iterator[str]:
        """Read everything, a slice at a time."""
        for partition in self.leaving:
            self.gone.add(partition.counters)
            yield ""
        while self.reading.read_more(READ_PER_SLICE):
            yield ""

    def sum(self, figure: str) -> int:
        """The sum of a figure over all partitions that have it."""
        return self.rows.sum(FIGURES.index(figure))

    def total(self, counted: str) -> int:
        """A counter of all topics, deleted ones included."""
        gone: int = getattr(self.gone, counted)
        return self.topics.sum(COUNTED.index(counted)) + gone

    def led(self) -> int:
        """The number of partitions that are led here."""
        return self.topics.sum(LED)


def traffic_metrics(scraped: ScrapedPartitions) -> Iterator[str]:
    """Produce and fetch traffic, by topic and in total; deleted topics stay in the totals."""
    for name, (counted, help_text) in TRAFFIC.items():
        yield from rows_metric(
            f"kafka_server_brokertopicmetrics_{name}_total", help_text, scraped.topics,
            COUNTED.index(counted), kind="counter", total=scraped.total(counted))
    for name, (counted, help_text) in BETWEEN_BROKERS.items():
        yield from counter(name, help_text, scraped.total(counted))
    yield from rows_metric("kafka_topic_partitions", "Partitions of a topic.", scraped.topics, LED)


def partition_metrics(scraped: ScrapedPartitions) -> Iterator[str]:
    """Offsets, sizes and replicas of each partition. Optimized for 100,000 partitions."""
    for name, (figure, help_text) in PARTITION.items():
        yield from rows_metric(name, help_text, scraped.rows, FIGURES.index(figure))
