"""The events that a KIP-848 group adds to its history (`groups/history`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.groups.history.group_history import BEGAN, EMPTIED, REBALANCED
from ottla.groups.records import MemberState

if TYPE_CHECKING:
    from ottla.groups.consumer.draft import Draft
    from ottla.groups.consumer.group import ConsumerGroup
    from ottla.groups.records import ConsumerMemberValue, CurrentMemberValue
    from ottla.groups.result import Result


def note_member(
    group_id: str, member_id: str, value: ConsumerMemberValue, kind: str, result: Result,
    **fields: Any,
) -> None:
    """Note an event of a member."""
    result.note(
        group_id, kind, member=member_id, instance=value.instance_id, client=value.client_id,
        host=value.client_host.lstrip("/"), **fields,
    )


def note_arrival(
    group_id: str, member_id: str, value: ConsumerMemberValue,
    former: tuple[str, ConsumerMemberValue] | None, result: Result, reason: str | None = None,
) -> None:
    """Add an event if a member is new, takes a static member's place, or changes its topics."""
    if former is None:
        topics = tuple(sorted(value.topics))
        note_member(
            group_id, member_id, value, "joined", result, topics=topics, pattern=value.pattern,
            reason=reason,
        )
    elif former[0] != member_id:
        note_member(
            group_id, member_id, value, "replaced", result, former=former[0], reason=reason
        )
    elif (before := former[1]) and (
        before.topics != value.topics or before.pattern != value.pattern
    ):
        note_member(
            group_id, member_id, value, "subscription_changed", result,
            added=tuple(sorted(value.topics - before.topics)),
            removed=tuple(sorted(before.topics - value.topics)),
            pattern=value.pattern if value.pattern != before.pattern else None,
        )


def note_began(group_id: str, result: Result) -> None:
    """The group epoch has grown: there will be a new assignment."""
    result.note(group_id, BEGAN)


def note_emptied(group_id: str, result: Result) -> None:
    """The last member has left."""
    result.note(group_id, EMPTIED)


def note_if_settled(
    group: ConsumerGroup, draft: Draft, member_id: str, before: CurrentMemberValue,
    after: CurrentMemberValue, result: Result,
) -> None:
    """Note the end of a rebalance, if this step has brought the last member to its target."""
    epoch = draft.epoch
    if after is before or after.state != MemberState.STABLE or after.epoch != epoch:
        return
    others = draft.members.keys() - {member_id}
    if draft.target_epoch == epoch and all(
        each in group.members and group.members[each].is_reconciled(epoch) for each in others
    ):
        result.note(
            group.group_id, REBALANCED, generation=epoch, members=len(draft.members),
            last=member_id,
        )
