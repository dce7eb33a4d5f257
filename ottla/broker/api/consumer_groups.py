"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups with assignment by the broker (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ottla.broker.api.group_admin import authorized_operations
from ottla.broker.cluster.feature_levels import GROUP_VERSION
from ottla.broker.coordination.answers import answer_later
from ottla.broker.dispatch import handles
from ottla.broker.network.promises import LateReply
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import GROUP_REFUSED, TOPIC_REFUSED, Access
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.groups.cluster_view import ClusterView
from ottla.groups.consumer.draft import preferred_assignor
from ottla.groups.consumer.group import ConsumerGroup, ConsumerMember
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.groups.consumer.requests import ServedConsumerGroup
from ottla.groups.errors import GroupIdNotFound, InvalidGroupId
from ottla.groups.group import Context
from ottla.groups.records import TopicPartition
from ottla.groups.routing import CACHED_CHARS_MAX
from ottla.groups.topic_indexes import indexes_by_topic
from ottla.replication.controller.access import Operation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ProtocolError, UnsupportedVersion
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CONSUMER_MEMBER, CLASSIC_MEMBER = 1, 0


def may_join(request: ConsumerGroupHeartbeatRequest, access: Access) -> None:
    """Require READ on the group and DESCRIBE on all topics that the member names."""
    access.need_group(Operation.READ, request.group_id)
    for name in request.subscribed_topic_names or ():
        access.need_topic(Operation.DESCRIBE, name)


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, access=may_join)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | LateReply:
    """Join, leave, or get the partitions to revoke and to add."""
    _require_protocol(context)
    runtime = context.broker.coordinators.groups.runtime
    client = context.client.client_id or "", f"/{context.client.host}"
    if _tells_nothing(request):
        # The request has no new values. If the member's assignment does not change either, the
        # request is answered at once, like a classic heartbeat.
        group_id = request.group_id
        shard = runtime.live_shard(group_id)
        if shard is not None:
            next_ms = shard.keep_alive(group_id, request, client, runtime.tick_ms())
            if next_ms is not None:
                return _nothing_new(request.member_id, request.member_epoch, next_ms)
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    beat = Heartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if topics is None else frozenset(topics),
        request.subscribed_topic_regex if context.version >= 1 else None,
        request.server_assignor,
        None
        if owned is None
        else frozenset((each.topic_id, index) for each in owned for index in each.partitions),
        *client,
        context.version,
        context.access.sight(),
    )
    return answer_later(
        runtime.change,
        request.group_id,
        lambda shard, result: shard.beat(beat, result),
        _heartbeat_response,
    )


def _nothing_new(member_id: str, epoch: int, next_ms: int) -> ConsumerGroupHeartbeatResponse:
    """The answer to a heartbeat without changes. It may be cached, so it is never modified."""
    if len(member_id) > CACHED_CHARS_MAX:
        return _heartbeat_response(HeartbeatReply(member_id, epoch, next_ms))
    return _cached_answer(member_id, epoch, next_ms)


@lru_cache(maxsize=1 << 14)
def _cached_answer(member_id: str, epoch: int, next_ms: int) -> ConsumerGroupHeartbeatResponse:
    return _heartbeat_response(HeartbeatReply(member_id, epoch, next_ms))


def _tells_nothing(request: ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.member_epoch > 0
    )


def _require_protocol(context: RequestContext) -> None:
    """Require group.version 1 and that the broker's settings enable the consumer protocol.

    As in Kafka, the error has no message. The Java client then shows a better one of its own.
    """
    if (
        context.broker.image.features.get(GROUP_VERSION, 0) < 1
        or "consumer" not in context.broker.config.group_coordinator_rebalance_protocols
    ):
        raise UnsupportedVersion("")


