"""Administrative requests to a standalone broker, over the wire.

The expected answers were recorded from Apache Kafka 4.3.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ExpireDelegationTokenRequest,
    ListPartitionReassignmentsRequest,
    RemoveRaftVoterRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tests.broker.running import NODE_ID, RunningBroker, WireClient

PREFERRED, UNCLEAN = 0, 1
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DIRECTORY = bytes(range(16))


@pytest.mark.parametrize("version", range(3))
def test_a_leader_that_is_preferred_needs_no_election(
    client: WireClient, topic: str, version: int
) -> None:
    wanted = ElectLeadersRequest.TopicPartition(topic=topic, partitions=[0, 1, 7])
    answer = client.call(ElectLeadersRequest(topic_partitions=[wanted]), version)
    [result] = answer.replica_election_results
    assert result.topic == topic
    assert [(p.partition_id, p.error_code) for p in result.partition_result] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED), (1, ErrorCode.ELECTION_NOT_NEEDED), (7, UNKNOWN)
    ]
    everything = client.call(ElectLeadersRequest(topic_partitions=None), version)
    assert everything.error_code == 0
    told = {each.topic: each.partition_result for each in everything.replica_election_results}
    assert told[topic] == [] and not any(told.values()), "nobody had to be elected"


def test_an_election_of_an_unknown_type_is_refused(client: WireClient, topic: str) -> None:
    wanted = ElectLeadersRequest.TopicPartition(topic=topic, partitions=[0])
    asked = ElectLeadersRequest(election_type=5, topic_partitions=[wanted])
    answer = client.call(asked, 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    [partition] = answer.replica_election_results[0].partition_result
    assert partition.error_code == ErrorCode.INVALID_REQUEST


def reassign(client: WireClient, topic: str, replicas: list[int] | None, version: int) -> int:
    made = AlterPartitionReassignmentsRequest
    partition = made.Topic.Partition(partition_index=0, replicas=replicas)
    request = made(topics=[made.Topic(name=topic, partitions=[partition])])
    answer = client.call(request, version)
    assert answer.error_code == 0
    [response] = answer.responses
    assert response.name == topic
    code: int = response.partitions[0].error_code
    return code


@pytest.mark.parametrize("version", range(2))
def test_a_partition_can_be_reassigned_to_the_broker_that_has_it(
    client: WireClient, topic: str, version: int
) -> None:
    assert reassign(client, topic, [NODE_ID], version) == 0
    for bad in ([], [77], [NODE_ID, NODE_ID], [-1], [NODE_ID, 77]):
        assert reassign(client, topic, bad, version) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(client, topic, None, version) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(client, "no-such-topic", [NODE_ID], version) == UNKNOWN
    going_on = client.call(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (going_on.error_code, going_on.topics) == (0, [])


def quorum(client: WireClient, topic: str, index: int, version: int) -> Any:
    made = DescribeQuorumRequest.Topic
    partition = made.Partition(partition_index=index)
    asked = DescribeQuorumRequest(topics=[made(topic_name=topic, partitions=[partition])])
    answer = client.call(asked, version)
    return answer, answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(3))
def test_the_metadata_log_has_one_voter_which_leads(client: WireClient, version: int) -> None:
    answer, log = quorum(client, "__cluster_metadata", 0, version)
    assert (log.error_code, log.leader_id, log.observers) == (0, NODE_ID, [])
    [voter] = log.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, log.high_watermark)
    if version >= 2:
        assert any(voter.replica_directory_id)
        assert [node.node_id for node in answer.nodes] == [NODE_ID]
        assert answer.nodes[0].listeners[0].name == "PLAINTEXT"
    for other in (("t", 0), ("__cluster_metadata", 1)):
        assert quorum(client, *other, version)[1].error_code == UNKNOWN


def test_the_metadata_log_grows_with_each_decision(client: WireClient) -> None:
    before = quorum(client, "__cluster_metadata", 0, 2)[1].high_watermark
    update(client, ("transaction.version", 1, DOWN))
    update(client, ("transaction.version", 2, UP))
    after = quorum(client, "__cluster_metadata", 0, 2)[1].high_watermark
    assert after == before + 2 == versions(client).finalized_features_epoch


def test_voters_cannot_be_changed(broker: RunningBroker, client: WireClient) -> None:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="h", port=1)
    fields = {"voter_id": 9, "voter_directory_id": DIRECTORY}
    settled, unknown = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.VOTER_NOT_FOUND
    for cluster_id, code, code_of_removal in (
        (None, settled, unknown),
        (broker.server.storage.cluster_id, settled, unknown),
        ("another", ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ):
        adding = AddRaftVoterRequest(cluster_id=cluster_id, listeners=[listener], **fields)
        assert client.call(adding, 1).error_code == code
        removing = RemoveRaftVoterRequest(cluster_id=cluster_id, **fields)
        assert client.call(removing, 0).error_code == code_of_removal
    nobody = AddRaftVoterRequest(cluster_id=None, voter_id=-1, listeners=[listener])
    assert client.call(nobody, 1).error_code == ErrorCode.INVALID_REQUEST


def test_a_broker_that_was_never_there_cannot_be_unregistered(client: WireClient) -> None:
    answer = client.call(UnregisterBrokerRequest(broker_id=77), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    answer = client.call(UnregisterBrokerRequest(broker_id=NODE_ID), 0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST, "it runs"


UP, DOWN = 1, 2


def update(client: WireClient, *wanted: tuple[str, int, int], **fields: Any) -> int:
    made = UpdateFeaturesRequest
    updates = [
        made.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in wanted
    ]
    answer = client.call(made(feature_updates=updates, **fields), 2)
    assert (answer.error_message is None) == (answer.error_code == 0)
    code: int = answer.error_code
    return code


def versions(client: WireClient) -> Any:
    asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return client.call(asked, 4)


def levels(client: WireClient) -> dict[str, int]:
    return {f.name: f.max_version_level for f in versions(client).finalized_features}


def test_features_go_up_and_down_and_api_versions_follows(client: WireClient) -> None:
    highest = levels(client)
    assert highest == {"group.version": 1, "metadata.version": 33, "transaction.version": 2}
    bad = ErrorCode.INVALID_UPDATE_VERSION
    assert update(client, ("transaction.version", 1, UP)) == bad
    assert update(client, ("transaction.version", 1, DOWN), ("nix", 1, UP)) == bad
    assert update(client, ("metadata.version", 29, DOWN)) == bad
    assert update(client, ("transaction.version", 1, DOWN), validate_only=True) == 0
    assert levels(client) == highest
    assert update(client, ("transaction.version", 0, DOWN)) == 0
    assert "transaction.version" not in levels(client)
    assert update(client, ("transaction.version", 2, UP)) == 0
    assert levels(client) == highest


@pytest.mark.parametrize(("version", "allow"), [(0, True), (0, False), (1, None)])
def test_the_first_versions_tell_each_feature(
    client: WireClient, version: int, allow: bool | None
) -> None:
    one = UpdateFeaturesRequest.FeatureUpdate(feature="group.version", max_version_level=1)
    if allow is not None:
        one.allow_downgrade = allow
    answer = client.call(UpdateFeaturesRequest(feature_updates=[one]), version)
    assert [(r.feature, r.error_code) for r in answer.results] == [("group.version", 0)]


def test_without_group_version_1_there_are_no_consumer_groups(client: WireClient) -> None:
    assert update(client, ("group.version", 0, DOWN)) == 0
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    refused = client.call(beat, 1)
    assert (refused.error_code, refused.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
    [group] = client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert update(client, ("group.version", 1, UP)) == 0
    let_through = client.call(beat, 1).error_code
    assert let_through == ErrorCode.NOT_COORDINATOR, "nobody has asked who is yet"


def test_a_level_outlives_the_broker(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert update(client, ("transaction.version", 0, DOWN)) == 0
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert "transaction.version" not in levels(client)


def test_a_listener_without_authentication_has_no_log_in_and_no_tokens(
    client: WireClient,
) -> None:
    for version in range(2):
        answer = client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in range(3):
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"x"), version)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for version in range(4):
        made = client.call(CreateDelegationTokenRequest(max_lifetime_ms=1), version)
        assert (made.error_code, made.principal_name) == (refused, "ANONYMOUS")
        told = client.call(DescribeDelegationTokenRequest(owners=None), version)
        assert (told.error_code, told.tokens) == (refused, [])
    for version in range(3):
        renewed = client.call(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version)
        expired = client.call(ExpireDelegationTokenRequest(hmac=b"x"), version)
        assert (renewed.error_code, expired.error_code) == (refused, refused)
