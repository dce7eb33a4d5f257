"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic group protocol."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.broker.api.group_offsets import commit_code
from ottla.broker.coordination.answers import answer_later, answer_of, deliver_to
from ottla.broker.dispatch import handles
from ottla.broker.network.promises import LateReply
from ottla.broker.request_context import RequestContext
from ottla.broker.security.decisions import on_group
from ottla.groups.classic.messages import Join, Joined, Leaving, NewMemberId, Sync, Synced
from ottla.groups.errors import (
    FINAL,
    CoordinatorLoadInProgress,
    InconsistentProtocol,
    UnknownMember,
)
from ottla.replication.controller.access import Operation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from ottla.groups.runtime import Runtime


@handles(ApiKey.JOIN_GROUP, access=on_group(Operation.READ))
async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Join, and wait until the whole group has joined; only this client's connection waits."""
    coordinator = context.broker.coordinators.groups
    rebalance_timeout_ms = request.rebalance_timeout_ms
    join = Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        context.client.client_id or "",
        f"/{context.client.host}",
        request.session_timeout_ms,
        request.session_timeout_ms if context.version == 0 else rebalance_timeout_ms,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_member_id=context.version >= 4,
        may_skip_assignment=context.version >= 9,
        sees=context.access.sight(),
        reason=request.reason,
    )
    future: asyncio.Future[Any] = coordinator.loop.create_future()
    answer = deliver_to(future)
    try:
        coordinator.runtime.attempt(
            join.group_id, lambda shard, result: shard.join(join, answer, result), answer
        )
        return _joined(await future, context.version)
    except ProtocolError as error:
        member_id = error.member_id if isinstance(error, NewMemberId) else request.member_id
        return JoinGroupResponse(
            error_code=int(error.code),
            generation_id=-1,
            protocol_name=None if context.version >= 7 else "",
            member_id=member_id,
        )


def _joined(reply: Joined, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type if version >= 7 else None,
        protocol_name=reply.protocol or (None if version >= 7 else ""),
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id if version >= 5 else None,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )


@handles(ApiKey.SYNC_GROUP, access=on_group(Operation.READ))
async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Submit the leader's assignment, or wait for it."""
    coordinator = context.broker.coordinators.groups
    if context.version >= 5 and None in (request.protocol_type, request.protocol_name):
        raise InconsistentProtocol(
            "SyncGroup version 5 and later needs a protocol type and a protocol name")
    sync = Sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    future: asyncio.Future[Any] = coordinator.loop.create_future()
    answer = deliver_to(future)
    coordinator.runtime.attempt(
        sync.group_id, lambda shard, result: shard.sync(sync, answer, result), answer
    )
    reply: Synced = await future
    return SyncGroupResponse(
        protocol_type=reply.protocol_type if context.version >= 5 else None,
        protocol_name=reply.protocol if context.version >= 5 else None,
        assignment=reply.assignment,
    )


@handles(ApiKey.HEARTBEAT, access=on_group(Operation.READ))
def heartbeat(
    request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | LateReply:
    """Keep a member's session alive. After an error in FINAL, a client gives up its partitions. So
    in a cluster, such an error is sent only after this broker has confirmed that it still
    coordinates the group."""
    runtime = context.broker.coordinators.groups.runtime
    try:
        code = runtime.shard(request.group_id).heartbeat(
            request.group_id, request.generation_id, request.member_id,
            request.group_instance_id, runtime.tick_ms(),
        )
        if code is None:
            code = _heartbeat_turn(request, runtime)
    except CoordinatorLoadInProgress:
        code = ErrorCode.NONE  # the member's session starts once the group is loaded
    except FINAL as error:
        if not runtime.replicated:
            raise
        kept = error.kept()
        return answer_later(
            runtime.gather, request.group_id, lambda shard, result: _refuse(kept),
            lambda reply: _heartbeat_answer(commit_code(reply.code)),
        )
    return _heartbeat_answer(code)


def _refuse(error: ProtocolError) -> NoReturn:
    raise error


def _heartbeat_turn(request: HeartbeatRequest, runtime: Runtime) -> ErrorCode:
    member = (
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    code: ErrorCode = runtime.turn(
        request.group_id, lambda shard, result: shard.heartbeat_turn(*member, result)
    )
    return code


@cache
def _heartbeat_answer(code: ErrorCode) -> HeartbeatResponse:
    """A cached answer, never modified: there are many heartbeats but few different answers."""
    return HeartbeatResponse(error_code=int(code))


@handles(ApiKey.LEAVE_GROUP, access=on_group(Operation.READ))
async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Leave, or remove members on behalf of an administrator."""
    coordinator = context.broker.coordinators.groups
    if context.version < 3:
        leaving = [Leaving(request.member_id)]
    else:
        leaving = [
            Leaving(each.member_id, each.group_instance_id, each.reason)
            for each in request.members
        ]
    try:
        codes = await answer_of(
            coordinator,
            request.group_id,
            lambda shard, result: shard.leave(request.group_id, leaving, result),
        )
    except UnknownMember as error:  # the group does not exist, so it has no members
        codes = [error.code] * len(leaving)
    if context.version < 3:
        return LeaveGroupResponse(error_code=int(codes[0]))
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.Member(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                error_code=int(code),
            )
            for each, code in zip(leaving, codes, strict=True)
        ]
    )