def _heartbeat_response(reply: HeartbeatReply | ProtocolError) -> ConsumerGroupHeartbeatResponse:
    made = ConsumerGroupHeartbeatResponse
    if isinstance(reply, ProtocolError):
        return made(error_code=int(reply.code), error_message=reply.message or None)
    return made(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.interval_ms,
        assignment=None
        if reply.assignment is None
        else made.Assignment(
            topic_partitions=[
                made.Assignment.TopicPartition(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in indexes_by_topic(reply.assignment).items()
            ]
        ),
    )


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, access=by_item)
async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Report state, members and assignments of KIP-848 groups.

    Requires DESCRIBE on each group, and on every topic in the current and target assignments of
    its members. As in Kafka, the answer has the names of all subscribed topics, even
    of those that the client may not describe.
    """
    access, made = context.access, ConsumerGroupDescribeResponse.Group
    asked, refused = await access.divide(
        request.group_ids, lambda group: access.group(Operation.DESCRIBE, group)
    )
    groups = []
    async for group_id in Slices().each(asked):
        try:
            _require_protocol(context)
            if not group_id:
                raise InvalidGroupId("the group id is empty")
            shard = context.broker.coordinators.groups.runtime.shard(group_id)
            group = shard.group_of(ServedConsumerGroup, group_id)
            if group is None:
                raise GroupIdNotFound(f"consumer group {group_id!r} not found")
            answer = _describe(group, shard.context, context.version)
            answer.authorized_operations = authorized_operations(
                request.include_authorized_operations, group_id, access
            )
            answer = _without_secret_topics(answer, access)
        except ProtocolError as error:
            answer = ConsumerGroupDescribeResponse.Group(
                group_id=group_id, error_code=int(error.code),
                error_message=error.message or None,
            )
        groups.append(answer)
    groups += [
        made(group_id=each, error_code=GROUP_REFUSED, error_message="Group authorization failed.")
        for each in refused
    ]
    return ConsumerGroupDescribeResponse(groups=groups)


def _without_secret_topics(
    group: ConsumerGroupDescribeResponse.Group, access: Access
) -> ConsumerGroupDescribeResponse.Group:
    if access.authorizer is None:
        return group
    names: set[str] = set()
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            names.update(each.topic_name for each in assignment.topic_partitions)
    if all(access.topic(Operation.DESCRIBE, name) for name in names):
        return group
    return ConsumerGroupDescribeResponse.Group(
        group_id=group.group_id,
        error_code=TOPIC_REFUSED,
        error_message="The group has described topic(s) that the client is not authorized to"
        " describe.",
    )


def _describe(
    group: ConsumerGroup, context: Context, version: int
) -> ConsumerGroupDescribeResponse.Group:
    assignors = context.settings.group_consumer_assignors
    return ConsumerGroupDescribeResponse.Group(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(
            (member.value for member in group.members.values()), assignors
        ),
        members=[
            _member(group, each, context.cluster, version) for each in group.members.values()
        ],
    )


def _member(
    group: ConsumerGroup, member: ConsumerMember, cluster: ClusterView, version: int
) -> ConsumerGroupDescribeResponse.Group.Member:
    value = member.value
    described = ConsumerGroupDescribeResponse.Group.Member(
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        member_epoch=member.epoch,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=sorted(value.topics),
        subscribed_topic_regex=value.pattern or "",
        # Partitions that the member has not revoked yet still belong to it.
        assignment=_assignment({**member.current.assigned, **member.current.revoking}, cluster),
        target_assignment=_assignment(group.assigned(member), cluster),
    )
    if version >= 1:
        described.member_type = CLASSIC_MEMBER if value.classic else CONSUMER_MEMBER
    return described


def _assignment(
    partitions: Iterable[TopicPartition], cluster: ClusterView
) -> ConsumerGroupDescribeResponse.Assignment:
    made = ConsumerGroupDescribeResponse.Assignment
    topics = []
    for topic_id, indexes in indexes_by_topic(partitions).items():
        topic = cluster.topic_of_id(topic_id)
        if topic is not None:
            topics.append(
                made.TopicPartition(topic_id=topic_id, topic_name=topic.name, partitions=indexes)
            )
    return made(topic_partitions=topics)
