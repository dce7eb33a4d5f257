"""ConsumerGroupHeartbeat: joining, following the target, leaving (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.groups.consumer import patterns
from ottla.groups.consumer.draft import Draft, subscription_changed
from ottla.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup, ConsumerMember
from ottla.groups.consumer.migration import offer_downgrade
from ottla.groups.consumer.notes import note_arrival, note_if_settled, note_member
from ottla.groups.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from ottla.groups.records import (
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    MemberState,
    Record,
    TopicPartition,
)
from ottla.groups.result import RETRY_MS, Result
from ottla.wire.errors import InvalidRequest
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.settings import GroupSettings

SESSION, REBALANCE = "consumer session", "consumer rebalance"
"""Timers: the session timeout, and the timeout for giving up partitions."""
JOIN, LEAVE = 0, -1
"""Special member epochs; the third is LEFT_FOR_NOW."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat; a field that is None has not changed."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = 1
    sees: Callable[[str], bool] | None = None
    """Returns whether the client may see a topic; None if all clients may see all topics."""

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has the rebalance timeout, the subscription and the owned
        partitions, as for example after an error. The reply to such a full heartbeat has the
        assignment, even if the assignment has not changed."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.pattern is not None)
            and self.owned is not None
        )


class UnchangedHeartbeat(Protocol):
    """The fields that are read if a ConsumerGroupHeartbeat reports no changes."""

    @property
    def member_id(self) -> str:
        """As in Heartbeat."""

    @property
    def member_epoch(self) -> int:
        """As in Heartbeat."""

    @property
    def instance_id(self) -> str | None:
        """As in Heartbeat."""


class HeartbeatReply(NamedTuple):
    """The reply. Its assignment is None unless it has changed or the heartbeat was full."""

    member_id: str
    member_epoch: int
    interval_ms: int = 0
    assignment: frozenset[TopicPartition] | None = None


def check(request: Heartbeat, assignors: Sequence[str]) -> None:
    """Check a request's fields. Raises InvalidRequest, UnsupportedAssignor,
    InvalidRegularExpression."""
    _need(request.group_id.strip() != "", "GroupId can't be empty.")
    if request.version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVE:
        _need(request.member_id.strip() != "", "MemberId can't be empty.")
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        _need(value is None or value.strip() != "", f"{name} can't be empty.")
    if request.member_epoch == JOIN:
        _need(
            request.rebalance_timeout_ms != -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        _need(request.owned == frozenset(), "TopicPartitions must be empty when (re-)joining.")
        _need(
            request.topics is not None or request.pattern is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.",
        )
    if request.member_epoch == LEFT_FOR_NOW:
        _need(request.instance_id is not None, "InstanceId can't be null.")
    _need(request.member_epoch >= LEFT_FOR_NOW, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.assignor} is not supported."
            f" Supported assignors: {', '.join(assignors)}."
        )
    if request.pattern is not None:
        patterns.check(request.pattern)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidRequest(message)


def interval_ms(own: Mapping[str, str], settings: GroupSettings) -> int:
    """The heartbeat interval of a group; `own` holds the group's own settings.

    A setting that is outside the broker's present limits is replaced by the nearest limit.
    """
    set_ms = own.get("consumer.heartbeat.interval.ms")
    if set_ms is None:
        return settings.group_consumer_heartbeat_interval_ms
    least = settings.group_consumer_min_heartbeat_interval_ms
    return min(max(int(set_ms), least), settings.group_consumer_max_heartbeat_interval_ms)


def session_ms(own: Mapping[str, str], settings: GroupSettings) -> int:
    """The session timeout of a group with these `own` settings, within the broker's limits."""
    set_ms = own.get("consumer.session.timeout.ms")
    if set_ms is None:
        return settings.group_consumer_session_timeout_ms
    least = settings.group_consumer_min_session_timeout_ms
    return min(max(int(set_ms), least), settings.group_consumer_max_session_timeout_ms)


def at_rest(group: ConsumerGroup, member: ConsumerMember, cluster: ClusterView) -> bool:
    """Whether the group and this member are in their target state."""
    return (
        group.has_seen(cluster.version, member.value.pattern)
        and group.epoch == group.target_epoch
        and member.is_reconciled(group.target_epoch)
    )


