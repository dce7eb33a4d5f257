"""For every API, a request about one topic, group, transactional id or cluster, and the permissions
that it needs.

`QUESTIONS` has, for each API, a function that makes its request in a given version, the error codes
with which the broker refuses the request, and all permissions that the request needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.replication.controller.access import CLUSTER_NAME, Operation, Resource
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from tests.broker.produce_fetch import batch

TOPIC, GROUP, TRANSACTION = "t", "g", "x"
TOPIC_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTION_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
REFUSALS = {TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, TRANSACTION_REFUSED}

Right = tuple[Resource, str, Operation]


def topic(operation: Operation) -> Right:
    return Resource.TOPIC, TOPIC, operation


def group(operation: Operation) -> Right:
    return Resource.GROUP, GROUP, operation


def transaction(operation: Operation) -> Right:
    return Resource.TRANSACTIONAL_ID, TRANSACTION, operation


def cluster(operation: Operation) -> Right:
    return Resource.CLUSTER, CLUSTER_NAME, operation


@dataclass(frozen=True)
class Question:
    """The request of one API. `make` gets the version and the topic's id."""

    make: Callable[[int, bytes], Any]
    codes: set[int]
    rights: tuple[Right, ...]
    first: int = 0
    """The first version in which the broker refuses the request with these codes."""


def asked(key: ApiKey, **fields: Any) -> Callable[[int, bytes], Any]:
    """A `make` whose request is the same in all versions."""
    return lambda version, topic_id: APIS[key].request(**fields)


def topics(key: ApiKey, field: str = "topics", **fields: Any) -> Callable[[int, bytes], Any]:
    """A `make` for a request about partition 0 of the topic. Versions without topic names get its
    id."""
    request: Any = APIS[key].request
    made = request.Topic

    def make(version: int, topic_id: bytes) -> Any:
        by_id = {ApiKey.OFFSET_COMMIT: 10, ApiKey.TXN_OFFSET_COMMIT: 6}.get(key, 99)
        named = {"topic_id": topic_id} if version >= by_id else {"name": TOPIC}
        if hasattr(made(), "partition_indexes"):
            one = made(**named, partition_indexes=[0])
        else:
            one = made(**named, partitions=[made.Partition(partition_index=0)])
        return request(**fields, **{field: [one]})

    return make


def produce(version: int, topic_id: bytes) -> Any:
    made = messages.ProduceRequest.TopicData
    named = {"topic_id": topic_id} if version >= 13 else {"name": TOPIC}
    records = batch(b"v") if version >= 3 else None
    one = made(**named, partition_data=[made.PartitionData(index=0, records=records)])
    return messages.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[one])


def fetch(version: int, topic_id: bytes) -> Any:
    made = messages.FetchRequest.Topic
    named = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    partition = made.Partition(partition=0, partition_max_bytes=1000)
    one = made(**named, partitions=[partition])
    return messages.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[one])


def metadata(version: int, topic_id: bytes) -> Any:
    request = messages.MetadataRequest
    return request(topics=[request.Topic(name=TOPIC)])


def find_coordinator(key_type: int, name: str) -> Callable[[int, bytes], Any]:
    def make(version: int, topic_id: bytes) -> Any:
        request = messages.FindCoordinatorRequest(coordinator_keys=[name])
        if version < 4:
            request = messages.FindCoordinatorRequest(key=name)
        if version >= 1:
            request.key_type = key_type
        return request

    return make


def fetch_offsets(version: int, topic_id: bytes) -> Any:
    request = messages.OffsetFetchRequest
    if version < 8:
        one = request.Topic(name=TOPIC, partition_indexes=[0])
        return request(group_id=GROUP, topics=[one])
    named = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
    wanted = request.Group.Topic(**named, partition_indexes=[0])
    return request(groups=[request.Group(group_id=GROUP, topics=[wanted])])


def add_partitions(version: int, topic_id: bytes) -> Any:
    request = messages.AddPartitionsToTxnRequest
    one = request.Topic(name=TOPIC, partitions=[0])
    if version <= 3:
        return request(
            v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=1,
            v3_and_below_topics=[one],
        )
    wanted = request.Transaction(transactional_id=TRANSACTION, producer_id=1, topics=[one])
    return request(transactions=[wanted])


def delete_topics(version: int, topic_id: bytes) -> Any:
    request = messages.DeleteTopicsRequest
    if version < 6:
        return request(topic_names=[TOPIC], timeout_ms=1000)
    return request(topics=[request.Topic(topic_id=topic_id)], timeout_ms=1000)


def leave(version: int, topic_id: bytes) -> Any:
    request = messages.LeaveGroupRequest
    if version < 3:
        return request(group_id=GROUP, member_id="m")
    return request(group_id=GROUP, members=[request.Member(member_id="m")])


