"""How a classic group gets from one generation to the next.

`rebalance` begins the next generation, members join (`join`), `complete_join` answers all of them,
and the leader's SyncGroup (`session`) ends the rebalance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.messages import Joined, JoinedMember
from ottla.groups.classic.notes import (
    note_began,
    note_emptied,
    note_gathered,
    note_member,
)
from ottla.groups.errors import RebalanceInProgress, UnknownMember
from ottla.groups.records import GroupKey, Record
from ottla.groups.result import RETRY_MS, Result
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.settings import GroupSettings

SESSION, JOIN, SYNC = "session", "join", "sync"
"""Timers: a member's session, the wait for joins, the wait for syncs."""


def arm_session(
    group: ClassicGroup, member: ClassicMember, result: Result, timeout_ms: int | None = None
) -> None:
    """Restarts a member's session timeout."""
    member.deadline_ms = result.set_timer(
        SESSION,
        group.group_id,
        member.member_id,
        after_ms=member.session_timeout_ms if timeout_ms is None else timeout_ms,
    )


def rebalance(group: ClassicGroup, result: Result, settings: GroupSettings) -> None:
    """Starts, or continues, to collect the members of a new generation."""
    if group.state is ClassicState.PREPARING:
        complete_if_joined(group, result)
        return
    if group.state is ClassicState.COMPLETING:
        refuse_syncs(group, result)
    result.cancel_timer(SYNC, group.group_id)
    group.came_from_empty = group.state is ClassicState.EMPTY
    group.joined_in_delay = False
    if group.came_from_empty:
        group.refused = ""
    group.move(ClassicState.PREPARING, result.wall_ms)
    note_began(group, result)
    if group.came_from_empty:
        # The group is new: wait for more members, to avoid further rebalances.
        delay_ms = settings.group_initial_rebalance_delay_ms
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        result.set_timer(JOIN, group.group_id, after_ms=delay_ms)
    elif group.all_have_joined:
        complete_join(group, result)
    else:
        result.set_timer(JOIN, group.group_id, after_ms=group.rebalance_timeout_ms)


def refuse_syncs(group: ClassicGroup, result: Result) -> None:
    """Refuses pending SyncGroups, since a new rebalance invalidates the assignment."""
    for member in group.members.values():
        member.assignment = b""
        if member.awaits_sync is not None:
            reached("a SyncGroup was refused as its group rebalances again")
            result.reply(member.awaits_sync, RebalanceInProgress(
                "the group rebalances again: join again"))
            member.awaits_sync = None
        arm_session(group, member, result)


def complete_if_joined(group: ClassicGroup, result: Result) -> None:
    """Ends the wait for joins when all members have joined, unless the initial delay or a pause is
    running."""
    if (
        group.state is ClassicState.PREPARING
        and not group.came_from_empty
        and not group.pauses
        and group.all_have_joined
    ):
        complete_join(group, result)


