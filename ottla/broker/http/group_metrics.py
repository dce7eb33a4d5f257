"""Metrics of consumer groups: members, offsets and lag, under kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import gauge, labels, metric

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.groups.shard import Shard

PREFIX = "kafka_coordinator_group_groupmetadatamanager_"
STATES = {
    "numgroupsstable": "Stable", "numgroupspreparingrebalance": "PreparingRebalance",
    "numgroupscompletingrebalance": "CompletingRebalance", "numgroupsempty": "Empty",
    "numgroupsdead": "Dead",
}
OF_A_PARTITION = (
    ("kafka_consumergroup_current_offset", "The committed offset."),
    ("kafka_consumergroup_lag", "Records that the group has not committed yet."),
)
OF_A_TOPIC = (
    ("kafka_consumergroup_current_offset_sum", "The committed offsets of a topic, added up."),
    ("kafka_consumergroup_lag_sum", "The lag of all partitions of a topic."),
)


def shards_of(broker: BrokerContext) -> list[Shard]:
    """The shards of the groups, if anybody has asked for a group since the start."""
    if "groups" not in broker.coordinators.__dict__:
        return []
    shards: list[Shard] = list(broker.coordinators.groups.runtime.shards())
    return shards


def lags(broker: BrokerContext, shard: Shard, group_id: str) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, committed offset and lag of each partition that a group has committed."""
    for (topic, index), committed in sorted(shard.offsets.of_group(group_id).items()):
        partition = broker.replicas.partition(topic, index)
        if partition is not None:
            lag = max(0, partition.high_watermark - committed.offset)
            yield topic, index, committed.offset, lag


def group_metrics(broker: BrokerContext) -> Iterator[str]:
    """The groups that this broker coordinates."""
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
    rows: list[tuple[str, int, int]] = []
    sums: dict[str, tuple[int, int]] = {}
    for shard in shards:
        for group_id in list(shard.offsets.groups()):
            for topic, index, offset, lag in lags(broker, shard, group_id):
                rows.append((
                    labels(consumergroup=group_id, topic=topic, partition=index), offset, lag
                ))
                where = labels(consumergroup=group_id, topic=topic)
                before = sums.get(where, (0, 0))
                sums[where] = before[0] + offset, before[1] + lag
        yield ""                        # a slice ends
    for at, (name, help_text) in enumerate(OF_A_PARTITION, 1):
        yield from metric(name, "gauge", help_text, ((row[0], row[at]) for row in rows))
    for at, (name, help_text) in enumerate(OF_A_TOPIC):
        summed = ((where, values[at]) for where, values in sums.items())
        yield from metric(name, "gauge", help_text, summed)