def configs(key: ApiKey, kind: int, name: str) -> Callable[[int, bytes], Any]:
    request: Any = APIS[key].request
    return asked(key, resources=[request.Resource(resource_type=kind, resource_name=name)])


def moves(version: int, topic_id: bytes) -> Any:
    request = messages.AlterReplicaLogDirsRequest
    one = request.Dir.Topic(name=TOPIC, partitions=[0])
    return request(dirs=[request.Dir(path="/no/such/directory", topics=[one])])


def records_to_delete(version: int, topic_id: bytes) -> Any:
    request = messages.DeleteRecordsRequest
    partition = request.Topic.Partition(partition_index=0, offset=0)
    return request(topics=[request.Topic(name=TOPIC, partitions=[partition])], timeout_ms=1000)


def markers(version: int, topic_id: bytes) -> Any:
    request = messages.WriteTxnMarkersRequest
    one = request.Marker.Topic(name=TOPIC, partition_indexes=[0])
    return request(markers=[request.Marker(producer_id=1, topics=[one])])


K, Op = ApiKey, Operation
BEAT = {
    "group_id": GROUP, "member_id": "m", "rebalance_timeout_ms": 1000, "topic_partitions": [],
    "subscribed_topic_names": [TOPIC],
}
TOPIC_KIND, BROKER_KIND, LOGGER_KIND, METRICS_KIND, GROUP_KIND = 2, 4, 8, 16, 32
NEW_TOPIC = messages.CreateTopicsRequest.Topic(
    name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
)
REASSIGNMENT = messages.AlterPartitionReassignmentsRequest.Topic
QUOTA = messages.AlterClientQuotasRequest.Entry
RULE = messages.CreateAclsRequest.Creation(
    resource_type=2, resource_name="r", principal="User:r", host="*", operation=3,
    permission_type=3,
)
RULES = messages.DeleteAclsRequest.Filter(
    resource_type_filter=2, resource_name_filter="r", operation=1, permission_type=1
)
CREATION: Right = (Resource.TOPIC, "new", Op.CREATE)

