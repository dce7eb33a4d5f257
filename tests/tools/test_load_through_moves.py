"""Performance tools continue when leaders move, as every client does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import ClusterClient
from ottla.tools.admin import partitions
from ottla.tools.admin.topics import brokers as live_brokers
from ottla.tools.stream.load import FetchLoad, ProduceLoad, fetch, produce
from tests.broker.cluster.running_cluster import RunningCluster, create

RECORDS = 400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        yield running


def connected(cluster: RunningCluster) -> ClusterClient:
    addresses = ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    return ClusterClient(addresses, connect_seconds=0.5)


def stopped_leader(cluster: RunningCluster) -> int:
    """Stop the leader of partition 0, so that another broker leads it; return its id."""
    leader = cluster.servers[cluster.controller].metadata_log.image.topics["t"].partitions[0].leader
    cluster.stop(leader)
    return leader


@pytest.mark.parametrize("transactional_id", ["", "moves"])
def test_a_load_is_produced_whole_although_a_leader_stops(
    cluster: RunningCluster, transactional_id: str
) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    load = ProduceLoad(
        "t", RECORDS, [b"x" * 100], batch_bytes=1000, transactional_id=transactional_id
    )
    acknowledged, stopped = 0, 0

    def on_batch(records: int, size: int, ms: float) -> None:
        nonlocal acknowledged, stopped
        acknowledged += records
        if acknowledged > 50 and not stopped:
            stopped = stopped_leader(cluster)

    with connected(cluster) as client:
        produce(client, load, on_batch)
        assert acknowledged == RECORDS and stopped
        counted = 0

        def on_fetch(records: int, size: int) -> None:
            nonlocal counted
            counted += records

        got = fetch(client, FetchLoad(["t"], RECORDS, idle_ms=500, committed=True), on_fetch)
    assert counted == got >= RECORDS, "a batch whose answer was lost may be there twice"


def test_a_load_is_fetched_whole_although_a_leader_stops(cluster: RunningCluster) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    with connected(cluster) as client:
        produce(client, ProduceLoad("t", RECORDS, [b"x" * 100], batch_bytes=1000), lambda *_: None)
        stopped = 0

        def on_fetch(records: int, size: int) -> None:
            nonlocal stopped
            stopped = stopped or stopped_leader(cluster)

        load = FetchLoad(["t"], RECORDS, partition_bytes=2000, idle_ms=2000)
        assert fetch(client, load, on_fetch) >= RECORDS
    assert stopped


def test_tools_ask_live_brokers_while_metadata_lists_one_that_has_stopped(
    cluster: RunningCluster,
) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    stopped = stopped_leader(cluster)
    left = sorted({1, 2, 3} - {stopped})
    cluster.until(
        lambda: all(stopped not in s.metadata_log.image.brokers for s in cluster.servers.values()),
        "the others know that it is gone",
    )
    with connected(cluster) as client:
        assert client.live() == left and sorted(client.brokers) == [1, 2, 3]
        assert live_brokers(client.any()) == set(left)
        found = partitions.replicas(client, [("t", index) for index in range(3)])
        assert {one.broker for one in found} == set(left)
        assert partitions.reassignments(client) == {}