def keep_alive(
    group: ConsumerGroup,
    request: UnchangedHeartbeat,
    client: tuple[str, str],
    tick_ms: int,
    settings: GroupSettings,
    cluster: ClusterView,
) -> int | None:
    """Serve a heartbeat that changes neither the member nor its assignment. Most are like that.

    `client` is the client's id and host. Returns the interval to the next heartbeat in ms. Returns
    None if the heartbeat changes something or must be refused: then use `heartbeat`.
    """
    member = group.members.get(request.member_id)
    if (
        member is None
        or request.member_epoch != member.current.epoch
        or not at_rest(group, member, cluster)
        or member.value.classic is not None
        or (member.value.client_id, member.value.client_host) != client
    ):
        return None
    instance_id = request.instance_id
    if instance_id is not None and group.static_members.get(instance_id) != member.member_id:
        return None
    own = cluster.group_settings(group.group_id)
    member.deadline_ms = tick_ms + session_ms(own, settings)
    return interval_ms(own, settings)


def heartbeat(
    group: ConsumerGroup,
    request: Heartbeat,
    result: Result,
    settings: GroupSettings,
    cluster: ClusterView,
) -> HeartbeatReply:
    """Joins, or keeps the session alive and takes the next step towards the target.

    Raises UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstance,
    GroupMaxSizeReached.
    """
    member = _find(group, request, settings)
    value = _changed_description(member, request)
    own = cluster.group_settings(group.group_id)
    if (
        member is not None
        and member.member_id == request.member_id
        and value == member.value
        and at_rest(group, member, cluster)
    ):
        # The member reported something, but it changes nothing in the group.
        member.deadline_ms = result.tick_ms + session_ms(own, settings)
        assignment = frozenset(member.current.assigned) if request.is_full else None
        interval = interval_ms(own, settings)
        return HeartbeatReply(member.member_id, member.epoch, interval, assignment)
    draft = Draft(
        group, result, cluster, settings.group_consumer_assignors, request.sees, value.pattern
    )
    current = _enter(draft, member, value, request)
    former = None if member is None else (member.member_id, member.value)
    note_arrival(group.group_id, request.member_id, value, former, result)
    draft.update(member is None or subscription_changed(member.value, value))
    updated = draft.reconcile(request.member_id, current, request.owned)
    note_if_settled(group, draft, request.member_id, current, updated, result)
    after_ms = session_ms(own, settings)
    result.set_timer(SESSION, group.group_id, request.member_id, after_ms=after_ms)
    arm_rebalance(group, request.member_id, value, current, updated, result)
    known = {} if member is None or request.member_epoch == JOIN else member.current.assigned
    tell = request.is_full or updated.assigned.keys() != known.keys()
    return HeartbeatReply(
        request.member_id,
        updated.epoch,
        interval_ms(own, settings),
        frozenset(updated.assigned) if tell else None,
    )


def first_group(request: Heartbeat) -> ConsumerGroup:
    """A new group; the caller is about to add the sender as its first member.

    That member gets epoch 2, as in Kafka 4.4, or 1 if it subscribes to a pattern.
    """
    return ConsumerGroup(request.group_id, epoch=1 if request.pattern is None else 0)


def arm_rebalance(
    group: ConsumerGroup,
    member_id: str,
    value: ConsumerMemberValue,
    before: CurrentMemberValue,
    after: CurrentMemberValue,
    result: Result,
) -> None:
    """Starts the rebalance timeout of a member that has to give up partitions.

    The timer is not cancelled when the member gives them up: the log may refuse the record, and
    then the member still owns them. A timer that is not needed has no effect.
    """
    if after != before and after.state == MemberState.UNREVOKED_PARTITIONS:
        result.set_timer(
            REBALANCE, group.group_id, member_id, after_ms=max(value.rebalance_timeout_ms, 0)
        )


