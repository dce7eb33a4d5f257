"""Consumer groups of both protocols: list, describe, committed offsets, lag, deletion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.client.cluster import EARLY, MOVED
from ottla.client.errors import Refused, check
from ottla.replication.topic_names import OFFSETS_TOPIC
from ottla.tools.admin.topics import of_all_coordinators
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, MalformedMessage
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

NAMED_TOPICS = 9
"""The last version of OffsetFetch and OffsetCommit with topic names; later ones have topic ids."""
GONE = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}


@dataclass
class Member:
    """A member of a group. Assignments have the partitions of each topic."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    epoch: int | None = None
    assigned: dict[str, list[int]] = field(default_factory=dict)
    target: dict[str, list[int]] | None = None


@dataclass
class Group:
    """A group as its coordinator describes it. `type` is classic or consumer."""

    id: str
    type: str
    state: str
    assignor: str
    members: list[Member]
    epoch: int | None = None
    target_epoch: int | None = None
    protocol_type: str = "consumer"


@dataclass
class Listed:
    """A group in a listing."""

    id: str
    type: str
    state: str
    protocol_type: str


def list_groups(
    cluster: ClusterClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[Listed]:
    """The groups of all brokers, sorted by id. The brokers filter them by state and type."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def ask() -> dict[str, Listed]:
        live = cluster.live()   # if a broker leaves, its groups move: then ask all brokers again
        found = {}
        for node_id in live:
            response = cluster.node(node_id).call(request)
            check(response.error_code)
            for item in response.groups:
                kind = item.group_type or "classic"
                found[item.group_id] = Listed(
                    item.group_id, kind, item.group_state, item.protocol_type
                )
        return found

    found: dict[str, Listed] = cluster.with_retries(ask, again=True)
    return [found[name] for name in sorted(found)]


def list_surely(cluster: ClusterClient) -> list[Listed]:
    """Like `list_groups`, but waits until all coordinators are elected: no broker lists the groups
    of a coordinator that is still being elected."""
    return of_all_coordinators(cluster, OFFSETS_TOPIC, partial(list_groups, cluster))


def describe(cluster: ClusterClient, group_id: str) -> Group:
    """One group; raises Refused with GROUP_ID_NOT_FOUND if it does not exist."""
    first: Refused | None = None
    if cluster.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
        try:
            found: Group = cluster.with_retries(partial(_modern, cluster, group_id), again=True)
            return found
        except Refused as refused:
            if refused.code not in GONE:
                raise
            first = refused  # the group may be a classic group
    try:
        found = cluster.with_retries(partial(_classic, cluster, group_id), again=True)
        return found
    except Refused as refused:
        if refused.code == ErrorCode.GROUP_ID_NOT_FOUND and first is not None:
            raise first from None
        raise


def _modern(cluster: ClusterClient, group_id: str) -> Group:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    [item] = cluster.coordinator(group_id).call(request).groups
    check(item.error_code, item.error_message, f"group {group_id!r}")
    members = [
        Member(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            member.member_epoch,
            _by_topic(member.assignment),
            _by_topic(member.target_assignment),
        )
        for member in item.members
    ]
    return Group(
        group_id,
        "consumer",
        item.group_state,
        item.assignor_name,
        members,
        item.group_epoch,
        item.assignment_epoch,
    )


def _by_topic(assignment: Any) -> dict[str, list[int]]:
    return {part.topic_name: sorted(part.partitions) for part in assignment.topic_partitions}


def _classic(cluster: ClusterClient, group_id: str) -> Group:
    [item] = cluster.coordinator(group_id).call(DescribeGroupsRequest(groups=[group_id])).groups
    check(item.error_code, item.error_message, f"group {group_id!r}")
    if item.group_state == "Dead":
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    members = [
        Member(
            member.member_id,
            member.client_id,
            member.client_host,
            member.group_instance_id,
            assigned=_decoded(member.member_assignment),
        )
        for member in item.members
    ]
    return Group(
        group_id,
        "classic",
        item.group_state,
        item.protocol_data,
        members,
        protocol_type=item.protocol_type,
    )


def _decoded(data: bytes) -> dict[str, list[int]]:
    """A classic member's assignment; empty if the bytes are not an assignment of the consumer
    protocol."""
    if len(data) < 2:
        return {}
    highest = ConsumerProtocolAssignment.VERSIONS[-1]
    version = min(int.from_bytes(data[:2], "big"), highest)
    try:
        assignment = ConsumerProtocolAssignment.decode(data[2:], version)
    except MalformedMessage:
        return {}
    return {part.topic: sorted(part.partitions) for part in assignment.assigned_partitions}


def committed(cluster: ClusterClient, group_id: str) -> dict[Place, tuple[int, int]]:
    """The committed offset of each partition of a group, and the leader epoch committed with it."""
    return {
        place: (part.committed_offset, part.committed_leader_epoch)
        for place, part in _commits(cluster, group_id).items()
    }


def committed_metadata(cluster: ClusterClient, group_id: str) -> dict[Place, tuple[int, str]]:
    """The committed offset of each partition of a group, and the metadata committed with it."""
    return {
        place: (part.committed_offset, part.metadata or "")
        for place, part in _commits(cluster, group_id).items()
    }


def _commits(cluster: ClusterClient, group_id: str) -> dict[Place, Any]:
    def ask() -> Any:
        connection = cluster.coordinator(group_id)
        version = connection.version_of(ApiKey.OFFSET_FETCH, NAMED_TOPICS)
        if version >= 8:
            request_group = OffsetFetchRequest.Group(group_id=group_id, topics=None)
            [answer] = connection.call(OffsetFetchRequest(groups=[request_group]), version).groups
        else:
            answer = connection.call(OffsetFetchRequest(group_id=group_id, topics=None), version)
        check(answer.error_code, what=f"group {group_id!r}")
        return answer

    return {
        (topic.name, part.partition_index): part
        for topic in cluster.with_retries(ask, again=True).topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def without_commit(cluster: ClusterClient, places: Iterable[Place]) -> set[Place]:
    """The partitions that are not in `places`, but belong to a topic in `places`. Skips deleted
    topics."""
    known = set(places)
    names = sorted({topic for topic, _ in known})
    return {
        (topic.name, part.partition_index)
        for topic in (cluster.metadata(names).topics if names else ()) if not topic.error_code
        for part in topic.partitions
    } - known


def total_lag(lags: Iterable[int | None]) -> int | None:
    """The sum of the known lags; None if no lag is known."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def commit(
    cluster: ClusterClient,
    group_id: str,
    offsets: Mapping[Place, int],
    metadata: Mapping[Place, str] | None = None,
    *,
    created: bool = False,
) -> None:
    """Commits offsets for a group without members. Raises Refused for the first rejected partition.

    With `created`, waits until the coordinator knows a topic that was created a moment ago.
    """
    notes = metadata or {}
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, index), offset in offsets.items():
        by_topic[topic].append((index, offset))
    kind = OffsetCommitRequest.Topic
    topics = [
        kind(
            name=topic,
            partitions=[
                kind.Partition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_metadata=notes.get((topic, index), ""),
                )
                for index, offset in parts
            ],
        )
        for topic, parts in by_topic.items()
    ]
    request = OffsetCommitRequest(group_id=group_id, topics=topics)

    def ask() -> None:
        response = cluster.coordinator(group_id).call(request, at_most=NAMED_TOPICS)
        for topic in response.topics:
            for part in topic.partitions:
                check(part.error_code, what=f"{group_id}: {topic.name}-{part.partition_index}")

    also = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if created else ()
    cluster.with_retries(ask, also, again=True)


def delete_offsets(
    cluster: ClusterClient, group_id: str, places: Iterable[Place]
) -> tuple[int, dict[Place, int]]:
    """Deletes committed offsets. Returns the error code of the group and of each partition."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(index)
    kind = OffsetDeleteRequest.Topic
    topics = [
        kind(name=topic, partitions=[kind.Partition(partition_index=index) for index in indexes])
        for topic, indexes in by_topic.items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)

    def ask() -> Any:
        answer = cluster.coordinator(group_id).call(request)
        if answer.error_code in MOVED | EARLY:
            check(answer.error_code, what=f"group {group_id!r}")
        return answer

    response = cluster.with_retries(ask, again=True)
    return response.error_code, {
        (topic.name, part.partition_index): part.error_code
        for topic in response.topics
        for part in topic.partitions
    }


def delete(cluster: ClusterClient, group_id: str) -> None:
    """Deletes a group. Raises Refused if the group has members, or does not exist."""

    def ask() -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        [result] = cluster.coordinator(group_id).call(request).results
        # Responses have `error_message` since version 3.
        message = getattr(result, "error_message", None)
        check(result.error_code, message, f"group {group_id!r}")

    cluster.with_retries(ask)
