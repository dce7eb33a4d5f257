"""The quorum of the cluster's metadata: DescribeQuorum (key 55), AddRaftVoter (80), RemoveRaftVoter
(81); and UnregisterBroker (64).

A standalone broker has its own metadata log. The broker is the only voter and always the leader,
and every entry that it has applied is committed.

In a cluster the metadata log is in ZooKeeper. The leader is the controller. Every live broker is a
voter, since it may become the controller. This broker asks the other voters how far they have read,
and reports -1 for a voter that does not answer. Brokers that have left are observers. The time of
their last fetch is the time at which this broker saw them leave. If they left before this broker
started, that time is -1, and they count as last caught up at the time of this broker's start. A
controller that does not reach ZooKeeper reports that it is not the controller; a broker that gets
no answer from the controller reports that there is no leader.

Offsets count metadata records. So does the epoch of the finalised features in ApiVersions.
"""

from __future__ import annotations

import base64
import binascii

from ottla.broker.context import BrokerContext
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.decisions import on_cluster
from ottla.replication.controller.access import Operation
from ottla.replication.controller.brokers import unregister_broker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.wire.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

METADATA_TOPIC = "__cluster_metadata"
"""The topic that Kafka's tools request."""
NO_DIRECTORY = bytes(16)


ASK_SECONDS = 1.0
"""How long the other brokers may take to report how far they have read."""


