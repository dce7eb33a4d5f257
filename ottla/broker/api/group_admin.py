"""DescribeGroups, ListGroups, DeleteGroups: requests of administrators."""

from __future__ import annotations

import asyncio

from ottla.broker.coordination.answers import answer_of
from ottla.broker.coordination.group_coordinator import GroupCoordinator
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import GROUP_REFUSED, Access
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices, in_parts
from ottla.groups.classic.group import ClassicState
from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.errors import GroupIdNotFound
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

NOT_ASKED = -(1 << 31)
GROUPS_AT_ONCE = 50
"""How many groups are deleted at the same time."""
OPERATIONS = (
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""The operations that apply to groups (KIP-430)."""


def authorized_operations(asked: bool, group_id: str, access: Access) -> int:
    """The client's allowed operations on a group as bits, if it asked for them."""
    return access.operations(Resource.GROUP, group_id, OPERATIONS) if asked else NOT_ASKED


@handles(ApiKey.DESCRIBE_GROUPS, access=by_item)
async def describe_groups(
    request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    """Report state and members of classic groups; unknown groups are reported as Dead.

    Requires DESCRIBE on each group.
    """
    access, made = context.access, DescribeGroupsResponse.Group
    asked, refused = await access.divide(
        request.groups, lambda group: access.group(Operation.DESCRIBE, group)
    )
    operations, slices = request.include_authorized_operations, Slices()
    groups = [await _describe(each, operations, context, slices) for each in asked]
    groups += [made(group_id=each, error_code=GROUP_REFUSED) for each in refused]
    return DescribeGroupsResponse(groups=groups)


async def _describe(
    group_id: str, operations: bool, context: RequestContext, slices: Slices
) -> DescribeGroupsResponse.Group:
    answer = DescribeGroupsResponse.Group(group_id=group_id)
    if slices.over:
        await slices.pause()
    try:
        shard = context.broker.coordinators.groups.runtime.shard(group_id)
        group = shard.group_of(ServedClassicGroup, group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
    except ProtocolError as error:
        answer.group_state = "Dead" if isinstance(error, GroupIdNotFound) else ""
        # Before version 6 an unknown group is reported as Dead without an error (KIP-1043).
        if context.version >= 6 or not isinstance(error, GroupIdNotFound):
            answer.error_code = int(error.code)
        else:
            answer.authorized_operations = authorized_operations(
                operations, group_id, context.access
            )
        if context.version >= 6:
            answer.error_message = error.message
        return answer
    answer.authorized_operations = authorized_operations(operations, group_id, context.access)
    stable = group.state is ClassicState.STABLE
    answer.group_state = group.state_name
    answer.protocol_type = group.protocol_type or ""
    answer.protocol_data = (group.protocol or "") if stable else ""
    protocol = group.protocol
    answer.members = [
        DescribeGroupsResponse.Group.Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id if context.version >= 4 else None,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if stable else b"",
            member_assignment=member.assignment,
        )
        async for member in slices.each(list(group.members.values()))
    ]
    return answer


@handles(ApiKey.LIST_GROUPS, access=by_item)
async def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups that this broker coordinates, filtered by state and type (KIP-518, KIP-848).

    Clients with DESCRIBE on the cluster see all groups. Other clients see the groups that they may
    describe.
    """
    access = context.access.quiet
    lists_all = access.cluster(Operation.DESCRIBE)
    runtime = context.broker.coordinators.groups.runtime
    states = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    present = [group for shard in runtime.shards() for group in shard.groups.values()]
    groups = [
        ListGroupsResponse.Group(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name if context.version >= 4 else "",
            group_type=group.type_name if context.version >= 5 else "",
        )
        async for group in Slices().each(present)
        if (not states or group.state_name.lower() in states)
        and (not types or group.type_name in types)
        and (lists_all or access.group(Operation.DESCRIBE, group.group_id))
    ]
    # Groups that are still being loaded are missing here: the client has to ask again.
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if runtime.is_loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=int(code), groups=groups)


@handles(ApiKey.DELETE_GROUPS, access=by_item)
async def delete_groups(
    request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    """Delete groups that have no members, and their offsets.

    Requires DELETE on each group.
    """
    access, made = context.access, DeleteGroupsResponse.Result
    asked, refused = await access.divide(
        request.groups_names, lambda group: access.group(Operation.DELETE, group)
    )
    group_ids = list(dict.fromkeys(asked))
    results = []
    for part in in_parts(group_ids, GROUPS_AT_ONCE):
        results += await asyncio.gather(*(_delete(group_id, context) for group_id in part))
    results += [made(group_id=each, error_code=GROUP_REFUSED) for each in refused]
    return DeleteGroupsResponse(results=results)


async def _delete(group_id: str, context: RequestContext) -> DeleteGroupsResponse.Result:
    answer = DeleteGroupsResponse.Result(group_id=group_id)
    # If the client disconnects, the deletion still completes.
    error = await asyncio.shield(_delete_in_parts(group_id, context.broker.coordinators.groups))
    if error is not None:
        answer.error_code = int(error.code)
        if context.version >= 3:
            answer.error_message = error.message
    return answer


async def _delete_in_parts(group_id: str, groups: GroupCoordinator) -> ProtocolError | None:
    """Delete a group. Returns an error instead of raising it, since nothing would catch it once the
    client is gone."""
    try:
        while await answer_of(
            groups, group_id, lambda shard, result: shard.delete_group(group_id, result)
        ):
            pass
    except ProtocolError as error:
        shard = groups.runtime.live_shard(group_id)
        if shard is not None:
            shard.keep_group(group_id)
        return error
    return None
