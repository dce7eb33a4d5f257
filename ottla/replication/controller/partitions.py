"""The controller's decisions about partitions that exist: their leaders and their replicas.

Elections (KIP-460) and those reassignments (KIP-455) that remove replicas or change their order of
preference: none is added yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from ottla.replication.controller.elections import (
    EligibleLeadersNotAvailable,
    LogEnd,
    led_alone,
    longest,
    min_isr,
    moved,
    trusted,
)
from ottla.replication.metadata import (
    NO_LEADER,
    Decision,
    EpochsRaised,
    MetadataImage,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
)
from ottla.replication.placement import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    require_assignment,
)
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolError,
    UnknownTopicOrPartition,
)


class ElectionType(IntEnum):
    """Which replicas an election may make leader."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionNotNeeded(ProtocolError):
    """The partition has the leader that the election would give it."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailable(ProtocolError):
    """The first replica is not in sync or not available."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class NoReassignmentInProgress(ProtocolError):
    """There is no reassignment to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that a partition should have; None cancels a reassignment in progress."""

    topic: str
    index: int
    replicas: tuple[int, ...] | None


def elect_leaders(
    image: MetadataImage,
    kind: int,
    wanted: Sequence[tuple[str, int]],
    ends: Mapping[tuple[str, int], Mapping[int, LogEnd]] | None = None,
) -> Decision[list[ProtocolError | None]]:
    """Elect leaders; the result has an error or None for each of `wanted`.

    `ends` are the ends of logs by which an unclean election decides, as their replicas have
    reported them; None on a standalone broker, whose replicas are the only ones.
    """
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    elected = set()
    for topic, index in wanted:
        try:
            state = _partition(
                image, topic, index,
                f"No such topic as {topic}", f"No such partition as {topic}-{index}",
            )
            if (topic, index) in elected:
                raise _not_needed()
            leader = _new_leader(
                image, kind, state, None if ends is None else ends.get((topic, index), {})
            )
            if kind == ElectionType.UNCLEAN and leader not in trusted(state, state.isr):
                after = led_alone(state, leader)
            else:
                after = moved(state, leader, state.isr, min_isr(image, topic))
            records.append(PartitionChanged(topic, index, after))
            elected.add((topic, index))
            errors.append(None)
        except ProtocolError as error:
            errors.append(error)
    return Decision(records, errors)


def to_elect(image: MetadataImage, kind: int) -> Iterator[tuple[str, int]]:
    """The partitions that need an election of this kind."""
    for name, topic in image.topics.items():
        for index, state in enumerate(topic.partitions):
            wanted = state.replicas[0] if kind == ElectionType.PREFERRED else NO_LEADER
            if (state.leader == wanted) == (kind == ElectionType.UNCLEAN):
                yield name, index


def _not_needed() -> ElectionNotNeeded:
    return ElectionNotNeeded("Leader election not needed for topic partition.")


def _new_leader(
    image: MetadataImage, kind: int, state: PartitionState, ends: Mapping[int, LogEnd] | None
) -> int:
    if kind == ElectionType.PREFERRED:
        preferred = state.replicas[0]
        if state.leader == preferred:
            raise _not_needed()
        if preferred not in trusted(state, state.isr) or preferred not in image.brokers:
            raise PreferredLeaderNotAvailable("The preferred leader was not available.")
        return preferred
    if kind != ElectionType.UNCLEAN:
        raise InvalidRequest(f"Unknown election type {kind}")
    if state.leader != NO_LEADER:
        raise _not_needed()
    if ends is not None:
        return longest(image, state, ends, unclean=True)
    for node in (*state.isr, *state.replicas):
        if node in image.brokers:
            return node
    raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")


def reassign_partitions(
    image: MetadataImage, wanted: Sequence[Reassignment], may_change_factor: bool = True
) -> Decision[list[ProtocolError | None]]:
    """Reassign partitions; the result has an error or None for each of `wanted`.

    Every reassignment that is possible here is complete with its record.
    """
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    for each in wanted:
        try:
            state = _partition(
                image, each.topic, each.index,
                f"Unable to find a topic named {each.topic}.",
                f"Unable to find partition {each.topic}:{each.index}.",
            )
            changed = _reassigned(image, state, each.replicas, may_change_factor)
            if changed != state:
                records.append(PartitionChanged(each.topic, each.index, changed))
            errors.append(None)
        except ProtocolError as error:
            errors.append(error)
    return Decision(records, errors)


def _reassigned(
    image: MetadataImage,
    state: PartitionState,
    replicas: tuple[int, ...] | None,
    may_change_factor: bool,
) -> PartitionState:
    if replicas is None:
        raise NoReassignmentInProgress("")
    require_assignment(replicas, image.brokers, None)
    if not may_change_factor and len(replicas) != len(state.replicas):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(state.replicas)} to {len(replicas)}"
        )
    new = [node for node in replicas if node not in state.replicas]
    if new:
        raise InvalidReplicaAssignment(
            f"Broker {new[0]} has no replica, and none can be added yet: choose among"
            f" {list(state.replicas)}."
        )
    isr = tuple(node for node in state.isr if node in replicas)
    if not isr:
        raise InvalidReplicaAssignment(
            f"None of {list(replicas)} is in sync: the records would be lost."
        )
    if replicas == state.replicas:
        return state
    moved = replace(
        state, replicas=replicas, isr=isr, partition_epoch=state.partition_epoch + 1
    )
    if state.leader in replicas:
        return moved
    leader = next((node for node in isr if node in image.brokers), NO_LEADER)
    return replace(moved, leader=leader, leader_epoch=state.leader_epoch + 1)


def _partition(
    image: MetadataImage, topic: str, index: int, no_topic: str, no_partition: str
) -> PartitionState:
    found = image.topics.get(topic)
    if found is None:
        raise UnknownTopicOrPartition(no_topic)
    if not 0 <= index < len(found.partitions):
        raise UnknownTopicOrPartition(no_partition)
    return found.partitions[index]


def raise_leader_epochs(image: MetadataImage) -> Decision[None]:
    """Begin a new leader epoch of every partition, as Kafka's controller does for a broker that
    returns: unflushed records may be lost, and clients notice that by the epoch (KIP-320)."""
    return Decision([EpochsRaised()] if image.topics else (), None)
