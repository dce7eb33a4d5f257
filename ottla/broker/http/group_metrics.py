"""Metrics of consumer groups: members, offsets and lag, under kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import gauge, labels, metric, rows_metric
from ottla.broker.http.families import LAG_EXPORTER, lag_exporter_metrics
from ottla.broker.http.partition_rows import PartitionRows

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.http.lag import Lag
    from ottla.broker.http.monitor import Monitor
    from ottla.groups.shard import Shard
    from ottla.replication.replicas import Replicas

PREFIX = "kafka_coordinator_group_groupmetadatamanager_"
READ_PER_SLICE = 25
STATES = {
    "numgroupsstable": "Stable", "numgroupspreparingrebalance": "PreparingRebalance",
    "numgroupscompletingrebalance": "CompletingRebalance", "numgroupsempty": "Empty",
    "numgroupsdead": "Dead",
}
OF_A_PARTITION = (
    ("kafka_consumergroup_current_offset", "The committed offset."),
    ("kafka_consumergroup_lag", "Records that the group has not committed yet."),
    ("ottla_consumergroup_lag_bytes", "Bytes on disk that the group has not committed yet."),
    ("ottla_consumergroup_lag_seconds", "Age of the record that the group reads next."),
)
"""Metrics of a group's partitions, in the order of `lag.COLUMNS`, whose last column is in
milliseconds."""
OF_A_TOPIC = (
    ("kafka_consumergroup_current_offset_sum", "The sum of the committed offsets in a topic."),
    ("kafka_consumergroup_lag_sum", "The sum of the lag in a topic's partitions."),
)


def shards_of(broker: BrokerContext) -> list[Shard]:
    """The shards of the groups, if the coordinator of groups has been created."""
    if "groups" not in broker.coordinators.__dict__:
        return []
    shards: list[Shard] = list(broker.coordinators.groups.runtime.shards())
    return shards


def group_metrics(monitor: Monitor) -> Iterator[str]:
    """Metrics of the groups that this broker coordinates."""
    broker = monitor.broker
    shards = shards_of(broker)
    states = Counter(group.state_name for shard in shards for group in shard.groups.values())
    yield from gauge(f"{PREFIX}numgroups", "Groups.", sum(states.values()))
    for name, state in STATES.items():
        yield from gauge(f"{PREFIX}{name}", f"Groups in state {state}.", states[state])
    yield from gauge(
        f"{PREFIX}numoffsets", "Committed offsets.", sum(len(s.offsets) for s in shards))
    members = [
        (labels(consumergroup=group.group_id), len(group.members))
        for shard in shards for group in shard.groups.values()
    ]
    yield from metric("kafka_consumergroup_members", "gauge", "Members of a group.", members)
    yield from lag_metrics(monitor, shards)
    if LAG_EXPORTER in broker.config.ottla_metrics_compat:
        lags: dict[str, list[Lag]] = {}
        for shard in shards:
            for group_id in list(shard.offsets.groups()):
                lags[group_id] = list(monitor.lags.of_group(shard, group_id))
                yield ""
        ends = led_ends(broker.replicas)
        yield from lag_exporter_metrics(broker.image.cluster_id, lags, ends)


def led_ends(replicas: Replicas) -> list[tuple[str, int, int, int]]:
    """The first and the next offset of each partition that this broker leads. So a partition
    appears only once among all brokers."""
    return [
        (each.topic, each.index, each.log.log_start_offset, each.high_watermark)
        for each in replicas if each.led_here
    ]


def lag_metrics(monitor: Monitor, shards: list[Shard]) -> Iterator[str]:
    """The lag of each partition, and of each topic, by group."""
    rows, sums = PartitionRows(sum(len(shard.offsets) for shard in shards)), PartitionRows()
    monitor.lags.begin()
    for shard in shards:
        for group_id in list(shard.offsets.groups()):
            offsets = list(shard.offsets.of_group(group_id).items())
            numbers: dict[str, int] = {}
            for start in range(0, len(offsets), READ_PER_SLICE):
                some = offsets[start : start + READ_PER_SLICE]
                monitor.lags.read(rows, sums, group_id, some, numbers)
                yield ""            # a slice ends
    for at, (name, help_text) in enumerate(OF_A_PARTITION):
        yield from rows_metric(name, help_text, rows, at, thousandths=name.endswith("_seconds"))
    for at, (name, help_text) in enumerate(OF_A_TOPIC):
        yield from rows_metric(name, help_text, sums, at)
