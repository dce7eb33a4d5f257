"""Online change of a group's protocol, while its consumers are restarted one after the other.

    classic --- the first KIP-848 member joins ---> KIP-848, with classic members, too
    classic <-- the last KIP-848 member is gone --- KIP-848

`group.consumer.migration.policy` says which directions are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicMember
from ottla.groups.classic.subscription import (
    has_user_data,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.groups.consumer.group import ConsumerGroup, hash_of
from ottla.groups.errors import GroupIdNotFound, RebalanceInProgress
from ottla.groups.records import (
    CONVERTED,
    ClassicProtocols,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    GroupKey,
    Record,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    TopicPartition,
)

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.result import Result
    from ottla.groups.settings import GroupSettings

DOWNGRADE, REJOIN_ALL = "downgrade", "rejoin all"
"""Two timers: one converts the group to a classic group, the other makes its members join again."""
DOWNGRADE_RETRY_MS = 100
"""DOWNGRADE fires again after this delay: perhaps the log refused the records (full disk)."""


def upgrade(
    group: ClassicGroup, result: Result, settings: GroupSettings, cluster: ClusterView
) -> None:
    """Record a classic group with members as a KIP-848 group.

    Raises GroupIdNotFound, and leaves the group as it is:

    - if the policy, the protocol type or the size forbids it;
    - if a member's bytes cannot be parsed; or
    - if the members' assignor adds user data, since these data would be lost.
    """
    if settings.group_consumer_migration_policy not in ("upgrade", "bidirectional"):
        raise GroupIdNotFound(
            f"classic group {group.group_id} cannot change to the KIP-848 protocol:"
            f" group.consumer.migration.policy is {settings.group_consumer_migration_policy}"
        )
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise GroupIdNotFound(
            f"group {group.group_id} has the protocol type {group.protocol_type!r}, not"
            f" {CONSUMER_PROTOCOL_TYPE!r}"
        )
    if len(group.members) > settings.group_consumer_max_size:
        raise GroupIdNotFound(
            f"group {group.group_id} has more members than group.consumer.max.size allows")
    if any(has_user_data(member.assignment) for member in group.members.values()):
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {group.group_id} to consumer group because an "
            "unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade."
        )
    values = {member.member_id: _modern(member) for member in group.members.values()}
    topics = ((name, cluster.topic(name)) for value in values.values() for name in value.topics)
    metadata_hash = hash_of({name: topic for name, topic in topics if topic is not None})
    group_id, epoch = group.group_id, group.generation
    records = group.tombstones()
    records.append(Record(ConsumerGroupKey(group_id), ConsumerGroupValue(epoch, metadata_hash)))
    for member_id, value in values.items():
        owned = _owned(group.members[member_id].assignment, cluster)
        current = CurrentMemberValue(epoch, epoch, assigned=dict.fromkeys(owned, epoch))
        records += [
            Record(ConsumerMemberKey(group_id, member_id), value),
            Record(TargetMemberKey(group_id, member_id), TargetMemberValue(owned)),
            Record(CurrentMemberKey(group_id, member_id), current),
        ]
    records.append(Record(TargetEpochKey(group_id), TargetEpochValue(epoch, result.wall_ms)))
    result.records.extend(records)
    for member in group.members.values():
        for waiting in (member.awaits_join, member.awaits_sync):
            if waiting is not None:
                result.reply(waiting, RebalanceInProgress("the group changes its protocol"))
        member.awaits_join = member.awaits_sync = None


def _modern(member: ClassicMember) -> ConsumerMemberValue:
    subscription = read_subscription(member.protocols[0][1])
    if subscription is None:
        raise GroupIdNotFound(f"the subscription of member {member.member_id} cannot be read")
    return ConsumerMemberValue(
        member.client_id,
        member.client_host,
        member.instance_id,
        subscription.rack_id,
        frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
    )


def _owned(assignment: bytes, cluster: ClusterView) -> frozenset[TopicPartition]:
    return frozenset(
        (topic.topic_id, index)
        for name, indexes in read_assignment(assignment).items()
        if (topic := cluster.topic(name)) is not None
        for index in indexes
    )


def offer_downgrade(
    group_id: str, members: Mapping[str, ConsumerMemberValue], result: Result
) -> None:
    """Schedules the conversion to a classic group, if only classic members are left."""
    if members and all(value.classic is not None for value in members.values()):
        result.set_timer(DOWNGRADE, group_id, after_ms=0)


def downgrade(
    group: ConsumerGroup, result: Result, settings: GroupSettings, cluster: ClusterView
) -> None:
    """Record a KIP-848 group as a classic group, if possible; its members then join again.

    If the log refuses the records, a timer tries again after DOWNGRADE_RETRY_MS.
    """
    if (
        settings.group_consumer_migration_policy not in ("downgrade", "bidirectional")
        or len(group.members) > settings.group_max_size
    ):
        return
    # The epoch was incremented for the member that left. The remaining members must not get
    # ILLEGAL_GENERATION because of that: they would consider their partitions lost, instead of
    # joining again.
    generation = max(group.epoch - 1, *(member.epoch for member in group.members.values()), 0)
    classic = ClassicGroup(group.group_id, generation=generation)
    assignments: dict[str, bytes] = {}
    for member in group.members.values():
        told = member.value.classic
        if told is None:
            return
        version = int.from_bytes(told.protocols[0][1][:2], "big")
        assignments[member.member_id] = assignment_bytes(member.current.assigned, version, cluster)
        value = member.value
        made = ClassicMember(
            member.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            told.session_timeout_ms,
            told.protocols,
        )
        classic.add(made, CONSUMER_PROTOCOL_TYPE)
    if not classic.members:
        return
    classic.protocol = classic.choose_protocol()
    result.records.extend(group.tombstones())
    value_of_group = classic.value(CONVERTED, assignments)
    result.records.append(Record(GroupKey(group.group_id), value_of_group))
    result.set_timer(REJOIN_ALL, group.group_id, after_ms=0)
    result.set_timer(DOWNGRADE, group.group_id, after_ms=DOWNGRADE_RETRY_MS)


def assignment_bytes(
    assigned: Mapping[TopicPartition, int], version: int, cluster: ClusterView
) -> bytes:
    """The partitions that a member owns, in the format of a SyncGroup reply."""
    partitions: dict[str, list[int]] = {}
    for topic_id, index in assigned:
        topic = cluster.topic_of_id(topic_id)
        if topic is not None:
            partitions.setdefault(topic.name, []).append(index)
    return write_assignment(partitions, version)
