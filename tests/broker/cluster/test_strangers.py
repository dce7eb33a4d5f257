"""Clients that pretend to be replicas or brokers are refused, and change nothing. So are requests
of real brokers with wrong epochs or impossible values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.peers.envelopes import encode_principal
from ottla.client.errors import Unreachable
from ottla.replication.metadata import PartitionState
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    EnvelopeRequest,
    FetchRequest,
    OffsetForLeaderEpochRequest,
    WriteTxnMarkersRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders
from tests.broker.produce_fetch import batch, produce
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
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0),
        (AllocateProducerIdsRequest(broker_id=-1, broker_epoch=-1), 0),
        (AlterPartitionRequest(broker_id=1, broker_epoch=1 << 62), 3),
        (AssignReplicasToDirsRequest(broker_id=2**31 - 1, broker_epoch=0), 0),
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
        # This client has the right, but no broker has the request's epoch.
        assert client.call(request_, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    with cluster.client(controller) as client, pytest.raises((Unreachable, ConnectionError)):
        client.call(request_, version)              # not served to clients' listeners at all
    assert cluster.servers[1].metadata_log.image is image


class Facts:
    """What a stranger might want to change."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.image = cluster.servers[1].metadata_log.image
        self.topic = self.image.topics["t"]
        (self.state,) = self.topic.partitions
        self.leader = self.state.leader
        partition = cluster.servers[self.leader].replicas.partition("t", 0)
        assert partition is not None
        self.partition = partition
        self.followers = partition.follower_states()
        self.ends = partition.log.log_end_offset, partition.high_watermark


def settled(cluster: RunningCluster) -> Facts:
    """The facts, once all three replicas have fetched."""
    cluster.until(
        lambda: all(e >= 0 for _, e, *_ in Facts(cluster).followers), "the true replicas fetched"
    )
    return Facts(cluster)


def nothing_changed(cluster: RunningCluster, before: Facts) -> None:
    after = Facts(cluster)
    assert after.image == before.image
    assert (after.followers, after.ends) == (before.followers, before.ends)


BIG = 2**31 - 1
HUGE = 2**63 - 1
ISR = AlterPartitionRequest.Topic.Partition.NewIsrWithEpoch