def _find(
    group: ConsumerGroup, request: Heartbeat, settings: GroupSettings
) -> ConsumerMember | None:
    """The member that sent the heartbeat, or the static member that it replaces; None for a new
    member."""
    joining = request.member_epoch == JOIN
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        owner = group.members.get(group.static_members.get(request.instance_id, ""))
        if joining:
            # Unlike Kafka, this accepts a member that joins again because the reply was lost.
            same = owner is None or owner.member_id == request.member_id
            classic = owner is not None and owner.value.classic is not None
            if owner is not None and owner.epoch != LEFT_FOR_NOW and not (same or classic):
                reached("an instance id is in use")
                raise UnreleasedInstance(
                    f"instance id {request.instance_id} is still in use by member {owner.member_id}"
                )
            member = owner
        else:
            if owner is None:
                raise UnknownMember(f"instance id {request.instance_id} is unknown in this group")
            if owner.member_id != request.member_id:
                raise FencedInstance(
                    f"another member has taken over instance id {request.instance_id}")
    if member is None:
        if not joining:
            raise UnknownMember(f"group {group.group_id} has no member {request.member_id!r}")
        if len(group.members) >= settings.group_consumer_max_size:
            raise GroupMaxSizeReached(
                f"group {group.group_id} has as many members as group.consumer.max.size allows")
        return None
    if not joining:
        _check_epoch(member, request)
    return member


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    told, known = request.member_epoch, member.epoch
    if told > known:
        reached("a member is ahead of its coordinator")
        raise FencedMemberEpoch(
            f"the member's epoch is {known}, but the request has epoch {told}: join again")
    # The reply with the new epoch may have been lost. So the previous epoch is still accepted if
    # the member reports the partitions that it owns, and all of them are assigned to it.
    if told < known and (
        told != member.current.previous_epoch
        or request.owned is None
        or not request.owned <= member.current.assigned.keys()
    ):
        raise FencedMemberEpoch(
            f"the member's epoch is {known}, but the request has epoch {told}: join again")


def _changed_description(member: ConsumerMember | None, request: Heartbeat) -> ConsumerMemberValue:
    """The member's description, with the changes of this heartbeat."""
    before = ConsumerMemberValue("", "") if member is None else member.value
    if (
        member is not None
        and request.topics is None
        and request.pattern is None
        and request.rebalance_timeout_ms == -1
        and request.assignor is None
        and request.rack_id is None
        and before.classic is None
        and before.client_id == request.client_id
        and before.client_host == request.client_host
    ):
        return before
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        client_id=request.client_id,
        client_host=request.client_host,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topics=before.topics if request.topics is None else request.topics,
        # An empty pattern ends the subscription by pattern.
        pattern=before.pattern if request.pattern is None else (request.pattern or None),
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=before.assignor if request.assignor is None else request.assignor,
        classic=None,
    )


def _enter(
    draft: Draft,
    member: ConsumerMember | None,
    value: ConsumerMemberValue,
    request: Heartbeat,
) -> CurrentMemberValue:
    """Records the member's description; returns its assignment before this heartbeat."""
    member_id = request.member_id
    if member is None:
        draft.put(member_id, value)
        return CurrentMemberValue(0)
    if member.member_id != member_id:
        return take_place(draft, member, member_id, value)
    if value != member.value:
        draft.put(member_id, value)
    current = member.current
    if member.epoch == LEFT_FOR_NOW:
        reached("a static member came back after it had left for now")
        current = CurrentMemberValue(0, 0, MemberState.STABLE, current.assigned, {})
    return current


def take_place(
    draft: Draft, former: ConsumerMember, member_id: str, value: ConsumerMemberValue
) -> CurrentMemberValue:
    """A static member has come back with another member id and inherits its former state.

    The timers of the former member id stay: if the log refuses the records, that member still
    exists.
    """
    reached("a static member came back with another member id")
    assert former.value.instance_id == value.instance_id, "the members' instance ids differ"
    target = draft.targets.get(former.member_id, frozenset())
    draft.drop(former.member_id)
    draft.put(member_id, value)
    draft.set_target(member_id, target)
    current = CurrentMemberValue(0, 0, MemberState.STABLE, former.current.assigned, {})
    draft.set_current(member_id, current)
    return current


