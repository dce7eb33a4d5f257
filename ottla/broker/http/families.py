"""Repeats metrics under the names of other exporters, if enabled by `ottla.metrics.compat`.

`confluent`: the JMX exporter's names in Confluent's monitoring stacks, used by dashboards there.
`lag_exporter`: Lightbend's kafka-lag-exporter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import labels, metric

if TYPE_CHECKING:
    from ottla.broker.http.lag import Lag
    from ottla.broker.http.monitor import Monitor

CONFLUENT, LAG_EXPORTER = "confluent", "lag_exporter"

COUNTED = (
    "kafka_server_brokertopicmetrics_", "kafka_network_requestmetrics_requests",
    "kafka_network_requestmetrics_errors", "kafka_server_replicamanager_isr",
    "kafka_controller_controllerstats_uncleanleaderelections",
)
"""Prefixes of the metrics whose names end in `_total` here, and in `persec` (PerSec in Kafka's
beans) in Confluent's stacks."""


def with_confluent_names(pieces: Iterable[str]) -> Iterator[str]:
    """Yield all pieces. A metric that has another name in Confluent's stacks is repeated under that
    name."""
    name = other = ""
    again: list[str] = []
    for piece in pieces:
        if piece.startswith("# HELP "):
            yield from again
            again = []
            name = piece.split(" ", 3)[2]
            other = _confluent(name)
        yield piece
        if other and piece:
            copy = piece.replace(name, other)
            # Untyped, as from the JMX exporter: the name of a counter would have to end in _total.
            again.append(copy.replace(f"# TYPE {other} counter", f"# TYPE {other} untyped", 1))
    yield from again


def _confluent(name: str) -> str:
    if name.startswith(COUNTED) and name.endswith("_total"):
        return f"{name.removesuffix('_total')}persec"
    return ""


def confluent_connections(monitor: Monitor) -> Iterator[str]:
    """Connections by the software of the client."""
    states = Counter(
        (connection.client.listener, connection.client.software_name or "unknown",
         connection.client.software_version or "unknown")
        for connection in monitor.connections()
    )
    rows = [
        (labels(listener=listener, client_software_name=name, client_software_version=version,
                networkprocessor=0), count)
        for (listener, name, version), count in sorted(states.items())
    ]
    yield from metric(
        "kafka_server_socketservermetrics_connections", "gauge", "Open connections.", rows)


def lag_exporter_metrics(
    cluster_id: str, lags: dict[str, list[Lag]], ends: Iterable[tuple[str, int, int, int]]
) -> Iterator[str]:
    """The lags of all groups, and the first and next offset of each partition (topic, index)."""
    prefix, everywhere = "kafka_consumergroup_group_", {"cluster_name": cluster_id}
    rows: list[tuple[str, Lag]] = [
        (labels(**everywhere, group=group, topic=lag.topic, partition=lag.partition), lag)
        for group, group_lags in lags.items() for lag in group_lags
    ]
    values: tuple[tuple[str, str, Callable[[Lag], float | None]], ...] = (
        ("offset", "The committed offset.", lambda lag: lag.committed),
        ("lag", "Records that the group has not committed yet.", lambda lag: lag.records),
        ("lag_seconds", "Age of the record that the group reads next.", lambda lag: lag.seconds),
    )
    for name, help_text, value in values:
        shown = ((where, value(lag)) for where, lag in rows)
        yield from metric(
            prefix + name, "gauge", help_text, (row for row in shown if row[1] is not None))
    sums: tuple[tuple[str, str, Callable[[list[Lag]], float]], ...] = (
        ("max_lag", "The largest lag in a partition.",
         lambda group_lags: max(lag.records for lag in group_lags)),
        ("max_lag_seconds", "The largest lag_seconds of a partition.",
         lambda group_lags: max(lag.seconds or 0.0 for lag in group_lags)),
        ("sum_lag", "Records that the group has not committed yet.",
         lambda group_lags: sum(lag.records for lag in group_lags)),
    )
    for name, help_text, total in sums:
        yield from metric(
            prefix + name, "gauge", help_text,
            ((labels(**everywhere, group=group), total(group_lags))
             for group, group_lags in lags.items() if group_lags))
    by_topic: Counter[tuple[str, str]] = Counter()
    for group, group_lags in lags.items():
        for lag in group_lags:
            by_topic[group, lag.topic] += lag.records
    yield from metric(
        f"{prefix}topic_sum_lag", "gauge",
        "Records of a topic that the group has not committed yet.",
        ((labels(**everywhere, group=group, topic=topic), value)
         for (group, topic), value in by_topic.items()))
    places = [
        (labels(**everywhere, topic=topic, partition=index), first, last)
        for topic, index, first, last in ends
    ]
    yield from metric(
        "kafka_partition_earliest_offset", "gauge", "The first offset.",
        ((where, first) for where, first, _ in places))
    yield from metric(
        "kafka_partition_latest_offset", "gauge", "The next offset.",
        ((where, last) for where, _, last in places))