@pytest.mark.parametrize(("wrong", "code"), [
    ({"leader_epoch": BIG}, ErrorCode.NOT_CONTROLLER),
    ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
    ({"partition_epoch": BIG}, ErrorCode.NOT_CONTROLLER),
    ({"partition_epoch": -5}, ErrorCode.INVALID_UPDATE_VERSION),
    ({"partition_index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"partition_index": BIG}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"new_isr_with_epochs": []}, ErrorCode.INVALID_REQUEST),
    ({"new_isr_with_epochs": [ISR(broker_id=-1)]}, ErrorCode.INVALID_REQUEST),
    ({"new_isr_with_epochs": [ISR(broker_id=BIG, broker_epoch=HUGE)]}, ErrorCode.INVALID_REQUEST),
    ({"new_isr_with_epochs": "others"}, ErrorCode.INVALID_REQUEST),
    ({"new_isr_with_epochs": "twice"}, ErrorCode.INVALID_REQUEST),
], ids=str)
def test_a_proposal_that_makes_no_sense_changes_no_in_sync_set(
    cluster: RunningCluster, wrong: dict[str, object], code: ErrorCode
) -> None:
    before = settled(cluster)
    leader, state = before.leader, before.state
    others = [ISR(broker_id=node) for node in state.replicas if node != leader]
    lists = {"others": others, "twice": [ISR(broker_id=leader)] * 2}
    made = AlterPartitionRequest.Topic
    proposal = made.Partition(
        partition_index=0, leader_epoch=before.image.leader_epoch(before.topic, state),
        partition_epoch=state.partition_epoch, new_isr_with_epochs=[ISR(broker_id=leader)],
    )
    for name, value in wrong.items():
        setattr(proposal, name, lists.get(str(value), value))
    request = AlterPartitionRequest(
        broker_id=leader, broker_epoch=before.image.brokers[leader].epoch,
        topics=[made(topic_id=before.topic.topic_id, partitions=[proposal])],
    )
    with inside(cluster, cluster.controller, "broker") as client:
        answer = client.call(request, 3)
    assert answer.error_code == 0
    assert answer.topics[0].partitions[0].error_code == code
    nothing_changed(cluster, before)


@pytest.mark.parametrize("epoch", [-1, 0, HUGE, "one more"], ids=str)
@pytest.mark.parametrize("offset", [0, HUGE], ids=["the beginning", "a huge offset"])
def test_a_replica_fetch_with_another_broker_epoch_counts_for_nobody(
    cluster: RunningCluster, epoch: int | str, offset: int
) -> None:
    before = settled(cluster)
    replica = next(node for node in before.state.replicas if node != before.leader)
    known = before.image.brokers[replica].epoch
    wanted = known + 1 if isinstance(epoch, str) else epoch
    with inside(cluster, before.leader, "broker") as client:
        client.call(replica_fetch(before, replica, wanted, fetch_offset=offset), 17)
    nothing_changed(cluster, before)


@pytest.mark.parametrize("wrong", [
    {"current_leader_epoch": BIG}, {"fetch_offset": -1}, {"fetch_offset": -HUGE},
    {"last_fetched_epoch": BIG}, {"partition": BIG}, {"partition": -1},
    {"fetch_offset": HUGE, "last_fetched_epoch": 0},
    {"fetch_offset": HUGE, "log_start_offset": HUGE, "high_watermark": HUGE},
], ids=str)
@pytest.mark.parametrize("of", ["a replica", "nobody"])
def test_a_replica_fetch_that_makes_no_sense_is_refused_or_answered_with_the_truth(
    cluster: RunningCluster, of: str, wrong: dict[str, int]
) -> None:
    before = settled(cluster)
    replica = next(node for node in before.state.replicas if node != before.leader)
    epoch = before.image.brokers[replica].epoch
    if of == "nobody":
        replica, epoch = BIG, HUGE
    with inside(cluster, before.leader, "broker") as client:
        answer = client.call(replica_fetch(before, replica, epoch, **wrong), 17)
    (part,) = answer.responses[0].partitions
    refused = part.error_code != 0 or part.diverging_epoch.end_offset == before.ends[0]
    assert refused and not part.records, part
    after = Facts(cluster)
    assert after.image == before.image and after.ends == before.ends
    ends = [(node, rest[-1]) for node, *rest in after.followers]
    assert len(ends) == 2, ends


def replica_fetch(before: Facts, replica: int, epoch: int, **wrong: int) -> FetchRequest:
    made = FetchRequest.Topic
    part = made.Partition(
        partition=0, fetch_offset=0, current_leader_epoch=-1, last_fetched_epoch=-1,
        log_start_offset=0, partition_max_bytes=1 << 20,
    )
    for name, value in wrong.items():
        setattr(part, name, value)
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
        topics=[made(topic_id=before.topic.topic_id, partitions=[part])],
        replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch),
    )


def marker(**wrong: object) -> WriteTxnMarkersRequest:
    made = WriteTxnMarkersRequest.Marker
    values: dict[str, object] = {
        "producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0, "transaction_result": True,
        "topics": [made.Topic(name="t", partition_indexes=[0])], **wrong,
    }
    return WriteTxnMarkersRequest(markers=[made(**values)])   # type: ignore[arg-type]


def test_a_marker_from_a_client_without_the_right_is_not_written(cluster: RunningCluster) -> None:
    before = settled(cluster)
    with inside(cluster, before.leader, "eve") as client:
        answer = client.call(marker(), 1)
    (part,) = answer.markers[0].topics[0].partitions
    assert part.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    nothing_changed(cluster, before)


@pytest.mark.parametrize("wrong", [
    {"producer_id": -1},
    {"topics": [WriteTxnMarkersRequest.Marker.Topic(name="t", partition_indexes=[-1, BIG])]},
    {"topics": [WriteTxnMarkersRequest.Marker.Topic(name="", partition_indexes=[0])]},
], ids=str)
def test_a_marker_that_makes_no_sense_is_not_written(
    cluster: RunningCluster, wrong: dict[str, object]
) -> None:
    before = settled(cluster)
    with inside(cluster, before.leader, "broker") as client:
        answer = client.call(marker(**wrong), 1)
    codes = [part.error_code for part in answer.markers[0].topics[0].partitions]
    assert codes and all(codes), codes
    nothing_changed(cluster, before)


