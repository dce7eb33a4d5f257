"""The present state of a group: what it waits for, and what will end the wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.groups.classic.subscription import read_assignment
from ottla.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup, ConsumerMember
from ottla.groups.history.sentences import cause
from ottla.groups.history.words import listed, named
from ottla.groups.records import MemberState
from ottla.wire.wording import counted, duration

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.group import Group
    from ottla.groups.history.group_history import Rebalance
    from ottla.groups.settings import GroupSettings

WAITED_FOR_MAX = 20
REBALANCING = "the group has been rebalancing"
TopicIndex = tuple[str, int]


class Finding(NamedTuple):
    """One fact about the present state of a group."""

    kind: str
    text: str
    fields: Mapping[str, Any] = {}


class Moment(NamedTuple):
    """The inputs of `standing` besides the group."""

    wall_ms: int
    tick_ms: int
    rebalance: Rebalance | None
    cluster: ClusterView
    settings: GroupSettings


def standing(group: Group, moment: Moment) -> Iterator[Finding]:
    """The facts about what a group of any kind waits for; nothing if it does not wait."""
    if isinstance(group, ClassicGroup):
        yield from _classic(group, moment)
    elif isinstance(group, ConsumerGroup):
        yield from _consumer(group, moment)


def owners(group: Group, cluster: ClusterView) -> dict[TopicIndex, str]:
    """The member that owns each partition, as far as the assignments can be read."""
    owner_of: dict[TopicIndex, str] = {}
    if isinstance(group, ClassicGroup):
        for member in group.members.values() if group.tells_topics else ():
            for topic, indexes in read_assignment(member.assignment).items():
                owner_of |= {(topic, index): member.member_id for index in indexes}
    elif isinstance(group, ConsumerGroup):
        for (topic_id, index), member_id in group.owners.items():
            named = cluster.topic_of_id(topic_id)
            if named is not None:
                owner_of[named.name, index] = member_id
    return owner_of


def _since(moment: Moment, fallback_ms: int) -> tuple[int, str]:
    """How long the group has been rebalancing, in ms, and a text that also says why. If the history
    lacks the beginning of the rebalance, the time counts from `fallback_ms` (Unix time; -1 if
    unknown)."""
    rebalance = moment.rebalance
    if rebalance is None:
        elapsed = max(0, moment.wall_ms - fallback_ms) if fallback_ms >= 0 else 0
        return elapsed, f" for {duration(elapsed)}" if elapsed else ""
    elapsed = moment.tick_ms - rebalance.began.tick_ms
    why = cause(rebalance)
    return elapsed, f" for {duration(elapsed)}" + (f", because {why}" if why else "")


def _nobody(since_ms: int, moment: Moment) -> Finding:
    members = "no members" if since_ms < 0 else (
        f"had no members for {duration(moment.wall_ms - since_ms)}")
    return Finding("no_members", f"the group has {members}: nobody reads",
                   {"since_ms": since_ms})


# Classic groups

def _classic(group: ClassicGroup, moment: Moment) -> Iterator[Finding]:
    if group.state is ClassicState.EMPTY:
        yield _nobody(group.state_ms, moment)
    elif group.refused and group.state is not ClassicState.STABLE:
        yield _refused(group, moment)
    if group.state is ClassicState.PREPARING and not group.pauses:
        yield from _preparing(group, moment)
    elif group.state is ClassicState.COMPLETING and not group.refused:
        yield _completing(group, moment)


def _refused(group: ClassicGroup, moment: Moment) -> Finding:
    elapsed, since = _since(moment, group.state_ms)
    return Finding(
        "assignment_refused",
        f"{REBALANCING}{since}; all members have joined, but the group's log refuses the"
        f" assignment: {group.refused}; the members join again until the log accepts an assignment",
        {"elapsed_ms": elapsed, "reason": group.refused},
    )


def _preparing(group: ClassicGroup, moment: Moment) -> Iterator[Finding]:
    elapsed, since = _since(moment, group.state_ms)
    if group.came_from_empty:
        delay_ms = moment.settings.group_initial_rebalance_delay_ms
        yield Finding(
            "initial_delay",
            f"the group has been forming{since}: the group waits for more members, as"
            f" group.initial.rebalance.delay.ms = {delay_ms} says",
            {"elapsed_ms": elapsed},
        )
        return
    missing = [member for member in group.members.values() if member.awaits_join is None]
    left_ms = group.rebalance_timeout_ms - (moment.wall_ms - group.state_ms)
    ends = (
        f"; whoever has not joined within {duration(left_ms)} is removed" if left_ms > 0
        else "; the wait ends now"
    )
    if missing:
        yield Finding(
            "waiting_for_members",
            f"{REBALANCING}{since}; the group waits for {_members(missing)} to join again{ends}",
            {"elapsed_ms": elapsed, "members": [m.member_id for m in missing[:WAITED_FOR_MAX]],
             "left_ms": max(0, left_ms)},
        )
    elif group.pending_joins:
        clients = counted(len(group.pending_joins), "client")
        yield Finding(
            "waiting_for_new_members",
            f"{REBALANCING}{since}; the group waits for {clients} to repeat JoinGroup with the"
            f" member id that the broker has assigned{ends}",
            {"elapsed_ms": elapsed, "left_ms": max(0, left_ms)},
        )


def _completing(group: ClassicGroup, moment: Moment) -> Finding:
    elapsed, since = _since(moment, group.state_ms)
    leader = group.members.get(group.leader or "")
    who = "" if leader is None else f", {_members([leader])},"
    return Finding(
        "waiting_for_assignment",
        f"{REBALANCING}{since}; all members have joined, and the group waits for the leader{who} to"
        " send the assignment",
        {"elapsed_ms": elapsed, "leader": group.leader},
    )


def _members(members: list[ClassicMember]) -> str:
    return listed([named(each.member_id, each.client_id, each.client_host) for each in members])


# KIP-848

def _consumer(group: ConsumerGroup, moment: Moment) -> Iterator[Finding]:
    if not group.members:
        yield _nobody(group.target_ms or -1, moment)
        return
    elapsed, since = _since(moment, group.target_ms or -1)
    behind = [
        member for member in group.members.values()
        if not member.is_reconciled(group.target_epoch)
    ]
    assigned = group.epoch == group.target_epoch
    if behind or not assigned:
        yield Finding("rebalancing", f"{REBALANCING}{since}", {"elapsed_ms": elapsed})
    if not assigned:
        yield Finding(
            "not_assigned_yet",
            "the broker assigns partitions anew at the next heartbeat of a member",
        )
    for member in behind[:WAITED_FOR_MAX]:
        yield _behind(group, member, moment)


def _behind(group: ConsumerGroup, member: ConsumerMember, moment: Moment) -> Finding:
    value = member.value
    who = named(member.member_id, value.client_id, value.client_host)
    fields = {"member": member.member_id, "member_epoch": member.epoch}
    state = member.current.state
    if member.epoch == LEFT_FOR_NOW:
        return Finding(
            "member_left_for_now",
            f"the static member {value.instance_id} has left for now; its partitions stay"
            " assigned to it until its session ends", fields,
        )
    if state == MemberState.UNREVOKED_PARTITIONS:
        names = _names(member.current.revoking, moment.cluster)
        return Finding(
            "waiting_for_revocation",
            f"{who} has to give up {listed(names)}; the member is removed if this takes longer than"
            f" its rebalance timeout of {duration(value.rebalance_timeout_ms)}",
            {**fields, "partitions": names[:WAITED_FOR_MAX]},
        )
    if state == MemberState.UNRELEASED_PARTITIONS:
        wanted = [each for each in group.assigned(member) if each not in member.current.assigned]
        holders = sorted({group.owners[each] for each in wanted if each in group.owners})
        names = _names(wanted, moment.cluster)
        held = f", which {listed(holders)} still {'has' if len(holders) == 1 else 'have'}"
        held = held if holders else "; the answer to its next heartbeat assigns the free partitions"
        return Finding(
            "waiting_for_release",
            f"{who} waits for {listed(names)}{held}",
            {**fields, "partitions": names[:WAITED_FOR_MAX], "held_by": holders[:WAITED_FOR_MAX]},
        )
    return Finding(
        "waiting_for_heartbeat",
        f"{who} gets its new assignment in the answer to its next heartbeat",
        fields,
    )


def _names(partitions: Any, cluster: ClusterView) -> list[str]:
    names = []
    for topic_id, index in partitions:
        topic = cluster.topic_of_id(topic_id)
        if topic is not None:
            names.append(f"{topic.name}-{index}")
    return sorted(names)