def leave(
    group: ConsumerGroup, request: Heartbeat, result: Result, cluster: ClusterView
) -> HeartbeatReply:
    """Removes a member for good, or a static member temporarily (epoch -2).

    Raises UnknownMember, FencedInstance.
    """
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = group.member(group.static_members.get(request.instance_id, ""))
        if member.member_id != request.member_id:
            raise FencedInstance(
                    f"another member has taken over instance id {request.instance_id}")
    if request.member_epoch == LEFT_FOR_NOW:
        current = member.current
        reached("a static member left for now")
        left = CurrentMemberValue(LEFT_FOR_NOW, current.epoch, current.state, current.assigned, {})
        key = CurrentMemberKey(group.group_id, member.member_id)
        result.records.append(Record(key, left))
        note_member(group.group_id, member.member_id, member.value, "left_for_now", result)
    else:
        remove(group, [member], result, cluster, "left")
    return HeartbeatReply(request.member_id, request.member_epoch)


def remove(
    group: ConsumerGroup, leaving: list[ConsumerMember], result: Result, cluster: ClusterView,
    kind: str, **fields: Any,
) -> None:
    """Removes members; the next heartbeat of any other member assigns their partitions. `kind` and
    `fields` say why, in the group's history."""
    for member in leaving:
        note_member(group.group_id, member.member_id, member.value, kind, result, **fields)
    drop(group, leaving, result, cluster)


def drop(
    group: ConsumerGroup, leaving: Iterable[ConsumerMember], result: Result, cluster: ClusterView
) -> None:
    """As `remove`, but without events for the group's history: the caller has added them."""
    draft = Draft(group, result, cluster)
    for member in leaving:
        draft.drop(member.member_id)
        # If the log refuses the records, the member still exists, but perhaps sends no more
        # requests. Then this timer removes it later.
        result.set_timer(SESSION, group.group_id, member.member_id, after_ms=RETRY_MS)
        result.cancel_timer(REBALANCE, group.group_id, member.member_id)
    draft.bump_epoch()
    offer_downgrade(group.group_id, draft.members, result)


def arm_all(
    group: ConsumerGroup, result: Result, settings: GroupSettings, cluster: ClusterView
) -> None:
    """Starts every session and rebalance timeout, after a start of the broker or an upgrade of the
    group."""
    session = session_ms(cluster.group_settings(group.group_id), settings)
    for member in group.members.values():
        classic = member.value.classic
        after_ms = session if classic is None else classic.session_timeout_ms
        result.set_timer(SESSION, group.group_id, member.member_id, after_ms=after_ms)
        if member.current.state == MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = max(member.value.rebalance_timeout_ms, 0)
            result.set_timer(REBALANCE, group.group_id, member.member_id, after_ms=timeout_ms)
    # The last KIP-848 member may have left just before this broker stopped, or before the group
    # moved here. If so, the group still has to become classic.
    values = {member_id: member.value for member_id, member in group.members.items()}
    offer_downgrade(group.group_id, values, result)


def session_timer_fired(
    group: ConsumerGroup, member_id: str, result: Result, settings: GroupSettings,
    cluster: ClusterView,
) -> None:
    """Removes a member that sent nothing for its session timeout."""
    member = group.members.get(member_id)
    if member is None:
        return
    if member.deadline_ms > result.tick_ms:
        after_ms = member.deadline_ms - result.tick_ms
        result.set_timer(SESSION, group.group_id, member_id, after_ms=after_ms)
    else:
        reached("the session of a KIP-848 member ended")
        classic = member.value.classic
        timeout_ms = session_ms(cluster.group_settings(group.group_id), settings)
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        remove(group, [member], result, cluster, "silent", timeout_ms=timeout_ms)


def rebalance_timer_fired(
    group: ConsumerGroup, member_id: str, result: Result, cluster: ClusterView
) -> None:
    """Removes a member that has not given up its partitions in time. A static member that has left
    for now has given them up: it keeps its place until its session ends."""
    member = group.members.get(member_id)
    if (
        member is not None
        and member.current.state == MemberState.UNREVOKED_PARTITIONS
        and member.epoch != LEFT_FOR_NOW
    ):
        reached("a member that did not give up its partitions was removed")
        remove(
            group, [member], result, cluster, "did_not_revoke",
            timeout_ms=member.value.rebalance_timeout_ms,
            partitions=len(member.current.revoking),
        )
        result.set_timer(REBALANCE, group.group_id, member_id, after_ms=RETRY_MS)