@pytest.mark.parametrize("wrong", [
    {"producer_id": -HUGE}, {"producer_id": HUGE}, {"producer_epoch": -1},
    {"coordinator_epoch": -BIG}, {"coordinator_epoch": BIG},
], ids=str)
def test_a_marker_of_a_producer_that_nobody_knows_is_a_record_that_harms_nobody(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    """As in Apache Kafka, the marker is written if the client has the right."""
    with RunningCluster(tmp_path, 2) as cluster:
        assert create(cluster, 1, "t", 1, 2) == 0
        (leader,) = leaders(cluster.servers[1], "t")
        with cluster.client(leader) as client:
            assert produce(client, "t", batch(b"before")).error_code == 0
            (part,) = client.call(marker(**wrong), 1).markers[0].topics[0].partitions
            assert part.error_code == 0
            assert produce(client, "t", batch(b"after")).error_code == 0
        for node in (1, 2):
            cluster.stop(node)
            cluster.start(node)
        cluster.until(
            lambda: [len(state.isr) for state in partitions(cluster)] == [2], "both are in sync"
        )
        (leader,) = leaders(cluster.servers[1], "t")
        with cluster.client(leader) as client:
            assert produce(client, "t", batch(b"again")).error_code == 0
        logs = [server.replicas.partition("t", 0).log for server in cluster.servers.values()]
        assert {log.log_end_offset for log in logs} == {4}


def partitions(cluster: RunningCluster) -> tuple[PartitionState, ...]:
    return cluster.servers[1].metadata_log.image.topics["t"].partitions


def test_the_end_of_an_epoch_that_has_not_begun_is_not_invented(cluster: RunningCluster) -> None:
    before = settled(cluster)
    made = OffsetForLeaderEpochRequest.Topic
    for epoch, current in ((BIG, -1), (-1, -1), (0, BIG), (BIG, BIG)):
        request = OffsetForLeaderEpochRequest(replica_id=BIG, topics=[made(topic="t", partitions=[
            made.Partition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        ])])
        with inside(cluster, before.leader, "broker") as client:
            part = client.call(request, 4).topics[0].partitions[0]
        wanted = 0 if current < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (part.error_code, part.end_offset) == (wanted, -1), epoch
    nothing_changed(cluster, before)


def enclosed(data: bytes | None = None, version: int = 5, **other: bytes) -> EnvelopeRequest:
    """An envelope with `data`, or else with a CreateTopics; `other` replaces the envelope's fields.
    """
    made = CreateTopicsRequest.Topic
    body = CreateTopicsRequest(timeout_ms=1000, topics=[
        made(name="evil", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    ]).encode(5)
    whole = RequestHeader(CreateTopicsRequest.API_KEY, version, 0, "x").encode() + body
    envelope = EnvelopeRequest(
        request_data=whole if data is None else data,
        request_principal=encode_principal("User:broker"), client_host_address=bytes(4),
    )
    for name, value in other.items():
        setattr(envelope, name, value)
    return envelope


def test_an_envelope_of_a_client_without_the_right_is_not_opened(cluster: RunningCluster) -> None:
    before = settled(cluster)
    with inside(cluster, cluster.controller, "eve") as client:
        answer = client.call(enclosed(), 0)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with cluster.client(cluster.controller) as client:
        with pytest.raises((Unreachable, ConnectionError)):
            client.call(enclosed(), 0)
    nothing_changed(cluster, before)


WITHIN = RequestHeader(EnvelopeRequest.API_KEY, 0, 0, "x").encode()


@pytest.mark.parametrize("envelope", [
    enclosed(b""), enclosed(b"\xff" * 50), enclosed(version=99), enclosed(version=-1),
    enclosed(enclosed().request_data[:-3]), enclosed(WITHIN + enclosed().encode(0)),
    enclosed(request_principal=b""), enclosed(request_principal=b"\x7f\xff" * 9),
    enclosed(client_host_address=b""), enclosed(client_host_address=bytes(7)),
], ids=[
    "empty", "garbage", "a version of the future", "a negative version", "truncated",
    "an envelope", "no principal", "a principal of the future", "no address", "7 bytes of address",
])
def test_an_envelope_with_garbage_is_refused_and_nothing_is_decided(
    cluster: RunningCluster, envelope: EnvelopeRequest
) -> None:
    before = settled(cluster)
    with inside(cluster, cluster.controller, "broker") as client:
        answer = client.call(envelope, 0)
    assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)
    nothing_changed(cluster, before)
