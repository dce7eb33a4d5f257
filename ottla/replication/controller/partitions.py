"""The controller's elections on request (KIP-460), and by the longest log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from ottla.replication.controller.elections import (
    EligibleLeadersNotAvailable,
    LogEnd,
    available,
    led_alone,
    longest,
    may_lead,
    min_isr,
    moved,
    trusted,
)
from ottla.replication.controller.reassignment import completed, partition_of
from ottla.replication.metadata import (
    NO_LEADER,
    Decision,
    MetadataImage,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
)
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolError,
)


class ElectionType(IntEnum):
    """Which replicas may become leader in an election."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionNotNeeded(ProtocolError):
    """The partition already has its preferred leader, or, for an unclean election, any leader."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailable(ProtocolError):
    """The preferred replica is not in sync or not available."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def elect_leaders(
    image: MetadataImage,
    kind: int,
    wanted: Sequence[tuple[str, int]],
    ends: Mapping[tuple[str, int], Mapping[int, LogEnd]] | None = None,
    before: MetadataImage | None = None,
) -> Decision[list[ProtocolError | None]]:
    """Elect leaders; the result has an error or None for each of `wanted`.

    `ends` are the log ends that replicas reported while `before` was the image; an unclean election
    compares them. `ends` is None on a standalone broker, which has every replica.
    """
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    elected = set()
    for topic, index in wanted:
        try:
            state = partition_of(
                image, topic, index,
                f"No such topic as {topic}", f"No such partition as {topic}-{index}",
            )
            if (topic, index) in elected:
                raise _not_needed()
            reported = None if ends is None else ends.get((topic, index), {})
            if reported and _has_changed(before, image, topic, index):
                reported = {}
            leader = _new_leader(image, kind, state, reported)
            if kind == ElectionType.UNCLEAN and leader not in trusted(state, state.isr):
                after = _led_alone(image, topic, state, leader)
            else:
                after = moved(state, leader, state.isr, min_isr(image, topic))
            records.append(PartitionChanged(topic, index, after))
            elected.add((topic, index))
            errors.append(None)
        except ProtocolError as error:
            errors.append(error.kept())
    return Decision(records, errors)


def elect_longest(
    image: MetadataImage,
    asked: Sequence[tuple[str, int, Mapping[int, LogEnd], bool]],
    before: MetadataImage | None = None,
) -> Decision[int]:
    """Elect leaders by the reported ends of logs: `asked` has topic, index, ends and whether the
    election may be unclean. `before` was the image when the replicas were asked. Returns how many
    partitions got a leader."""
    records: list[MetadataRecord] = []
    for name, index, ends, unclean in asked:
        topic = image.topics.get(name)
        if (
            topic is None or index >= len(topic.partitions)
            or _has_changed(before, image, name, index)
        ):
            continue
        state = topic.partitions[index]
        try:
            leader = longest(image, state, ends, unclean)
        except EligibleLeadersNotAvailable:
            continue
        after = _led_alone(image, name, state, leader)
        records.append(PartitionChanged(name, index, after))
    return Decision(records, len(records))


def _has_changed(
    before: MetadataImage | None, image: MetadataImage, topic: str, index: int
) -> bool:
    """Whether an existing partition was recreated, or has changed its state, since `before`. If so,
    a replica may have led the partition meanwhile, and the reported ends may be outdated."""
    if before is None:
        return False
    one, other = before.topics.get(topic), image.topics[topic]
    return (
        one is None or one.topic_id != other.topic_id or index >= len(one.partitions)
        or one.partitions[index] != other.partitions[index]
    )


def _led_alone(
    image: MetadataImage, topic: str, state: PartitionState, leader: int
) -> PartitionState:
    """The state with a leader that may lack records. A reassignment to only this replica is
    completed at once: otherwise it would wait for a later change of the in-sync set."""
    return completed(image, led_alone(state, leader), min_isr(image, topic))


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
        if preferred not in trusted(state, may_lead(image, state, state.isr)):
            raise PreferredLeaderNotAvailable("The preferred leader was not available.")
        return preferred
    if kind != ElectionType.UNCLEAN:
        raise InvalidRequest(f"Unknown election type {kind}")
    if state.leader != NO_LEADER:
        raise _not_needed()
    if ends is not None:
        return longest(image, state, ends, unclean=True)
    for node in available(image, state, (*state.isr, *state.replicas)):
        return node
    raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
