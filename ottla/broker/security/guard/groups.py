"""Guards of groups, their members and their offsets."""

from __future__ import annotations

from typing import Any

from ottla.broker.security.access import (
    GROUP_REFUSED,
    TOPIC_REFUSED,
    TRANSACTION_REFUSED,
    Access,
    split,
)
from ottla.broker.security.decisions import Amend, Answered
from ottla.broker.security.guard.topics import add_refused, refusal
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import APIS
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    OffsetFetchResponse,
)

GROUP_OPERATIONS = (
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
MESSAGE = "Group authorization failed."
OF_A_GROUP, OF_A_TRANSACTION = 0, 1


def guard_consumer(request: Any, access: Access) -> None:
    """READ of the group, DESCRIBE of all topics that the member names."""
    access.need_group(Operation.READ, request.group_id)
    for name in request.subscribed_topic_names or ():
        if not access.topic(Operation.DESCRIBE, name):
            raise ProtocolError(
                "Topic authorization failed.", ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )


def guard_find_coordinator(request: Any, access: Access) -> Amend | None:
    """DESCRIBE of the group or transactional id; CLUSTER_ACTION for keys of other types."""
    kind = request.key_type if access.version >= 1 else OF_A_GROUP

    def allowed(key: str) -> bool:
        if kind == OF_A_GROUP:
            return access.group(Operation.DESCRIBE, key)
        if kind == OF_A_TRANSACTION:
            return access.transaction(Operation.DESCRIBE, key)
        return access.cluster(Operation.CLUSTER_ACTION)

    code = GROUP_REFUSED if kind == OF_A_GROUP else TRANSACTION_REFUSED
    if kind not in (OF_A_GROUP, OF_A_TRANSACTION):
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if access.version < 4:
        if not allowed(request.key):
            raise ProtocolError("Authorization failed.", ErrorCode(code))
        return None
    request.coordinator_keys, refused = split(request.coordinator_keys, allowed)
    refusals = [
        FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code
        )
        for key in refused
    ]

    def amend(response: FindCoordinatorResponse) -> None:
        response.coordinators = [*response.coordinators, *refusals]

    return amend if refused else None


def guard_describe_groups(request: Any, access: Access) -> Amend:
    """DESCRIBE of each group."""
    request.groups, refused = split(
        request.groups, lambda group: access.group(Operation.DESCRIBE, group)
    )

    def amend(response: DescribeGroupsResponse) -> None:
        _tell_operations(response, access, access.version >= 3 and request)
        made = [
            DescribeGroupsResponse.Group(group_id=each, error_code=GROUP_REFUSED)
            for each in refused
        ]
        response.groups = [*response.groups, *made]

    return amend


def _tell_operations(response: Any, access: Access, request: Any) -> None:
    if not request or not request.include_authorized_operations:
        return
    for each in response.groups:
        if not each.error_code:
            each.authorized_operations = access.operations(
                Resource.GROUP, each.group_id, GROUP_OPERATIONS
            )


def guard_describe_consumers(request: Any, access: Access) -> Amend:
    """DESCRIBE of each group, and of every topic in the answer."""
    request.group_ids, refused = split(
        request.group_ids, lambda group: access.group(Operation.DESCRIBE, group)
    )

    def amend(response: ConsumerGroupDescribeResponse) -> None:
        _tell_operations(response, access, request)
        made = ConsumerGroupDescribeResponse.Group
        response.groups = [
            *(_without_secret_topics(each, access) for each in response.groups),
            *(
                made(group_id=each, error_code=GROUP_REFUSED, error_message=MESSAGE)
                for each in refused
            ),
        ]

    return amend


def _without_secret_topics(
    group: ConsumerGroupDescribeResponse.Group, access: Access
) -> ConsumerGroupDescribeResponse.Group:
    names = {name for member in group.members for name in member.subscribed_topic_names}
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


