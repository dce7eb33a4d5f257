"""Requests that only the controller can decide, while no controller answers: each item of such a
request fails."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.peers import envelopes
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refused
from ottla.tools.admin import topics
from ottla.wire.apis import FORWARDED, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    EnvelopeResponse,
    IncrementalAlterConfigsRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from ottla.wire.structs import Struct
from tests.broker.cluster.running_cluster import RunningCluster, clustered, create

TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)
QUOTA, ELECTION = AlterClientQuotasRequest.Entry, ElectLeadersRequest.TopicPartition
SCRAM, MOVED = AlterUserScramCredentialsRequest, AlterPartitionReassignmentsRequest.Topic
REQUESTS: list[tuple[Any, int, int]] = [
    (CreateTopicsRequest(topics=[
        CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
        for name in ("new", "there", "a/b")
    ], timeout_ms=100), 7, 3),
    (DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.Topic(name=name) for name in ("there", "none")],
        timeout_ms=100,
    ), 6, 2),
    (CreatePartitionsRequest(topics=[
        CreatePartitionsRequest.Topic(name="there", count=9, assignments=None)
    ], timeout_ms=100), 3, 1),
    (AlterConfigsRequest(resources=[
        AlterConfigsRequest.Resource(resource_type=2, resource_name="there", configs=[])
    ]), 2, 1),
    (IncrementalAlterConfigsRequest(resources=[
        IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=[
            IncrementalAlterConfigsRequest.Resource.Config(
                name="segment.bytes", config_operation=1, value=None
            )
        ]) for kind, name in ((2, "there"), (4, ""))
    ]), 1, 2),
    (AlterClientQuotasRequest(entries=[
        QUOTA(entity=[QUOTA.Entity(entity_type="user", entity_name="u")], ops=[
            QUOTA.Op(key="producer_byte_rate", value=1.0)
        ])
    ]), 1, 1),
    (SCRAM(deletions=[SCRAM.Deletion(name="u", mechanism=1)], upsertions=[]), 0, 1),
    (ElectLeadersRequest(topic_partitions=[ELECTION(topic="there", partitions=[0, 1])]), 0, 2),
    (ElectLeadersRequest(
        election_type=1, topic_partitions=[ELECTION(topic="there", partitions=[0, 1])]
    ), 2, 3),
    (AlterPartitionReassignmentsRequest(topics=[MOVED(name="there", partitions=[
        MOVED.Partition(partition_index=0, replicas=[1])
    ])]), 1, 1),
    (UpdateFeaturesRequest(feature_updates=[]), 1, 1),
    (UnregisterBrokerRequest(broker_id=9), 0, 1),
]
"""Each request with its version, and with the number of error codes in its answer."""
OF_ACLS: list[tuple[Any, int, int]] = [
    (CreateAclsRequest(creations=[CreateAclsRequest.Creation(
        resource_type=2, resource_name="t", principal="User:u", host="*", operation=3,
        permission_type=3,
    )]), 3, 1),
    (DeleteAclsRequest(filters=[
        DeleteAclsRequest.Filter(resource_type_filter=2, operation=1, permission_type=1)
    ]), 3, 1),
]


def codes(struct: Any) -> Iterator[tuple[int, str | None]]:
    """Every error code of an answer, each with its message."""
    if hasattr(struct, "error_code"):
        yield struct.error_code, getattr(struct, "error_message", None)
    for name in type(struct).__slots__:
        value = getattr(struct, name)
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Struct):
                yield from codes(each)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    """A cluster in which broker 1 is not the controller, and knows of no controller."""
    settings = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    with RunningCluster(tmp_path, 2, **settings) as running:
        create(running, 1, "there", 2, 2)
        if running.controller == 1:
            running.expire(1)
            running.until(
                lambda: running.servers[2].metadata_log.is_controller
                and 1 in running.servers[1].metadata_log.image.brokers,
                "broker 2 is the controller",
            )
        log = running.servers[2].metadata_log
        running.until(
            lambda: all(len(state.isr) == 2 for state in log.image.topics["there"].partitions),
            "nothing is left to decide",
        )
        forwarding = clustered(running.servers[1]).forwarding
        assert forwarding is not None
        with monkeypatch.context() as patch:
            patch.setattr(forwarding, "controller_id", lambda: -1)
            patch.setattr(envelopes, "REQUEST_SECONDS", 0.1)
            yield running


def changeable(running: RunningCluster) -> tuple[object, ...]:
    """What the requests would change if they reached the controller."""
    image = running.servers[2].metadata_log.image
    replicas = {
        name: [tuple(state.replicas) for state in topic.partitions]
        for name, topic in image.topics.items()
    }
    return (replicas, sorted(image.brokers), image.configs, image.features, image.credentials,
            image.quotas, image.rules, image.tokens)


def test_every_item_of_a_request_without_a_controller_times_out(
    asked: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert {request.API_KEY for request, _, _ in REQUESTS + OF_ACLS} == FORWARDED
    before = changeable(asked)
    with asked.client(1) as client, caplog.at_level(logging.WARNING):
        for request, version, count in REQUESTS + OF_ACLS:
            answer = client.call(request, version)
            told = list(codes(answer))
            if request.API_KEY == ApiKey.ELECT_LEADERS and version == 0:
                told.pop(0)                 # only later versions have one for the whole request
            assert [code for code, _ in told] == [TIMED_OUT] * count, answer
            texts = [text for _, text in told if text is not None]
            assert texts and all(
                text.startswith("no controller answered ")
                and text.endswith(" in time: this broker knows of no controller; ask again")
                for text in texts
            ), answer
    assert changeable(asked) == before
    assert {record.name for record in caplog.records} == {"ottla.audit"}


@pytest.mark.parametrize(("controller", "said"), [
    (2, "broker 2 was the controller"), (1, "this broker (node.id 1) was the controller"),
])
def test_the_answer_names_the_last_controller_and_whether_zookeeper_is_reached(
    asked: RunningCluster, monkeypatch: pytest.MonkeyPatch, controller: int, said: str
) -> None:
    forwarding = clustered(asked.servers[1]).forwarding

    async def silent(*_: Any) -> None:
        pass

    async def connected(here: bool) -> None:
        session = asked.sessions[1]
        session.join() if here else session.cut()

    end = ". The change may still happen: check before you retry"
    with asked.client(1) as client, monkeypatch.context() as patch:
        patch.setattr(forwarding, "controller_id", lambda: controller)
        patch.setattr(forwarding, "_attempt", silent)
        for more in ("", "; this broker does not reach ZooKeeper"):
            asked.run(connected(not more))
            answer = client.call(*REQUESTS[0][:2])
            asked.run(connected(True))
            told = f"no controller answered CreateTopics in time: {said}{more}"
            assert set(codes(answer)) == {(TIMED_OUT, told + end)}
        answer = client.call(CreateTopicsRequest(
            topics=REQUESTS[0][0].topics, timeout_ms=100, validate_only=True), 7)
        assert {text for _, text in codes(answer)} == {
            f"no controller answered CreateTopics in time: {said}; ask again"}


def test_a_broker_that_forwards_answers_before_the_client_gives_up(
    asked: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has spent half of its time waiting for the controller, which hangs."""
    forwarding = clustered(asked.servers[1]).forwarding

    async def silent(*_: Any) -> None:
        pass

    with (
        socket.create_server(("127.0.0.1", 0)) as hangs,
        ClusterClient(
            f"127.0.0.1:{asked.ports[1]}", connect_seconds=2.0, request_seconds=2.0) as cluster,
        monkeypatch.context() as patch,
    ):
        cluster.refresh()
        cluster.controller_id, cluster.brokers[2] = 2, hangs.getsockname()
        patch.setattr(forwarding, "controller_id", lambda: 2)
        patch.setattr(forwarding, "_attempt", silent)
        patch.setattr(envelopes, "PATIENCE_SECONDS_MIN", 0.0)
        patch.setattr(envelopes, "REQUEST_SECONDS", 30.0)
        with pytest.raises(Refused, match="in time: broker 2 was the controller"):
            topics.create(cluster, "new")


def test_a_request_that_the_controller_refuses_whole_is_answered_by_item(
    asked: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwarding = clustered(asked.servers[1]).forwarding
    assert forwarding is not None

    async def refused(*_: Any) -> Any:
        return EnvelopeResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    monkeypatch.setattr(forwarding, "_attempt", refused)
    with asked.client(1) as client:
        answer = client.call(*REQUESTS[0][:2])
    assert [code for code, _ in codes(answer)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
