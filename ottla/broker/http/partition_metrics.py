"""Metrics of topics and partitions, under the names of Kafka's JMX exporter and of kafka_exporter.

Dashboards use both: Strimzi's, and Grafana's 7589. kafka_exporter's are of the whole cluster, so a
broker writes those only for partitions that it leads: over all brokers each appears once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import ROWS_PER_PIECE, escaped, labels, metric
from ottla.broker.http.partition_rows import FIGURES, PartitionRows, read_partitions
from ottla.broker.http.partition_rows import TRAFFIC as COUNTED

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

TRAFFIC: dict[str, tuple[str, str]] = {
    "messagesin": ("messages_in", "Records appended."),
    "bytesin": ("bytes_in", "Bytes of record batches appended."),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers."),
    "totalproducerequests": ("produces", "Partitions of produce requests."),
    "totalfetchrequests": ("fetches", "Partitions of fetch responses."),
    "failedproducerequests": ("failed_produces", "Partitions of produce requests that failed."),
    "failedfetchrequests": ("failed_fetches", "Partitions of fetch requests that failed."),
}
"""By the suffix of Kafka's name: what is counted, and its description."""
NOT_HERE = ("replicationbytesin", "replicationbytesout")
"""Replication traffic, always reported as 0; dashboards add it up."""

PARTITION: dict[str, tuple[str, str]] = {
    "kafka_log_log_size": ("size", "Bytes on disk."),
    "kafka_log_log_logstartoffset": ("start", "The first offset."),
    "kafka_log_log_logendoffset": ("end", "The next offset."),
    "kafka_log_log_numlogsegments": ("segments", "Segments."),
    "kafka_cluster_partition_underminisr": ("under_min_isr", "1 below min.insync.replicas."),
    "kafka_cluster_partition_atminisr": ("at_min_isr", "1 at min.insync.replicas."),
    "kafka_cluster_partition_insyncreplicascount": ("in_sync", "In-sync replicas; 0 if followed."),
    "kafka_cluster_partition_replicascount": ("replicas", "Replicas; 0 if followed."),
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
        "under_replicated", "1 if replicas are missing."),
}
"""By name: the figure of `partition_rows`, and its description."""
READ_PER_SLICE = 1000


class Found:
    """What a scrape has read: the figures of each partition, the traffic of each topic.

    All partitions are those of one moment: one that is deleted meanwhile counts once, here and not
    among those that are gone.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self.rows = PartitionRows()
        self.gone = dict(broker.replicas.gone)
        self.leaving = [each for left in broker.replicas.leaving for each in left]
        self.topics = [
            (name, [p for p in partitions if p is not None])
            for name, partitions in sorted(broker.replicas.by_name.items())
        ]
        self.traffic: list[tuple[str, list[int]]] = []
        self.led: list[int] = []
        """By topic, how many partitions are led here."""

    def read(self) -> Iterator[str]:
        """Read everything, a slice at a time."""
        for partition in self.leaving:
            for counted in COUNTED:
                self.gone[counted] += getattr(partition, counted)
            yield ""
        for name, partitions in self.topics:
            head = f'{{topic="{escaped(name)}",partition="'.encode()
            sums = [0] * len(COUNTED)
            for start in range(0, len(partitions), READ_PER_SLICE):
                read_partitions(self.rows, head, partitions[start : start + READ_PER_SLICE], sums)
                yield ""
            self.traffic.append((labels(topic=name), sums))
            self.led.append(sum(partition.led_here for partition in partitions))
            yield ""

    def total(self, counted: str) -> int:
        """A counter of all topics, deleted ones included."""
        at = COUNTED.index(counted)
        return sum(sums[at] for _, sums in self.traffic) + self.gone[counted]


def traffic_metrics(found: Found) -> Iterator[str]:
    """Produce and fetch traffic, by topic and in total; deleted topics stay in the totals."""
    for name, (counted, help_text) in TRAFFIC.items():
        at = COUNTED.index(counted)
        rows = [(where, sums[at]) for where, sums in found.traffic]
        full = f"kafka_server_brokertopicmetrics_{name}_total"
        yield from metric(full, "counter", help_text, [("", found.total(counted)), *rows])
    for name in NOT_HERE:
        full = f"kafka_server_brokertopicmetrics_{name}_total"
        yield from metric(full, "counter", "Bytes between brokers.", [("", 0)])
    for name in ("isr_shrinks", "isr_expands"):
        full = f"kafka_server_replicamanager_{name.replace('_', '')}_total"
        rows = [("", found.total(name))]
        yield from metric(full, "counter", "Changes of in-sync replicas.", rows)
    led = [(where, count) for (where, _), count in zip(found.traffic, found.led, strict=True)]
    yield from metric("kafka_topic_partitions", "gauge", "Partitions of a topic.", led)


def partition_metrics(found: Found) -> Iterator[str]:
    """Offsets, sizes and replicas of each partition. Optimized: there may be 100,000."""
    for name, (figure, help_text) in PARTITION.items():
        column = FIGURES.index(figure)
        yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
        for start in range(0, len(found.rows), ROWS_PER_PIECE):
            yield found.rows.lines(name, column, start, start + ROWS_PER_PIECE)
