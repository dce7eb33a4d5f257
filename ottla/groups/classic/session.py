"""SyncGroup and LeaveGroup of a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.groups.classic.group import ClassicGroup, ClassicState
from ottla.groups.classic.messages import Leaving, Sync, Synced
from ottla.groups.classic.notes import note_left, note_rebalanced
from ottla.groups.classic.rebalance import (
    JOIN,
    SESSION,
    SYNC,
    arm_session,
    complete_if_joined,
    rebalance,
    remove,
)
from ottla.groups.errors import (
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
)
from ottla.groups.records import GroupKey, Record
from ottla.groups.result import RETRY_MS
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.result import Answer, Result
    from ottla.groups.settings import GroupSettings


def sync(group: ClassicGroup, request: Sync, answer: Answer, result: Result) -> None:
    """Give a member its assignment, once the leader's SyncGroup is committed.

    Raises UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol,
    RebalanceInProgress.
    """
    member = group.check_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        reached("a SyncGroup of an old generation")
        raise IllegalGeneration(
            f"the group is in generation {group.generation}, but the request has"
            f" generation {request.generation}"
        )
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol, group.protocol
    ):
        raise InconsistentProtocol(
            f"group {group.group_id} uses the protocol {group.protocol} of type"
            f" {group.protocol_type}, not {request.protocol} of type {request.protocol_type}"
        )
    assert group.state is not ClassicState.EMPTY, "a group with members is in state Empty"
    if group.state is ClassicState.PREPARING:
        raise RebalanceInProgress("the group waits for members to join: join again")
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        result.cancel_timer(SYNC, group.group_id)
    if group.state is ClassicState.STABLE:
        result.reply(answer, Synced(group.protocol_type, group.protocol, member.assignment))
        return
    if member.awaits_sync is not None:
        reached("a SyncGroup was sent twice")
        result.reply(member.awaits_sync, RebalanceInProgress(
            "the member has sent SyncGroup again, which replaces this request"))
    member.awaits_sync = answer
    if group.leader == member.member_id:
        _assign(group, dict(request.assignments), result)


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def _assign(group: ClassicGroup, assignments: dict[str, bytes], result: Result) -> None:
    """Record the leader's assignment; the replay of the record makes the group stable."""
    assert group.state is ClassicState.COMPLETING, "the group's state is not CompletingRebalance"
    value = group.value(result.wall_ms, assignments)
    result.records.append(Record(GroupKey(group.group_id), value))
    note_rebalanced(group, result)

    def replayed(error: ProtocolError | None) -> None:
        if error is None:
            group.refused = ""
        elif group.state is ClassicState.COMPLETING:
            reached("the log refused an assignment")
            group.assignment_refused(str(error), result.wall_ms)

    result.after_replay.append(replayed)
    # This timer ends the pause if the log refuses the record; a stable group ignores it.
    result.set_timer(JOIN, group.group_id, after_ms=RETRY_MS)
    for member in group.members.values():
        if member.awaits_sync is not None:
            assignment = assignments.get(member.member_id, b"")
            reply = Synced(group.protocol_type, group.protocol, assignment)
            result.reply(member.awaits_sync, reply)
            member.awaits_sync = None
        arm_session(group, member, result)


def leave(
    group: ClassicGroup, leaving: Sequence[Leaving], result: Result, settings: GroupSettings
) -> list[ErrorCode]:
    """Remove members at their own or an administrator's request; returns a code for each."""
    codes = [_leave_one(group, member, result) for member in leaving]
    if any(code is ErrorCode.NONE for code in codes):
        if group.state is ClassicState.PREPARING:
            complete_if_joined(group, result)
        elif group.state is not ClassicState.EMPTY:
            rebalance(group, result, settings)
    return codes


def _leave_one(group: ClassicGroup, leaving: Leaving, result: Result) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id:
        member_id = group.static_members.get(leaving.instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_joins:
        group.pending_joins.discard(member_id)
        result.cancel_timer(SESSION, group.group_id, member_id)
        return ErrorCode.NONE
    try:
        member = group.check_member(member_id, leaving.instance_id)
    except ProtocolError as error:
        return error.code
    note_left(group, member, leaving, result)
    remove(group, member, result)
    return ErrorCode.NONE
