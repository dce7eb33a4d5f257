"""Members that still use the classic protocol in a KIP-848 group, while consumers are upgraded.

The broker assigns partitions to these members too. The reply to a Heartbeat makes them join again
when they have to give up or take partitions. Their JoinGroup reports the partitions that they own;
SyncGroup returns the assignment in the consumers' own format. Their generation is the member epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.groups.classic.messages import Join, Joined, NewMemberId, Sync, Synced
from ottla.groups.classic.subscription import Subscription, read_subscription
from ottla.groups.consumer.draft import Draft, subscription_changed, topics_changed
from ottla.groups.consumer.heartbeat import SESSION, arm_rebalance, take_place
from ottla.groups.consumer.migration import assignment_bytes, offer_downgrade
from ottla.groups.consumer.notes import note_arrival, note_if_settled
from ottla.groups.errors import (
    FencedInstance,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from ottla.groups.records import (
    ClassicProtocols,
    ConsumerMemberValue,
    CurrentMemberValue,
    MemberState,
    TopicPartition,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.consumer.group import ConsumerGroup, ConsumerMember
    from ottla.groups.result import Result
    from ottla.groups.settings import GroupSettings

REJOIN = "consumer rejoin"
"""Timer: the rebalance timeout of a classic member that was asked to join again."""


def join(
    group: ConsumerGroup,
    request: Join,
    result: Result,
    settings: GroupSettings,
    cluster: ClusterView,
    new_id: Callable[[], str],
) -> Joined:
    """JoinGroup: the member reports its subscription and its partitions, and takes the next step
    towards its target. It does not wait for other members.

    Raises InconsistentProtocol, GroupMaxSizeReached, NewMemberId, UnknownMember, FencedInstance.
    """
    if settings.group_consumer_migration_policy == "disabled":
        raise InconsistentProtocol("group.consumer.migration.policy does not allow classic members")
    _check_protocols(group, request)
    member_id = request.member_id or new_id()
    owner_id = group.static_members.get(request.instance_id or "")
    if request.member_id and request.instance_id is not None:
        # Only a restarted member, which has no member id yet, takes the place of another member.
        if owner_id is None:
            raise UnknownMember(f"instance id {request.instance_id} is unknown in this group")
        _known(group, request.member_id, request.instance_id)
    member = group.members.get(owner_id or member_id)
    if member is None and len(group.members) >= settings.group_consumer_max_size:
        raise GroupMaxSizeReached(
            f"group {group.group_id} has as many members as group.consumer.max.size allows")
    if not request.member_id and request.needs_member_id and request.instance_id is None:
        raise NewMemberId(member_id)
    subscription = read_subscription(request.protocols[0][1])
    if subscription is None:
        raise InconsistentProtocol("the member's subscription cannot be read")
    value = _value(member, request, subscription)
    draft = Draft(group, result, cluster, settings.group_consumer_assignors, request.sees)
    current = _enter(draft, member, member_id, value)
    former = None if member is None else (member.member_id, member.value)
    note_arrival(group.group_id, member_id, value, former, result, request.reason)
    draft.update(member is None or subscription_changed(member.value, value))
    owned = _owned(subscription, cluster)
    updated = draft.reconcile(member_id, current, owned)
    note_if_settled(group, draft, member_id, current, updated, result)
    arm_rebalance(group, member_id, value, current, updated, result)
    result.cancel_timer(REJOIN, group.group_id, member_id)
    if member is not None:
        member.rejoin_asked = False
    result.set_timer(
        SESSION, group.group_id, member_id, after_ms=request.session_timeout_ms
    )
    if member is not None:
        offer_downgrade(group.group_id, draft.members, result)
    return Joined(
        member_id, updated.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0], leader=""
    )


def _check_protocols(group: ConsumerGroup, request: Join) -> None:
    names = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.value.classic is not None and member.member_id != request.member_id:
            names &= {name for name, _ in member.value.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise InconsistentProtocol(
            f"the member supports no protocol that group {request.group_id} uses")


def _value(
    member: ConsumerMember | None, request: Join, subscription: Subscription
) -> ConsumerMemberValue:
    before = ConsumerMemberValue("", "") if member is None else member.value
    return replace(
        before,
        client_id=request.client_id,
        client_host=request.client_host,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        topics=frozenset(filter(request.sees, subscription.topics)),
        pattern=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
    )


def _enter(
    draft: Draft, member: ConsumerMember | None, member_id: str, value: ConsumerMemberValue
) -> CurrentMemberValue:
    if member is None:
        draft.put(member_id, value)
        return CurrentMemberValue(0)
    if member.member_id != member_id:
        return take_place(draft, member, member_id, value)
    if value != member.value:
        draft.put(member_id, value)
    return member.current


def _owned(subscription: Subscription, cluster: ClusterView) -> frozenset[TopicPartition]:
    return frozenset(
        (topic.topic_id, index)
        for name, indexes in subscription.owned.items()
        if (topic := cluster.topic(name)) is not None
        for index in indexes
    )


def sync(group: ConsumerGroup, request: Sync, result: Result, cluster: ClusterView) -> Synced:
    """SyncGroup: the member's assignment.

    Raises UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol,
    RebalanceInProgress.
    """
    member, classic = _member(group, request.member_id, request.instance_id)
    _check_generation(member, request.generation)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (
        None, name,
    ):
        raise InconsistentProtocol(
            f"the member joined with the protocol {name} of type {CONSUMER_PROTOCOL_TYPE}, not with"
            f" {request.protocol} of type {request.protocol_type}"
        )
    behind = group.epoch > member.epoch
    if behind and member.current.state != MemberState.UNREVOKED_PARTITIONS:
        _ask_to_rejoin(group, member, result)
        raise RebalanceInProgress("the group has a new generation; join again")
    session_ms = classic.session_timeout_ms
    result.set_timer(SESSION, group.group_id, member.member_id, after_ms=session_ms)
    version = int.from_bytes(metadata[:2], "big")
    assignment = assignment_bytes(member.current.assigned, version, cluster)
    return Synced(CONSUMER_PROTOCOL_TYPE, name, assignment)


def heartbeat(
    group: ConsumerGroup,
    generation: int,
    member_id: str,
    instance_id: str | None,
    result: Result,
    cluster: ClusterView,
) -> ErrorCode:
    """Heartbeat: REBALANCE_IN_PROGRESS if joining again would change something.

    Raises UnknownMember, FencedInstance, IllegalGeneration.
    """
    member, classic = _member(group, member_id, instance_id)
    _check_generation(member, generation)
    member.deadline_ms = result.tick_ms + classic.session_timeout_ms
    state = member.current.state
    waits_in_vain = state == MemberState.UNRELEASED_PARTITIONS and any(
        group.owners.get(partition, member_id) != member_id for partition in group.assigned(member)
    )
    if (
        member.epoch < group.epoch
        or topics_changed(group, cluster)
        or state == MemberState.UNREVOKED_PARTITIONS
        or (state == MemberState.UNRELEASED_PARTITIONS and not waits_in_vain)
    ):
        _ask_to_rejoin(group, member, result)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _ask_to_rejoin(group: ConsumerGroup, member: ConsumerMember, result: Result) -> None:
    """Asks a member to join again; the rebalance timeout counts from the first request to do
    so."""
    if not member.rejoin_asked:
        member.rejoin_asked = True
        after_ms = max(member.value.rebalance_timeout_ms, 0)
        result.set_timer(REJOIN, group.group_id, member.member_id, after_ms=after_ms)


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is not None and owner != member_id:
            raise FencedInstance(f"instance id {instance_id} now belongs to member {owner}")
    return group.member(member_id)


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicProtocols]:
    member = _known(group, member_id, instance_id)
    if member.value.classic is None:
        raise UnknownMember(f"member {member_id} does not use the classic protocol")
    return member, member.value.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(
            f"the member is in generation {member.epoch}, but the request has generation"
            f" {generation}")


def leaving_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """The member that a LeaveGroup removes, whichever protocol it uses.

    Administrators send LeaveGroup too, for members of both kinds: with an instance id alone, or
    with a member id.

    Raises UnknownMember, FencedInstance.
    """
    if not member_id:
        return group.member(group.static_members.get(instance_id or "", ""))
    return _known(group, member_id, instance_id)
