"""Metrics of a broker's part in a cluster: copying from leaders, elections, ZooKeeper's session.

A standalone broker reports these metrics too, with the value 0, as Apache Kafka does. It does not
report the metrics of the session with ZooKeeper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import counter, gauge, labels, metric, rows_metric
from ottla.broker.http.request_metrics import QUANTILES, quantile_ms
from ottla.replication.coordination import SessionState

if TYPE_CHECKING:
    from ottla.broker.cluster.cluster_session import ClusterSession
    from ottla.broker.http.monitor import Monitor
    from ottla.broker.http.partition_metrics import ScrapedPartitions

SESSION = {
    "disconnects": (SessionState.SUSPENDED, "Connections to ZooKeeper that broke."),
    "expires": (SessionState.LOST, "Sessions with ZooKeeper that ended."),
    "syncconnects": (SessionState.CONNECTED, "Reconnections to ZooKeeper."),
}


def cluster_metrics(monitor: Monitor, scraped: ScrapedPartitions) -> Iterator[str]:
    """The metrics about other brokers and ZooKeeper."""
    role, followed = monitor.broker.role, scraped.reading.followed
    prefix = "kafka_server_replicafetchermanager_"
    yield from gauge(
        f"{prefix}maxlag", "The largest lag of a partition that is copied from its leader.",
        followed.max(0), clientId="Replica")
    yield from gauge(
        f"{prefix}minfetchrate", "Requests a second of the slowest replica fetcher.",
        monitor.fetch_rate, clientId="Replica")
    yield from rows_metric(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Committed records that are not copied from the leader yet.", followed, 0)
    yield from counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Elections of leaders that were not in sync.", role.unclean_elections)
    yield from role.metrics()


def session_metrics(session: ClusterSession) -> Iterator[str]:
    """How often the session with ZooKeeper changed, and how long ZooKeeper took to answer."""
    changes: Counter[SessionState] = session.changes
    for name, (state, help_text) in SESSION.items():
        yield from counter(
            f"kafka_server_sessionexpirelistener_zookeeper{name}_total", help_text, changes[state])
    latencies = session.coordination.latencies.buckets
    name = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
    yield from metric(
        name, "gauge",
        "The time from a request to ZooKeeper to its answer, in ms; since the broker's start.",
        [(labels(quantile=each), quantile_ms(latencies, each)) for each in QUANTILES])
    yield from counter(f"{name}_count", "Requests to ZooKeeper.", sum(latencies))
