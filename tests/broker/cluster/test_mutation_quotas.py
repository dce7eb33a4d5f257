"""The controller counts what clients of all brokers create and delete (KIP-599)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    CreateTopicsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster
from tests.broker.running import CLIENT_ID, WireClient

AUTOMATIC = MetadataRequest.Topic(name="automatic")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 2) as running:
        made = AlterClientQuotasRequest.Entry
        entity = made.Entity(entity_type="client-id", entity_name=CLIENT_ID)
        limit = made(entity=[entity], ops=[made.Op(key="controller_mutation_rate", value=1.0)])
        with running.client(running.controller) as client:
            answer = client.call(AlterClientQuotasRequest(entries=[limit]), 1)
            assert answer.entries[0].error_code == 0
        yield running


def create(client: WireClient, name: str, partitions: int, version: int) -> Any:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    return client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)


def muted(cluster: RunningCluster, node_id: int) -> int:
    """How many connections of a broker are throttled, so that it does not read from them."""

    async def held() -> int:
        return sum(each.held() for each in cluster.servers[node_id].listeners[0].connections)

    found: int = cluster.run(held())
    return found


@pytest.mark.parametrize("forwarded", [False, True])
def test_a_client_that_owes_mutations_is_told_and_held_by_any_broker(
    cluster: RunningCluster, forwarded: bool
) -> None:
    node_id = cluster.controller if not forwarded else 3 - cluster.controller
    with cluster.client(node_id) as client:
        made = create(client, "a", 20, 7)
        assert (made.topics[0].error_code, made.throttle_time_ms) == (0, 0)
        refused = create(client, "b", 1, 7)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 5_000 < refused.throttle_time_ms <= 9_000
        assert muted(cluster, node_id) == 1
    with cluster.client(node_id) as client:
        made = create(client, "c", 1, 5)
        assert made.topics[0].error_code == 0, "its version does not know that error"
        assert 5_000 < made.throttle_time_ms <= 10_000


@pytest.mark.parametrize("forwarded", [False, True])
def test_topics_that_are_created_at_their_first_use_count_for_the_client_that_uses_them(
    cluster: RunningCluster, forwarded: bool
) -> None:
    node_id = cluster.controller if not forwarded else 3 - cluster.controller
    image = cluster.servers[node_id].metadata_log
    with cluster.client(node_id) as client:
        assert create(client, "a", 20, 7).topics[0].error_code == 0
        (refused,) = client.call(MetadataRequest(topics=[AUTOMATIC]), 12).topics
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "automatic" not in image.image.topics
        assert client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        assert "__consumer_offsets" in image.image.topics, "which is nobody's"
        cluster.leap(20)
        client.call(MetadataRequest(topics=[AUTOMATIC]), 12)
        (made,) = client.call(MetadataRequest(topics=[AUTOMATIC]), 12).topics
        assert made.error_code == 0