def guard_list_groups(request: Any, access: Access) -> Amend | None:
    """All groups for clients that may describe the cluster; else those they may describe."""
    if access.cluster(Operation.DESCRIBE):
        return None

    def amend(response: Any) -> None:
        response.groups = [
            each for each in response.groups if access.group(Operation.DESCRIBE, each.group_id)
        ]

    return amend


def guard_delete_groups(request: Any, access: Access) -> Amend | None:
    """DELETE of each group."""
    request.groups_names, refused = split(
        request.groups_names, lambda group: access.group(Operation.DELETE, group)
    )
    refusals = [
        DeleteGroupsResponse.Result(group_id=each, error_code=GROUP_REFUSED) for each in refused
    ]

    def amend(response: DeleteGroupsResponse) -> None:
        response.results = [*response.results, *refusals]

    return amend if refused else None


def guard_commit(request: Any, access: Access) -> Amend | None:
    """READ of the group and of each topic."""
    return guard_offsets(request, access)


def guard_offsets(request: Any, access: Access) -> Amend | None:
    """The common part of OffsetCommit and TxnOffsetCommit."""
    if not access.group(Operation.READ, request.group_id):
        raise Answered(refuse_topics(access.key, request.topics, GROUP_REFUSED))
    request.topics, refused = split(
        request.topics, lambda topic: access.topic_item(Operation.READ, topic)
    )
    return add_refused(access.key, refused)


def refuse_topics(key: int, topics: list[Any], code: int) -> Any:
    """A response with this error for each partition of a request's topics."""
    made: Any = APIS[key].response
    return made(topics=[refusal(made.Topic, topic, code) for topic in topics])


def guard_delete_offsets(request: Any, access: Access) -> Amend | None:
    """DELETE of the group, READ of each topic."""
    access.need_group(Operation.DELETE, request.group_id)
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(Operation.READ, topic.name)
    )
    return add_refused(access.key, refused)


def guard_fetch_offsets(request: Any, access: Access) -> Amend | None:
    """DESCRIBE of the group and of each topic; a request for all topics gets those allowed."""
    if access.version < 8:
        return _guard_one_group(request, access)
    request.groups, refused = split(
        request.groups, lambda group: access.group(Operation.DESCRIBE, group.group_id)
    )
    made = OffsetFetchResponse.Group
    hidden: dict[str, list[Any]] = {}
    for group in request.groups:
        if group.topics is not None:
            group.topics, hidden[group.group_id] = split(
                group.topics, lambda topic: access.topic_item(Operation.DESCRIBE, topic)
            )

    def amend(response: OffsetFetchResponse) -> None:
        for group in response.groups:
            if group.group_id in hidden:
                refusals = [_nothing(made.Topic, each) for each in hidden[group.group_id]]
                group.topics = [*group.topics, *([] if group.error_code else refusals)]
            else:
                group.topics = [
                    each for each in group.topics if access.topic_item(Operation.DESCRIBE, each)
                ]
        response.groups = [
            *response.groups,
            *(
                made(group_id=each.group_id, topics=[], error_code=GROUP_REFUSED)
                for each in refused
            ),
        ]

    return amend


def _nothing(made: Any, topic: Any) -> Any:
    answer = refusal(made, topic, TOPIC_REFUSED)
    for each in answer.partitions:
        each.committed_offset, each.metadata = -1, ""
    return answer


def _guard_one_group(request: Any, access: Access) -> Amend | None:
    made = OffsetFetchResponse.Topic
    if not access.group(Operation.DESCRIBE, request.group_id):
        response = OffsetFetchResponse(topics=[])
        if access.version >= 2:
            response.error_code = GROUP_REFUSED
        else:
            response.topics = [refusal(made, each, GROUP_REFUSED) for each in request.topics]
        raise Answered(response)
    if request.topics is None:

        def hide(response: OffsetFetchResponse) -> None:
            response.topics = [
                each for each in response.topics if access.topic(Operation.DESCRIBE, each.name)
            ]

        return hide
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(Operation.DESCRIBE, topic.name)
    )

    def amend(response: OffsetFetchResponse) -> None:
        response.topics = [*response.topics, *(_nothing(made, each) for each in refused)]

    return amend if refused else None
