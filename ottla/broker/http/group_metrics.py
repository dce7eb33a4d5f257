"""Metrics of consumer groups: members, offsets and lag, under kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import gauge, labels, metric
from ottla.broker.http.families import LAG_EXPORTER, lag_exporter_metrics
from ottla.broker.http.lag import Lag

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.http.monitor import Monitor
    from ottla.groups.shard import Shard

PREFIX = "kafka_coordinator_group_groupmetadatamanager_"
LOOKED_UP_PER_SLICE = 50
STATES = {
    "numgroupsstable": "Stable", "numgroupspreparingrebalance": "PreparingRebalance",
    "numgroupscompletingrebalance": "CompletingRebalance", "numgroupsempty": "Empty",
    "numgroupsdead": "Dead",
}
OF_A_PARTITION: tuple[tuple[str, str, Callable[[Lag], float | None]], ...] = (
    ("kafka_consumergroup_current_offset", "The committed offset.", lambda lag: lag.committed),
    ("kafka_consumergroup_lag", "Records that the group has not committed yet.",
     lambda lag: lag.records),
    ("ottla_consumergroup_lag_bytes", "Bytes on disk that the group has not committed yet.",
     lambda lag: lag.size),
    ("ottla_consumergroup_lag_seconds", "Age of the batch that the group reads next.",
     lambda lag: lag.seconds),
)
OF_A_TOPIC = (
    ("kafka_consumergroup_current_offset_sum", "The committed offsets of a topic, added up."),
    ("kafka_consumergroup_lag_sum", "The lag of all partitions of a topic."),
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
    yield from gauge(f"{PREFIX}numoffsets", "Offsets.", sum(len(s.offsets) for s in shards))
    members = [
        (labels(consumergroup=group.group_id), len(group.members))
        for shard in shards for group in shard.groups.values()
    ]
    yield from metric("kafka_consumergroup_members", "gauge", "Members of a group.", members)
    found: dict[str, list[Lag]] = {}
    monitor.lags.begin()
    for shard in shards:
        for group_id in list(shard.offsets.groups()):
            found[group_id] = []
            for lag in monitor.lags.of_group(shard, group_id):
                found[group_id].append(lag)
                if len(found[group_id]) % LOOKED_UP_PER_SLICE == 0:
                    yield ""            # a slice ends
        yield ""
    yield from lag_metrics(found)
    if LAG_EXPORTER in broker.config.ottla_metrics_compat:
        ends = [
            (p.topic, p.index, p.log.log_start_offset, p.high_watermark) for p in broker.replicas
        ]
        yield from lag_exporter_metrics(broker.image.cluster_id, found, ends)


def lag_metrics(lags: dict[str, list[Lag]]) -> Iterator[str]:
    """The lag of each partition, and of each topic, by group."""
    rows = [
        (labels(consumergroup=group_id, topic=lag.topic, partition=lag.partition), lag)
        for group_id, found in lags.items() for lag in found
    ]
    for name, help_text, value in OF_A_PARTITION:
        shown = ((where, value(lag)) for where, lag in rows)
        yield from metric(name, "gauge", help_text, (row for row in shown if row[1] is not None))
    sums: dict[str, tuple[int, int]] = {}
    for group_id, found in lags.items():
        for lag in found:
            where = labels(consumergroup=group_id, topic=lag.topic)
            before = sums.get(where, (0, 0))
            sums[where] = before[0] + lag.committed, before[1] + lag.records
    for at, (name, help_text) in enumerate(OF_A_TOPIC):
        yield from metric(
            name, "gauge", help_text, ((where, values[at]) for where, values in sums.items()))
