"""Metadata lists a broker for a while after it has stopped or died. Clients on librdkafka that wait
for a coordinator would hang if the broker vanished at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.cluster.departed import DepartedBrokers
from ottla.replication.metadata import BrokerGone, BrokerImage, BrokerRegistered, MetadataImage
from ottla.wire.messages import (
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
    UnregisterBrokerRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.fakes import FakeClock

LISTED_SECONDS = 1000
MARGIN_SECONDS = 300
"""How long before the limit the first leap of the clock ends. The clock also runs between leaps. A
test takes less time than this, so the limit is not reached before the second leap."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    override = {"ottla.unavailable.broker.listed.ms": LISTED_SECONDS * 1000}
    with RunningCluster(tmp_path, **override) as running:
        yield running


def metadata(cluster: RunningCluster, node_id: int) -> MetadataResponse:
    with cluster.client(node_id) as client:
        return client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]), 12)


def listed(cluster: RunningCluster, node_id: int) -> list[tuple[int, int]]:
    return [(broker.node_id, broker.port) for broker in metadata(cluster, node_id).brokers]


def stop(cluster: RunningCluster, node_id: int) -> None:
    cluster.stop(node_id)
    cluster.until(
        lambda: all(node_id not in s.metadata_log.image.brokers for s in cluster.servers.values()),
        "the others know that it is gone",
    )


def test_a_departed_broker_is_listed_for_a_while_and_leads_nothing(cluster: RunningCluster) -> None:
    assert create(cluster, 1, "t", 6, 3) == 0
    everybody = sorted(cluster.ports.items())
    stop(cluster, 3)
    for node_id in (1, 2):
        assert listed(cluster, node_id) == everybody
        answer = metadata(cluster, node_id)
        assert answer.controller_id in (1, 2)
        for part in answer.topics[0].partitions:
            assert part.error_code == 0 and part.leader_id in (1, 2)
            assert list(part.offline_replicas) == [3] and 3 not in part.isr_nodes
        with cluster.client(node_id) as client:
            live = client.call(DescribeClusterRequest(), 2).brokers
            assert [broker.broker_id for broker in live] == [1, 2]
            keys = [f"group {number}" for number in range(20)]
            found = client.call(FindCoordinatorRequest(coordinator_keys=keys), 4).coordinators
            assert all(each.node_id != 3 for each in found)
    cluster.leap(LISTED_SECONDS - MARGIN_SECONDS)
    assert listed(cluster, 1) == everybody
    cluster.leap(MARGIN_SECONDS + 1)
    assert listed(cluster, 1) == listed(cluster, 2) == everybody[:2]


def test_a_broker_that_restarts_never_leaves_the_list(cluster: RunningCluster) -> None:
    assert create(cluster, 1, "t", 6, 3) == 0
    everybody = sorted(cluster.ports.items())
    for node_id in (1, 2, 3):
        stop(cluster, node_id)
        for other in {1, 2, 3} - {node_id}:
            assert listed(cluster, other) == everybody
        cluster.leap(LISTED_SECONDS - MARGIN_SECONDS)
        cluster.start(node_id)
        cluster.leap(MARGIN_SECONDS + 1)
        for other in {1, 2, 3} - {node_id}:
            assert listed(cluster, other) == everybody


def test_an_unregistered_broker_is_not_listed(cluster: RunningCluster) -> None:
    stop(cluster, 3)
    with cluster.client(1) as client:
        assert client.call(UnregisterBrokerRequest(broker_id=3), 0).error_code == 0
    for node_id in (1, 2):
        cluster.until(
            lambda node_id=node_id: [
                b.endpoints for b in cluster.servers[node_id].metadata_log.image.former.values()
            ] == [()],
            "both know",
        )
        assert [node for node, _ in listed(cluster, node_id)] == [1, 2]


def test_the_answer_stays_the_same_object_until_a_broker_departs_returns_or_is_away_for_long(
) -> None:
    clock = FakeClock()
    departed = DepartedBrokers(clock, 1000)
    image = MetadataImage.empty()

    def apply(*records: object) -> None:
        nonlocal image
        old, image = image, image.apply(records)        # type: ignore[arg-type]
        departed.follow(old, image)

    one, two = (BrokerImage(node, node, (), None, f"process {node}") for node in (1, 2))
    apply(BrokerRegistered(one), BrokerRegistered(two))
    nobody = departed.listed(image)
    assert nobody == {} and departed.listed(image) is nobody
    apply(BrokerGone(1))
    found = departed.listed(image)
    clock.advance(500)
    assert found == {1: one} and departed.listed(image) is found
    apply(BrokerGone(2))
    clock.advance(499)
    assert departed.listed(image) == {1: one, 2: two}
    clock.advance(1)
    assert departed.listed(image) == {2: two}
    apply(BrokerRegistered(two))
    assert departed.listed(image) == {}


def test_without_a_time_departed_brokers_are_not_listed() -> None:
    departed = DepartedBrokers(FakeClock(), 0)
    old = MetadataImage.empty().apply([BrokerRegistered(BrokerImage(1, 1, (), None, "process"))])
    new = old.apply([BrokerGone(1)])
    departed.follow(old, new)
    assert departed.listed(new) == {}
