"""The events that a classic group adds to its history (`groups/history`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.subscription import read_subscription
from ottla.groups.history.group_history import BEGAN, EMPTIED, GATHERED, REBALANCED

if TYPE_CHECKING:
    from ottla.groups.classic.messages import Join, Leaving
    from ottla.groups.result import Result


def note_member(
    group: ClassicGroup, member: ClassicMember, kind: str, result: Result, **fields: Any
) -> None:
    """Note an event of a member."""
    result.note(
        group.group_id, kind, member=member.member_id, instance=member.instance_id,
        client=member.client_id, host=member.client_host.lstrip("/"), **fields,
    )


def note_joined(
    group: ClassicGroup, member: ClassicMember, request: Join, result: Result
) -> None:
    """A new member has sent its first JoinGroup."""
    topics = topics_of(request.protocols)
    note_member(group, member, "joined", result, topics=topics, reason=request.reason)


def note_joined_again(
    group: ClassicGroup, member: ClassicMember, request: Join, result: Result
) -> None:
    """A member joins again without having been asked to: it makes the group rebalance."""
    if group.state is ClassicState.PREPARING:
        return
    before, topics = topics_of(member.protocols), topics_of(request.protocols)
    if topics is not None and before is not None and {*topics} != {*before}:
        note_member(
            group, member, "subscription_changed", result,
            added=tuple(sorted({*topics} - {*before})),
            removed=tuple(sorted({*before} - {*topics})),
        )
    else:
        note_member(
            group, member, "joined_again", result, reason=request.reason,
            leads=group.leader == member.member_id,
        )


def note_left(
    group: ClassicGroup, member: ClassicMember, leaving: Leaving, result: Result
) -> None:
    """A LeaveGroup removes a member. Without a member id, an administrator has sent it."""
    note_member(
        group, member, "left", result, by_administrator=not leaving.member_id,
        reason=leaving.reason,
    )


def note_began(group: ClassicGroup, result: Result) -> None:
    """The group begins to collect the members of its next generation."""
    result.note(group.group_id, BEGAN)


def note_gathered(group: ClassicGroup, result: Result) -> None:
    """The next generation has its members."""
    result.note(
        group.group_id, GATHERED, last=group.last_joined,
        initial_delay=group.came_from_empty,
    )


def note_rebalanced(group: ClassicGroup, result: Result) -> None:
    """The leader's assignment is recorded."""
    result.note(
        group.group_id, REBALANCED, generation=group.generation, members=len(group.members),
        leader=group.leader, protocol=group.protocol,
    )


def note_emptied(group: ClassicGroup, result: Result) -> None:
    """The group has no members any more."""
    result.note(group.group_id, EMPTIED)


def topics_of(protocols: tuple[tuple[str, bytes], ...]) -> tuple[str, ...] | None:
    """The topics of a consumer's subscription; None for other protocols."""
    subscription = read_subscription(protocols[0][1]) if protocols else None
    return None if subscription is None else tuple(sorted(subscription.topics))