def join_timer_fired(group: ClassicGroup, result: Result, settings: GroupSettings) -> None:
    """Called when the wait for joins times out. Extends the initial delay if a member joined during
    it and time is left. After a pause, waits for the members that have not joined again. In all
    other cases, begins the new generation."""
    if group.state is not ClassicState.PREPARING:
        return
    if group.pauses:
        group.pauses = False
        if not group.all_have_joined:
            result.set_timer(JOIN, group.group_id, after_ms=group.rebalance_timeout_ms)
            return
    if group.came_from_empty and group.joined_in_delay and group.delay_left_ms > 0:
        reached("the initial delay of a group was extended")
        group.joined_in_delay = False
        delay_ms = min(settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms = max(
            group.delay_left_ms - settings.group_initial_rebalance_delay_ms, 0
        )
        result.set_timer(JOIN, group.group_id, after_ms=delay_ms)
    else:
        complete_join(group, result)


def complete_join(group: ClassicGroup, result: Result) -> None:
    """Begins the new generation with the members that have joined, and with all static members."""
    result.cancel_timer(JOIN, group.group_id)
    late = [m for m in group.members.values() if m.awaits_join is None and m.instance_id is None]
    for member in late:
        reached("a member that did not rejoin was removed")
        note_member(
            group, member, "did_not_join", result, timeout_ms=group.rebalance_timeout_ms
        )
        group.remove(member.member_id)
        result.cancel_timer(SESSION, group.group_id, member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none has rejoined: wait until one does, or until their
        # sessions end.
        result.set_timer(JOIN, group.group_id, after_ms=group.rebalance_timeout_ms)
        return
    if not group.members:
        reached("a classic group became empty at the end of a join")
        record = Record(GroupKey(group.group_id), group.emptied(result.wall_ms))
        result.records.append(record)
        note_emptied(group, result)
        # If the log refuses the record, the group is unchanged. This timer then tries again.
        result.set_timer(JOIN, group.group_id, after_ms=RETRY_MS)
        return
    group.next_generation(result.wall_ms)
    note_gathered(group, result)
    result.set_timer(SYNC, group.group_id, after_ms=group.rebalance_timeout_ms)
    for member in group.members.values():
        if member.awaits_join is not None:
            result.reply(member.awaits_join, joined(group, member))
            member.awaits_join = None
        arm_session(group, member, result)
        member.is_new = False
        group.pending_syncs.add(member.member_id)


def joined(group: ClassicGroup, member: ClassicMember) -> Joined:
    """The reply to this member's JoinGroup for the current generation."""
    leads = group.leader == member.member_id
    return Joined(
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        members=joined_members(group) if leads else (),
    )


def joined_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """All members, for the leader's assignor."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol))
        for member in group.members.values()
    )


def sync_timer_fired(group: ClassicGroup, result: Result, settings: GroupSettings) -> None:
    """Removes members that have joined but never sent SyncGroup."""
    if group.state not in (ClassicState.COMPLETING, ClassicState.STABLE):
        return
    if group.pending_syncs:
        for member_id in list(group.pending_syncs):
            reached("a member that never synced was removed")
            removed = group.remove(member_id)
            if removed is not None:
                timeout_ms = group.rebalance_timeout_ms
                note_member(group, removed, "did_not_sync", result, timeout_ms=timeout_ms)
            result.cancel_timer(SESSION, group.group_id, member_id)
        rebalance(group, result, settings)


def session_timer_fired(
    group: ClassicGroup, member_id: str, result: Result, settings: GroupSettings
) -> None:
    """Removes a member that has sent nothing during its session timeout."""
    if member_id in group.pending_joins:
        reached("a member id was assigned and never used")
        group.pending_joins.discard(member_id)
        complete_if_joined(group, result)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if member.deadline_ms > result.tick_ms:
        result.set_timer(
            SESSION, group.group_id, member_id, after_ms=member.deadline_ms - result.tick_ms
        )
        return
    if not member.is_new and (member.awaits_join is not None or member.awaits_sync is not None):
        return  # its request is pending; its session restarts with our reply
    reached("the session of a classic member ended")
    timeout_ms = member.session_timeout_ms
    if member.is_new:
        timeout_ms = settings.group_new_member_join_timeout_ms
    note_member(group, member, "silent", result, timeout_ms=timeout_ms)
    remove(group, member, result)
    if group.state is ClassicState.PREPARING:
        complete_if_joined(group, result)
    else:
        rebalance(group, result, settings)


def remove(group: ClassicGroup, member: ClassicMember, result: Result) -> None:
    """Removes a member and refuses its pending requests."""
    for waiting in (member.awaits_join, member.awaits_sync):
        if waiting is not None:
            reached("a member was removed while it waited")
            result.reply(waiting, UnknownMember("the member was removed while it waited"))
    member.awaits_join = member.awaits_sync = None
    group.remove(member.member_id)
    result.cancel_timer(SESSION, group.group_id, member.member_id)
