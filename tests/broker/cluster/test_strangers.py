"""Clients that pretend to be replicas or brokers are refused, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.errors import Unreachable
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    FetchRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster
from tests.broker.running import WireClient
from tests.broker.security.logging_in import log_in

INSIDE = "listener.name.inside."
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    INSIDE + "sasl.enabled.mechanisms": "PLAIN",
    INSIDE + "plain.sasl.jaas.config":
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="broker" password="b-secret" user_broker="b-secret" user_eve="e-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path_factory.mktemp("strangers"), **SETTINGS) as running:
        with inside(running, 1, "broker") as client:
            topic = CreateTopicsRequest.Topic(
                name="t", num_partitions=1, replication_factor=3, assignments=[], configs=[]
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            assert client.call(request, 5).topics[0].error_code == 0
        yield running


def inside(cluster: RunningCluster, node_id: int, user: str) -> WireClient:
    client = WireClient(("127.0.0.1", cluster.servers[node_id].listeners[1].port))
    assert log_in(client, "PLAIN", user, f"{user[0]}-secret").error_code == 0
    return client


def test_a_replica_fetch_without_the_right_is_refused_and_moves_nothing(
    cluster: RunningCluster,
) -> None:
    image = cluster.servers[1].metadata_log.image
    (state,) = image.topics["t"].partitions
    partition = cluster.servers[state.leader].replicas.partition("t", 0)
    assert partition is not None
    pretended = state.replicas[1]
    made = FetchRequest.Topic
    item = made(topic_id=image.topics["t"].topic_id, partitions=[
        made.Partition(
            partition=0, fetch_offset=0, current_leader_epoch=-1, last_fetched_epoch=-1,
            partition_max_bytes=1 << 20,
        )
    ])
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[item],
        replica_state=FetchRequest.ReplicaState(
            replica_id=pretended, replica_epoch=image.brokers[pretended].epoch
        ),
    )
    cluster.until(
        lambda: all(epoch >= 0 for _, epoch, *_ in partition.follower_states()),
        "the true replicas have fetched",
    )
    before = partition.follower_states()
    with inside(cluster, state.leader, "eve") as client:
        answer = client.call(request, 17)
    (part,) = answer.responses[0].partitions
    assert part.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not part.records
    assert partition.follower_states() == before


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (AlterPartitionRequest(broker_id=1, broker_epoch=1), 3),
        (AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1), 0),
        (BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, want_shut_down=True), 0),
    ],
)
def test_what_brokers_ask_of_the_controller_nobody_else_may(
    cluster: RunningCluster, request_: AlterPartitionRequest, version: int
) -> None:
    image = cluster.servers[1].metadata_log.image
    controller = cluster.controller
    with inside(cluster, controller, "eve") as client:
        code = client.call(request_, version).error_code
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with inside(cluster, controller, "broker") as client:
        # With the right, but under an epoch that nobody has.
        assert client.call(request_, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    with cluster.client(controller) as client, pytest.raises((Unreachable, ConnectionError)):
        client.call(request_, version)              # not served to clients' listeners at all
    assert cluster.servers[1].metadata_log.image is image
