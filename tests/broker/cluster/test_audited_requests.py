"""The audit log has the changes that people request. Requests between brokers are in it only if
they are refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import ClusterClient
from ottla.tools.stream.load import ProduceLoad, produce
from ottla.wire.messages import WriteTxnMarkersRequest
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        yield running


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "ottla.audit"]


def markers(cluster: RunningCluster, node_id: int, client_id: str, topic: str) -> None:
    """Send a marker that aborts the hanging transaction of a producer."""
    marker = WriteTxnMarkersRequest.Marker
    request = WriteTxnMarkersRequest(markers=[marker(
        producer_id=77, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
        topics=[marker.Topic(name=topic, partition_indexes=[0])],
    )])
    with ClusterClient(f"127.0.0.1:{cluster.ports[node_id]}", client_id=client_id) as client:
        client.any().call(request, 1)


def test_markers_of_transactions_are_not_audited_and_an_operators_are(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    assert create(cluster, 1, "t", 6, 3) == 0
    load = ProduceLoad(
        "t", 60, [b"x"], batch_bytes=100, transactional_id="id", transaction_ms=0
    )
    with ClusterClient(f"127.0.0.1:{cluster.ports[1]}") as client:
        produce(client, load, lambda *_: None)
    assert not [line for line in audited(caplog) if "WriteTxnMarkers" in line]
    assert [line for line in audited(caplog) if "CreateTopics t " in line]
    leader = leaders(cluster.servers[1], "t")[0]
    markers(cluster, leader, "adminclient-1", "t")
    (line,) = [line for line in audited(caplog) if "WriteTxnMarkers" in line]
    assert "client 'adminclient-1'" in line and line.endswith(": done")


def test_a_refused_request_of_a_broker_is_audited(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert create(cluster, 1, "t", 1, 3) == 0
    (leader,) = leaders(cluster.servers[1], "t")
    other = leader % 3 + 1
    caplog.set_level(logging.INFO, "ottla.audit")
    markers(cluster, leader, f"broker-{other}", "t")
    assert audited(caplog) == []
    markers(cluster, other, f"broker-{leader}", "t")
    (line,) = audited(caplog)
    assert f"client 'broker-{leader}'" in line and "refused, NOT_LEADER_OR_FOLLOWER" in line