@handles(ApiKey.DESCRIBE_QUORUM, access=on_cluster(Operation.DESCRIBE))
async def describe_quorum(
    request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """Report leader, voters and offsets of the metadata log, the only log of this API."""
    broker, version = context.broker, context.version
    asked = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if asked == [(METADATA_TOPIC, 0)]:
        partition = await _metadata_partition(broker, version)
        topics = [
            DescribeQuorumResponse.Topic(topic_name=METADATA_TOPIC, partitions=[partition])
        ]
        return DescribeQuorumResponse(topics=topics, nodes=_nodes(broker) if version >= 2 else [])
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponse.Topic(
                topic_name=topic.topic_name,
                partitions=[_unknown(each.partition_index, version) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _metadata_partition(
    broker: BrokerContext, version: int
) -> DescribeQuorumResponse.Topic.Partition:
    image = broker.image
    leader_id = broker.role.controller_id(image)
    if broker.role.has_lost_its_term(image):
        return _without_leader(
            version, ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {broker.node_id} was the controller, but it does not reach ZooKeeper, so it"
            " does not know whether there is a new controller. Ask a broker that reaches ZooKeeper."
        )
    # A leader that is not registered yet counts as a voter: Kafka's tools expect the leader among
    # the voters.
    others = {one.node_id for one in broker.role.brokers(image)} | {leader_id}
    others -= {broker.node_id, -1}
    offsets = await broker.role.metadata_offsets(others, ASK_SECONDS)
    if offsets.get(leader_id, 0) < 0:
        if leader_id in image.brokers:
            return _without_leader(
                version, ErrorCode.LEADER_NOT_AVAILABLE,
                f"Broker {leader_id}, the last controller that broker {broker.node_id} knows, does"
                " not answer.")
        offsets[leader_id] = image.offset       # the leader has read at least this far
    offsets[broker.node_id] = image.offset
    end = max(offsets.values())                 # everything in the log is committed
    now_ms = broker.clock.now_ms()
    return DescribeQuorumResponse.Topic.Partition(
        partition_index=0,
        leader_id=leader_id,
        # Always 0 on a standalone broker, which has never had another leader.
        leader_epoch=image.controller_epoch,
        high_watermark=end,
        current_voters=[
            _replica(
                broker, version, node, offset, now_ms if offset >= 0 else -1,
                now_ms if offset >= image.offset else -1,
            )
            for node, offset in sorted(offsets.items())
        ],
        observers=_away(broker, version),
    )


def _away(broker: BrokerContext, version: int) -> list[DescribeQuorumResponse.ReplicaState]:
    """The brokers that have left, unless they were unregistered."""
    seen, began_ms = broker.departed.seen, broker.departed.began_ms
    return [
        _replica(broker, version, node, -1, seen[node].at_ms) if node in seen
        else _replica(broker, version, node, -1, -1, began_ms)
        for node, former in sorted(broker.image.former.items()) if former.endpoints
    ]


def _replica(
    broker: BrokerContext, version: int, node_id: int, offset: int, fetched_ms: int = -1,
    caught_up_ms: int = -1,
) -> DescribeQuorumResponse.ReplicaState:
    replica = DescribeQuorumResponse.ReplicaState(replica_id=node_id, log_end_offset=offset)
    if version >= 1:
        replica.last_fetch_timestamp = fetched_ms
        replica.last_caught_up_timestamp = caught_up_ms
    if version >= 2:
        replica.replica_directory_id = _directory_id(broker, node_id)
    return replica


def _without_leader(
    version: int, code: ErrorCode, message: str
) -> DescribeQuorumResponse.Topic.Partition:
    answer = DescribeQuorumResponse.Topic.Partition(
        partition_index=0, error_code=int(code), current_voters=[], observers=[],
    )
    if version >= 2:
        answer.error_message = message
    return answer


def _directory_id(broker: BrokerContext, node_id: int) -> bytes:
    """The id of a broker's first log directory; Kafka writes it in URL-safe base64."""
    if node_id == broker.node_id:
        first = broker.replicas.storage.directories[0].directory_id
    else:
        known = broker.image.last_known(node_id)
        first = known.directories[0] if known is not None and known.directories else ""
    try:
        decoded = base64.urlsafe_b64decode(first + "==")
    except (ValueError, binascii.Error):
        return NO_DIRECTORY
    return decoded if len(decoded) == len(NO_DIRECTORY) else NO_DIRECTORY


def _nodes(broker: BrokerContext) -> list[DescribeQuorumResponse.Node]:
    # The list is empty while the first broker already serves, but is still being registered.
    return [
        DescribeQuorumResponse.Node(
            node_id=one.node_id,
            listeners=[
                DescribeQuorumResponse.Node.Listener(
                    name=each.listener, host=each.host, port=each.port
                )
                for each in one.endpoints
            ],
        )
        for one in broker.role.brokers(broker.image)
    ]


def _unknown(index: int, version: int) -> DescribeQuorumResponse.Topic.Partition:
    error = UnknownTopicOrPartition("This server does not host this topic-partition.")
    answer = DescribeQuorumResponse.Topic.Partition(
        partition_index=index, error_code=int(error.code), current_voters=[], observers=[]
    )
    if version >= 2:
        answer.error_message = error.message
    return answer


@handles(ApiKey.ADD_RAFT_VOTER, access=on_cluster(Operation.ALTER))
def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Refuse, as Kafka does with kraft.version 0: clients cannot change the voters."""
    _check_cluster(request.cluster_id, context)
    if request.voter_id < 0 or not any(request.voter_directory_id) or not request.listeners:
        raise InvalidRequest("Add voter request didn't include a valid voter")
    if request.voter_id == context.broker.node_id:
        raise ProtocolError(
            f"broker {request.voter_id} is already a voter", ErrorCode.DUPLICATE_VOTER
        )
    raise _voters_are_settled("adding")


@handles(ApiKey.REMOVE_RAFT_VOTER, access=on_cluster(Operation.ALTER))
def remove_raft_voter(
    request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    """Refuse, as add_raft_voter does."""
    _check_cluster(request.cluster_id, context)
    if request.voter_id < 0 or not any(request.voter_directory_id):
        raise InvalidRequest("Remove voter request didn't include a valid voter")
    voter = context.broker.node_id, _directory_id(context.broker, context.broker.node_id)
    if (request.voter_id, request.voter_directory_id) != voter:
        raise ProtocolError(
            f"broker {request.voter_id} is not a voter, or has another directory id",
            ErrorCode.VOTER_NOT_FOUND,
        )
    raise _voters_are_settled("removing")


def _check_cluster(cluster_id: str | None, context: RequestContext) -> None:
    mine = context.broker.image.cluster_id
    if cluster_id is not None and cluster_id != mine:
        raise ProtocolError(
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{mine}"',
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        )


def _voters_are_settled(what: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"Cluster doesn't support {what} voters: its metadata are not kept by a KRaft quorum"
    )


@handles(ApiKey.UNREGISTER_BROKER, access=on_cluster(Operation.ALTER))
async def unregister_broker_api(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Remove a broker that will not return, for instance a former node.id of this broker."""
    broker = context.broker
    while await broker.metadata_log.decide(unregister_broker, request.broker_id, broker.node_id):
        pass
    return UnregisterBrokerResponse(error_code=0, error_message=None)