QUESTIONS: dict[str, tuple[ApiKey, Question]] = {
    f"{key.name.lower()}{f' of a {what}' if what else ''}": (key, question)
    for key, what, question in (
        (K.PRODUCE, "", Question(produce, {TOPIC_REFUSED}, (topic(Op.WRITE),))),
        (K.FETCH, "", Question(fetch, {TOPIC_REFUSED}, (topic(Op.READ),))),
        (K.LIST_OFFSETS, "", Question(
            topics(K.LIST_OFFSETS), {TOPIC_REFUSED}, (topic(Op.DESCRIBE),))),
        (K.METADATA, "", Question(metadata, {TOPIC_REFUSED}, (topic(Op.DESCRIBE),))),
        (K.OFFSET_COMMIT, "group", Question(
            topics(K.OFFSET_COMMIT, group_id=GROUP), {GROUP_REFUSED},
            (group(Op.READ), topic(Op.READ)))),
        (K.OFFSET_FETCH, "group", Question(
            fetch_offsets, {GROUP_REFUSED}, (group(Op.DESCRIBE), topic(Op.DESCRIBE)))),
        (K.FIND_COORDINATOR, "group", Question(
            find_coordinator(0, GROUP), {GROUP_REFUSED}, (group(Op.DESCRIBE),))),
        (K.FIND_COORDINATOR, "transaction", Question(
            find_coordinator(1, TRANSACTION), {TRANSACTION_REFUSED},
            (transaction(Op.DESCRIBE),), first=1)),
        (K.JOIN_GROUP, "", Question(
            asked(K.JOIN_GROUP, group_id=GROUP, session_timeout_ms=10_000, member_id="m",
                  protocol_type="consumer"), {GROUP_REFUSED}, (group(Op.READ),))),
        (K.HEARTBEAT, "", Question(
            asked(K.HEARTBEAT, group_id=GROUP, member_id="m"), {GROUP_REFUSED},
            (group(Op.READ),))),
        (K.LEAVE_GROUP, "", Question(leave, {GROUP_REFUSED}, (group(Op.READ),))),
        (K.SYNC_GROUP, "", Question(
            asked(K.SYNC_GROUP, group_id=GROUP, member_id="m"), {GROUP_REFUSED},
            (group(Op.READ),))),
        (K.DESCRIBE_GROUPS, "", Question(
            asked(K.DESCRIBE_GROUPS, groups=[GROUP]), {GROUP_REFUSED}, (group(Op.DESCRIBE),))),
        (K.CREATE_TOPICS, "", Question(
            asked(K.CREATE_TOPICS, topics=[NEW_TOPIC], timeout_ms=1000), {TOPIC_REFUSED},
            (CREATION, (Resource.TOPIC, "new", Op.DESCRIBE_CONFIGS)))),
        (K.DELETE_RECORDS, "", Question(
            records_to_delete, {TOPIC_REFUSED}, (topic(Op.DELETE),))),
        (K.INIT_PRODUCER_ID, "transaction", Question(
            asked(K.INIT_PRODUCER_ID, transactional_id=TRANSACTION, transaction_timeout_ms=1000),
            {TRANSACTION_REFUSED}, (transaction(Op.WRITE),))),
        (K.INIT_PRODUCER_ID, "producer", Question(
            asked(K.INIT_PRODUCER_ID, transactional_id=None), {CLUSTER_REFUSED},
            (cluster(Op.IDEMPOTENT_WRITE),))),
        (K.OFFSET_FOR_LEADER_EPOCH, "", Question(
            asked(K.OFFSET_FOR_LEADER_EPOCH, topics=[
                messages.OffsetForLeaderEpochRequest.Topic(topic=TOPIC, partitions=[
                    messages.OffsetForLeaderEpochRequest.Topic.Partition(partition=0)])]),
            {TOPIC_REFUSED}, (topic(Op.DESCRIBE),))),
        (K.ADD_OFFSETS_TO_TXN, "", Question(
            asked(K.ADD_OFFSETS_TO_TXN, transactional_id=TRANSACTION, group_id=GROUP),
            {TRANSACTION_REFUSED}, (transaction(Op.WRITE), group(Op.READ)))),
        (K.END_TXN, "", Question(
            asked(K.END_TXN, transactional_id=TRANSACTION), {TRANSACTION_REFUSED},
            (transaction(Op.WRITE),))),
        (K.WRITE_TXN_MARKERS, "", Question(markers, {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.TXN_OFFSET_COMMIT, "", Question(
            topics(K.TXN_OFFSET_COMMIT, transactional_id=TRANSACTION, group_id=GROUP),
            {TRANSACTION_REFUSED}, (transaction(Op.WRITE), group(Op.READ), topic(Op.READ)))),
        (K.DESCRIBE_ACLS, "", Question(
            asked(K.DESCRIBE_ACLS, resource_type_filter=2, operation=1, permission_type=1),
            {CLUSTER_REFUSED}, (cluster(Op.DESCRIBE),))),
        (K.CREATE_ACLS, "", Question(
            asked(K.CREATE_ACLS, creations=[RULE]), {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.DELETE_ACLS, "", Question(
            asked(K.DELETE_ACLS, filters=[RULES]), {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        *(
            (key, what, Question(configs(key, kind, name), {code}, ((kind_of, named, operation),)))
            for key, operation in (
                (K.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS), (K.ALTER_CONFIGS, Op.ALTER_CONFIGS),
                (K.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS),
            )
            for what, kind, name, code, kind_of, named in (
                ("topic", TOPIC_KIND, TOPIC, TOPIC_REFUSED, Resource.TOPIC, TOPIC),
                ("broker", BROKER_KIND, "0", CLUSTER_REFUSED, Resource.CLUSTER, CLUSTER_NAME),
                ("logger", LOGGER_KIND, "0", CLUSTER_REFUSED, Resource.CLUSTER, CLUSTER_NAME),
                ("metric", METRICS_KIND, "m", CLUSTER_REFUSED, Resource.CLUSTER, CLUSTER_NAME),
                ("group", GROUP_KIND, GROUP, GROUP_REFUSED, Resource.GROUP, GROUP),
            )
        ),
        (K.ALTER_REPLICA_LOG_DIRS, "", Question(moves, {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.DESCRIBE_LOG_DIRS, "", Question(
            asked(K.DESCRIBE_LOG_DIRS, topics=None), {CLUSTER_REFUSED}, (cluster(Op.DESCRIBE),),
            first=3)),
        (K.CREATE_PARTITIONS, "", Question(
            asked(K.CREATE_PARTITIONS, timeout_ms=1000, validate_only=True, topics=[
                messages.CreatePartitionsRequest.Topic(name=TOPIC, count=9, assignments=None)]),
            {TOPIC_REFUSED}, (topic(Op.ALTER),))),
        (K.DELETE_GROUPS, "", Question(
            asked(K.DELETE_GROUPS, groups_names=[GROUP]), {GROUP_REFUSED}, (group(Op.DELETE),))),
        (K.ELECT_LEADERS, "", Question(
            asked(K.ELECT_LEADERS, topic_partitions=[
                messages.ElectLeadersRequest.TopicPartition(topic=TOPIC, partitions=[0])]),
            {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.ALTER_PARTITION_REASSIGNMENTS, "", Question(
            asked(K.ALTER_PARTITION_REASSIGNMENTS, topics=[]), {CLUSTER_REFUSED},
            (cluster(Op.ALTER),))),
        (K.LIST_PARTITION_REASSIGNMENTS, "", Question(
            asked(K.LIST_PARTITION_REASSIGNMENTS, topics=None), {CLUSTER_REFUSED},
            (cluster(Op.DESCRIBE),))),
        (K.OFFSET_DELETE, "", Question(
            topics(K.OFFSET_DELETE, group_id=GROUP), {GROUP_REFUSED},
            (group(Op.DELETE), topic(Op.READ)))),
        (K.DESCRIBE_CLIENT_QUOTAS, "", Question(
            asked(K.DESCRIBE_CLIENT_QUOTAS, components=[]), {CLUSTER_REFUSED},
            (cluster(Op.DESCRIBE_CONFIGS),))),
        (K.ALTER_CLIENT_QUOTAS, "", Question(
            asked(K.ALTER_CLIENT_QUOTAS, entries=[
                QUOTA(entity=[QUOTA.Entity(entity_type="user", entity_name="u")], ops=[])]),
            {CLUSTER_REFUSED}, (cluster(Op.ALTER_CONFIGS),))),
        (K.DESCRIBE_USER_SCRAM_CREDENTIALS, "", Question(
            asked(K.DESCRIBE_USER_SCRAM_CREDENTIALS, users=None), {CLUSTER_REFUSED},
            (cluster(Op.DESCRIBE),))),
        (K.ALTER_USER_SCRAM_CREDENTIALS, "", Question(
            asked(K.ALTER_USER_SCRAM_CREDENTIALS, upsertions=[], deletions=[
                messages.AlterUserScramCredentialsRequest.Deletion(name="u", mechanism=1)]),
            {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.DESCRIBE_QUORUM, "", Question(
            asked(K.DESCRIBE_QUORUM, topics=[]), {CLUSTER_REFUSED}, (cluster(Op.DESCRIBE),))),
        (K.UPDATE_FEATURES, "", Question(
            asked(K.UPDATE_FEATURES, feature_updates=[]), {CLUSTER_REFUSED},
            (cluster(Op.ALTER),))),
        (K.DESCRIBE_PRODUCERS, "", Question(
            topics(K.DESCRIBE_PRODUCERS), {TOPIC_REFUSED}, (topic(Op.READ),))),
        (K.UNREGISTER_BROKER, "", Question(
            asked(K.UNREGISTER_BROKER, broker_id=77), {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.DESCRIBE_TRANSACTIONS, "", Question(
            asked(K.DESCRIBE_TRANSACTIONS, transactional_ids=[TRANSACTION]),
            {TRANSACTION_REFUSED}, (transaction(Op.DESCRIBE),))),
        (K.CONSUMER_GROUP_HEARTBEAT, "", Question(
            asked(K.CONSUMER_GROUP_HEARTBEAT, **BEAT), {GROUP_REFUSED},
            (group(Op.READ), topic(Op.DESCRIBE)))),
        (K.CONSUMER_GROUP_DESCRIBE, "", Question(
            asked(K.CONSUMER_GROUP_DESCRIBE, group_ids=[GROUP]), {GROUP_REFUSED},
            (group(Op.DESCRIBE), topic(Op.DESCRIBE)))),
        (K.LIST_CONFIG_RESOURCES, "", Question(
            asked(K.LIST_CONFIG_RESOURCES), {CLUSTER_REFUSED}, (cluster(Op.DESCRIBE_CONFIGS),))),
        (K.DESCRIBE_TOPIC_PARTITIONS, "", Question(
            asked(K.DESCRIBE_TOPIC_PARTITIONS, topics=[
                messages.DescribeTopicPartitionsRequest.Topic(name=TOPIC)]),
            {TOPIC_REFUSED}, (topic(Op.DESCRIBE),))),
        (K.ADD_RAFT_VOTER, "", Question(
            asked(K.ADD_RAFT_VOTER, cluster_id=None, voter_id=9, listeners=[]),
            {CLUSTER_REFUSED}, (cluster(Op.ALTER),))),
        (K.REMOVE_RAFT_VOTER, "", Question(
            asked(K.REMOVE_RAFT_VOTER, cluster_id=None, voter_id=9), {CLUSTER_REFUSED},
            (cluster(Op.ALTER),))),
        # Last, because it deletes the topic that the other requests need.
        (K.DELETE_TOPICS, "", Question(delete_topics, {TOPIC_REFUSED}, (topic(Op.DELETE),))),
    )
}
"""The questions of `test_access_matrix`, by API and the name of a case."""

ADDED_PARTITIONS = Question(
    add_partitions, {TRANSACTION_REFUSED}, (transaction(Op.WRITE), topic(Op.WRITE))
)
"""AddPartitionsToTxn up to version 3. Only brokers send later versions, which need another
permission."""
