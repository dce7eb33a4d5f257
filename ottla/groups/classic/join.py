"""JoinGroup: who may join a classic group, and what a join changes (KIP-345, KIP-394, KIP-814)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.messages import Join, Joined, JoinedMember, NewMemberId
from ottla.groups.classic.notes import note_joined, note_joined_again, note_member
from ottla.groups.classic.rebalance import (
    SESSION,
    arm_session,
    complete_if_joined,
    joined,
    rebalance,
    remove,
)
from ottla.groups.errors import (
    FencedInstance,
    GroupMaxSizeReached,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from ottla.groups.records import GroupKey, Record
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.result import Answer, Result
    from ottla.groups.settings import GroupSettings
    from ottla.wire.errors import ProtocolError


def join(
    group: ClassicGroup,
    request: Join,
    answer: Answer,
    result: Result,
    settings: GroupSettings,
    new_id: Callable[[], str],
) -> None:
    """Let a member join; the reply is sent when all members have joined.

    Raises UnknownMember, FencedInstance, InconsistentProtocol, GroupMaxSizeReached, NewMemberId.
    """
    _check_size(group, request.member_id, result, settings)
    if not group.supports(request.protocol_type, request.protocols):
        raise InconsistentProtocol(
            f"all members of group {group.group_id} support the protocols"
            f" {group.common_protocols()} of type {group.protocol_type}, but this member supports"
            f" {[name for name, _ in request.protocols]} of type {request.protocol_type}"
        )
    if request.member_id:
        _join_again(group, request, answer, result, settings)
        return
    member_id = f"{request.instance_id or request.client_id}-{new_id()}"
    if request.instance_id is not None and request.instance_id in group.static_members:
        _replace_static(group, member_id, request, answer, result, settings)
    elif request.instance_id is None and request.needs_member_id:
        group.pending_joins.add(member_id)
        result.set_timer(SESSION, group.group_id, member_id, after_ms=request.session_timeout_ms)
        raise NewMemberId(member_id)
    else:
        _add(group, member_id, request, answer, result, settings)


def _check_size(
    group: ClassicGroup, member_id: str, result: Result, settings: GroupSettings
) -> None:
    """Raises GroupMaxSizeReached if the group is full. During a rebalance, only members that have
    joined are counted: the other members may be gone."""
    if group.state is ClassicState.EMPTY or len(group.members) < settings.group_max_size:
        return
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING:
        welcome = member is not None and member.awaits_join is not None
        size = sum(member.awaits_join is not None for member in group.members.values())
    else:
        welcome, size = member is not None, len(group.members)
    if not welcome and size >= settings.group_max_size:
        if member is not None:
            note_member(group, member, "no_room", result, group_max_size=settings.group_max_size)
            remove(group, member, result)
        elif member_id in group.pending_joins:
            group.pending_joins.discard(member_id)
            result.cancel_timer(SESSION, group.group_id, member_id)
        complete_if_joined(group, result)       # the others may have waited for this client alone
        raise GroupMaxSizeReached(
            f"group {group.group_id} has {size} members already, and group.max.size allows no more")


def _join_again(
    group: ClassicGroup, request: Join, answer: Answer, result: Result, settings: GroupSettings
) -> None:
    if request.member_id in group.pending_joins:
        _add(group, request.member_id, request, answer, result, settings)
        return
    member = group.check_member(request.member_id, request.instance_id)
    same = member.protocols == request.protocols
    if group.state is ClassicState.COMPLETING and same:
        # The member did not receive the first reply.
        result.reply(answer, joined(group, member))
    elif group.state is ClassicState.STABLE and same and group.leader != member.member_id:
        # Nothing has changed; the member only needs its assignment, which SyncGroup returns. The
        # leader is not answered here: it may want to assign anew, because a topic has changed.
        result.reply(answer, joined(group, member))
    elif group.state is ClassicState.EMPTY:
        raise UnknownMember(f"group {group.group_id} has no members left")
    else:
        note_joined_again(group, member, request, result)
        _update(group, member, request, answer, result)
        rebalance(group, result, settings)


def _add(
    group: ClassicGroup,
    member_id: str,
    request: Join,
    answer: Answer,
    result: Result,
    settings: GroupSettings,
) -> None:
    if group.state is ClassicState.PREPARING and group.came_from_empty:
        group.joined_in_delay = True
    member = _member(member_id, request)
    member.awaits_join, member.is_new = answer, True
    group.add(member, request.protocol_type)
    group.last_joined = member_id
    note_joined(group, member, request, result)
    # If a client's connection breaks during the wait, the client does not know its member id and
    # joins as another member. Without this timeout, such members would accumulate in the group.
    arm_session(group, member, result, settings.group_new_member_join_timeout_ms)
    rebalance(group, result, settings)


def _member(member_id: str, request: Join) -> ClassicMember:
    return ClassicMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )


def _update(
    group: ClassicGroup, member: ClassicMember, request: Join, answer: Answer, result: Result
) -> None:
    if member.awaits_join is not None:
        result.reply(member.awaits_join, RebalanceInProgress(
            "the member has sent JoinGroup again, which replaces this request"))
    if member.protocols != request.protocols:
        member.protocols = request.protocols
        group.protocols_changed()
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.awaits_join = answer
    group.last_joined = member.member_id


def _replace_static(
    group: ClassicGroup,
    member_id: str,
    request: Join,
    answer: Answer,
    result: Result,
    settings: GroupSettings,
) -> None:
    """A static member has restarted: the new member takes the place of the old one, which is
    fenced."""
    old_id = group.static_members[request.instance_id or ""]
    old, successor = group.members[old_id], _member(member_id, request)
    successor.assignment = old.assignment
    note_member(group, successor, "replaced", result, former=old_id, reason=request.reason)
    if group.state is ClassicState.STABLE and group.protocol == group.choose_protocol_of(
        [member for member in group.members.values() if member is not old] + [successor]
    ):
        _take_over(group, old, successor, request, answer, result)
        return
    group.replace_static(old_id, successor)
    group.last_joined = member_id
    for waiting in (old.awaits_join, old.awaits_sync):
        if waiting is not None:
            reached("a static member took the place of one that waits")
            result.reply(waiting, FencedInstance(
                f"member {member_id} has taken over the instance id"))
    result.cancel_timer(SESSION, group.group_id, old_id)
    arm_session(group, successor, result)
    successor.awaits_join = answer
    if group.state is ClassicState.PREPARING:
        complete_if_joined(group, result)
    else:
        # The leader may already be assigning partitions to the old id, or the group's protocol
        # changes: begin another generation.
        rebalance(group, result, settings)


def _take_over(
    group: ClassicGroup,
    old: ClassicMember,
    member: ClassicMember,
    request: Join,
    answer: Answer,
    result: Result,
) -> None:
    """Keeps the generation: only the member's id changes, and this change is recorded."""
    reached("a static member came back to a stable group")
    value = group.with_successor(old.member_id, member, result.wall_ms)
    result.records.append(Record(GroupKey(group.group_id), value))
    # The old member's session timer stays: if the log refuses the record, that member stays in the
    # group.
    arm_session(group, member, result)

    def replayed(error: ProtocolError | None) -> None:
        if error is None:
            group.keep(member)
            # The group waits for the SyncGroup of the new member now. A wait for the old member
            # would end in a rebalance.
            if old.member_id in group.pending_syncs:
                group.pending_syncs.remove(old.member_id)
                group.pending_syncs.add(member.member_id)

    result.after_replay.append(replayed)
    leads = value.leader == member.member_id
    # The leader must not assign now: a stable group would ignore the assignment. An old client does
    # not assign, because the leader id in the reply is its former member id; a newer client obeys
    # skip_assignment.
    skips = request.may_skip_assignment
    reply = Joined(
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        (value.leader if skips else group.leader) or "",
        skip_assignment=skips and leads,
        members=tuple(
            JoinedMember(each.member_id, each.instance_id, each.subscription)
            for each in value.members
        )
        if skips and leads
        else (),
    )
    result.reply(answer, reply)
