"""ElectLeaders (key 43), AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import CLUSTER_REFUSED_MESSAGE, ClusterRefused
from ottla.broker.security.decisions import by_item, on_cluster
from ottla.broker.threads.slices import Slices
from ottla.replication.controller.access import Operation
from ottla.replication.controller.brokers import PARTITIONS_AT_A_TIME
from ottla.replication.controller.elections import LogEnd, to_ask
from ottla.replication.controller.partitions import (
    ElectionType,
    elect_leaders,
    to_elect,
)
from ottla.replication.controller.reassignment import Reassignment, reassign_partitions
from ottla.replication.metadata import MetadataImage
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Ends = dict[tuple[str, int], dict[int, LogEnd]]
Answer = tuple[tuple[str, int], ProtocolError | None]


@handles(ApiKey.ELECT_LEADERS, access=by_item)
async def elect_leaders_api(
    request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """Elect the preferred leaders of the requested partitions, or of all partitions if
    `topic_partitions` is null. In an unclean election, elect instead a leader for each of these
    partitions that has none; the new leader may be a replica that is not in sync.

    Requires ALTER on the cluster.
    """
    if not context.access.cluster(Operation.ALTER):
        return _refused_election(request, context, ClusterRefused(CLUSTER_REFUSED_MESSAGE))
    kind = request.election_type if context.version >= 1 else int(ElectionType.PREFERRED)
    asked = request.topic_partitions
    named = [(each.topic, index) for each in asked or () for index in each.partitions]

    ends: Ends | None = None
    image = context.broker.metadata_log.decided
    if kind == ElectionType.UNCLEAN:
        ends = await context.broker.role.log_ends(image, to_report(image, named, asked is None))

    metadata, answers = context.broker.metadata_log, list[Answer]()
    wanted = named if asked is not None else list(to_elect(metadata.decided, kind))
    try:
        # Elect in parts: an entry of a cluster's metadata log has room for about ten thousand
        # elections.
        for at in range(0, max(len(wanted), 1), PARTITIONS_AT_A_TIME):
            some = wanted[at : at + PARTITIONS_AT_A_TIME]
            errors = await metadata.decide(elect_leaders, kind, some, ends, image)
            answers += zip(some, errors, strict=True)
    except ProtocolError as error:
        return _refused_election(request, context, error)
    known = kind in tuple(ElectionType)
    if asked is None:
        # The answer lists all topics, even those without an election.
        by_name = {name: list[Answer]() for name in context.broker.image.topics if known}
        for answer in answers:
            by_name.setdefault(answer[0][0], []).append(answer)
        topics = list(by_name.items())
    else:
        left = iter(answers)
        topics = [(each.topic, [next(left) for _ in each.partitions]) for each in asked]
    response = ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic, partition_result=[_elected(*answer) for answer in group]
            )
            for topic, group in topics
        ]
    )
    if context.version >= 1 and not known:
        response.error_code = int(ErrorCode.INVALID_REQUEST)
    return response


def _refused_election(
    request: ElectLeadersRequest, context: RequestContext, refused: ProtocolError
) -> ElectLeadersResponse:
    """The error, repeated for each partition because version 0 has no top-level code."""
    response = ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _elected((topic.topic, index), refused) for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
    )
    if context.version >= 1:
        response.error_code = int(refused.code)
    return response


def _elected(
    partition: tuple[str, int], error: ProtocolError | None
) -> ElectLeadersResponse.ReplicaElectionResult.PartitionResult:
    return ElectLeadersResponse.ReplicaElectionResult.PartitionResult(
        partition_id=partition[1],
        error_code=0 if error is None else int(error.code),
        error_message=None if error is None else error.message,
    )


def to_report(
    image: MetadataImage, named: Sequence[tuple[str, int]], of_all: bool
) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas that have to report the ends of their logs for an unclean election."""
    wanted = to_elect(image, int(ElectionType.UNCLEAN)) if of_all else iter(named)
    reporters = {}
    for name, index in wanted:
        topic = image.topics.get(name)
        if topic is not None and 0 <= index < len(topic.partitions):
            reporters[name, index] = to_ask(image, topic.partitions[index], unclean=True)
    return {key: nodes for key, nodes in reporters.items() if nodes}


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, access=on_cluster(Operation.ALTER))
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Change the replicas of partitions, or cancel such a change (KIP-455)."""
    wanted = [
        Reassignment(
            topic.name,
            each.partition_index,
            None if each.replicas is None else tuple(each.replicas),
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    may_change_factor = request.allow_replication_factor_change if context.version >= 1 else True
    errors = await context.broker.metadata_log.decide(
        reassign_partitions, wanted, may_change_factor
    )
    answers = iter(errors)
    response = AlterPartitionReassignmentsResponse(
        error_message=None if request.topics else "",
        responses=[
            AlterPartitionReassignmentsResponse.Response(
                name=topic.name,
                partitions=[_reassigned(each.partition_index, next(answers))
                            for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    if context.version >= 1:
        response.allow_replication_factor_change = may_change_factor
    return response


def _reassigned(
    index: int, error: ProtocolError | None
) -> AlterPartitionReassignmentsResponse.Response.Partition:
    return AlterPartitionReassignmentsResponse.Response.Partition(
        partition_index=index,
        error_code=0 if error is None else int(error.code),
        error_message=None if error is None else error.message or None,
    )


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, access=on_cluster(Operation.DESCRIBE))
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List the reassignments in progress of the named partitions, or of all partitions."""
    image, made = context.broker.image, ListPartitionReassignmentsResponse.Topic
    named = None if request.topics is None else {
        each.name: frozenset(each.partition_indexes) for each in request.topics
    }
    topics, slices = [], Slices()
    for name in image.topics if named is None else named:
        topic = image.topics.get(name)
        rows = [
            made.Partition(
                partition_index=index, replicas=list(state.replicas),
                adding_replicas=list(state.extra.adding),
                removing_replicas=list(state.extra.removing),
            )
            async for index, state in slices.each(
                enumerate(topic.partitions if topic is not None else ())
            )
            if state.extra is not None and (state.extra.adding or state.extra.removing)
            and (named is None or index in named[name])
        ]
        if rows:
            topics.append(made(name=name, partitions=rows))
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=topics)
