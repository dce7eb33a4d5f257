"""Checks who may commit and fetch offsets of a KIP-848 group. A commit with an older member epoch
may still be accepted (KIP-1251)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.errors import IllegalGeneration, StaleMemberEpoch
from ottla.wire.errors import ProtocolError, UnsupportedVersion

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.consumer.group import ConsumerGroup, ConsumerMember
    from ottla.groups.offset_requests import Commit


def check_commit(
    group: ConsumerGroup, request: Commit, cluster: ClusterView
) -> ConsumerMember | None:
    """The member that commits, or None for a client that is not a member.

    Raises UnknownMember, StaleMemberEpoch (IllegalGeneration for a classic member, and for an older
    client in a transaction), UnsupportedVersion if the request is too old for a KIP-848 member.
    """
    if request.generation < 0 and not group.members:
        return None
    if (
        request.transactional
        and request.generation < 0
        and not request.member_id
        and request.instance_id is None
    ):
        return None
    member = group.member(request.member_id)
    if member.value.classic is not None:
        if request.generation != member.epoch:
            raise IllegalGeneration(
                f"the member is in generation {member.epoch}, but the request has"
                f" generation {request.generation}"
            )
        return member
    if not request.transactional and request.version < 9:
        raise UnsupportedVersion(
            "members of KIP-848 groups must use OffsetCommit version 9 or later"
        )
    if request.generation > member.epoch:
        raise _stale(
            request,
            f"the member's epoch is {member.epoch}, but the request has epoch"
            f" {request.generation}")
    if request.generation < member.epoch:
        _check_since_assigned(member, request, cluster)
    return member


def _check_since_assigned(member: ConsumerMember, request: Commit, cluster: ClusterView) -> None:
    """Accepts a commit with an older epoch, if the member has owned the partitions without
    interruption since that epoch."""
    for commit in request.offsets:
        topic = cluster.topic(commit.topic)
        partition = (bytes(16) if topic is None else topic.topic_id, commit.partition)
        since = member.current.assigned.get(partition, member.current.revoking.get(partition))
        if since is None or request.generation < since:
            raise _stale(
                request,
                f"the commit for {commit.topic}-{commit.partition} has epoch {request.generation},"
                f" but the member's epoch is {member.epoch}. An older epoch is accepted only if the"
                " member has owned the partition since that epoch",
            )


def _stale(request: Commit, text: str) -> ProtocolError:
    """The error for a stale epoch. As in Kafka, the reply to a TxnOffsetCommit below version 6 has
    ILLEGAL_GENERATION instead of STALE_MEMBER_EPOCH."""
    return StaleMemberEpoch(text) if request.knows_kip_848 else IllegalGeneration(text)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Checks that a client may fetch offsets as this member.

    Raises UnknownMember, StaleMemberEpoch.
    """
    if member_id is None and member_epoch < 0:
        return
    member = group.member(member_id or "")
    if member.value.classic is None and member_epoch != member.epoch:
        raise StaleMemberEpoch(
            f"the member's epoch is {member.epoch}, but the request has epoch {member_epoch}")
