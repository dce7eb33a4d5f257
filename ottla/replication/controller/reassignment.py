"""Reassignments move a partition's replicas to other brokers (KIP-455).

During a reassignment, a partition has its target replicas and the replicas to remove (`removing`).
`adding` are the target replicas that are new. The reassignment is complete once two conditions
hold: all new replicas are in sync, and so are at least min.insync.replicas of the target replicas.
The remaining target replicas may be away.
Each step that changes the replicas begins a new leader epoch, so that leader and followers agree on
the set of replicas. A broker that is no longer a replica deletes its log of the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ottla.replication.controller.brokers import PARTITIONS_AT_A_TIME, by_topic
from ottla.replication.controller.elections import (
    NONE,
    available,
    elect,
    min_isr,
    moved,
    trusted,
)
from ottla.replication.metadata import (
    NO_LEADER,
    Decision,
    MetadataImage,
    MetadataRecord,
    PartitionChanged,
    PartitionExtra,
    PartitionState,
)
from ottla.replication.placement import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    cordoned,
    registered,
    require_assignment,
)
from ottla.wire.errors import ErrorCode, ProtocolError, UnknownTopicOrPartition
from ottla.wire.marks import reached

Nodes = tuple[int, ...]


class NoReassignmentInProgress(ProtocolError):
    """There is no reassignment to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that a partition should have; None cancels a reassignment in progress."""

    topic: str
    index: int
    replicas: Nodes | None


def reassign_partitions(
    image: MetadataImage, wanted: Sequence[Reassignment], may_change_factor: bool = True
) -> Decision[list[ProtocolError | None]]:
    """Reassign partitions; the result has an error or None for each of `wanted`.

    A reassignment without new replicas is complete at once.
    """
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    for each in wanted:
        try:
            state = partition_of(
                image, each.topic, each.index,
                f"Unable to find a topic named {each.topic}.",
                f"Unable to find partition {each.topic}:{each.index}.",
            )
            least = min_isr(image, each.topic)
            if each.replicas is None:
                after = _cancelled(image, state, least)
            else:
                after = _begun(image, state, each.replicas, may_change_factor, least)
            if after != state:
                records.append(PartitionChanged(each.topic, each.index, after))
            errors.append(None)
        except ProtocolError as error:
            errors.append(error.kept())
    return Decision(records, errors)


def partition_of(
    image: MetadataImage, topic: str, index: int, no_topic: str, no_partition: str
) -> PartitionState:
    """Return the state of a partition. Raises UnknownTopicOrPartition with the message `no_topic`
    or `no_partition`."""
    topic_image = image.topics.get(topic)
    if topic_image is None:
        raise UnknownTopicOrPartition(no_topic)
    if not 0 <= index < len(topic_image.partitions):
        raise UnknownTopicOrPartition(no_partition)
    return topic_image.partitions[index]


def _original(state: PartitionState) -> Nodes:
    adding = (state.extra or NONE).adding
    return tuple(node for node in state.replicas if node not in adding)


def _begun(
    image: MetadataImage,
    state: PartitionState,
    target: Nodes,
    may_change_factor: bool,
    least: int,
) -> PartitionState:
    # As in Apache Kafka, a target broker may be away: the reassignment then waits for it. A broker
    # that was unregistered is accepted only if it already has a replica.
    require_assignment(target, {*registered(image), *state.replicas}, None, cordoned(image))
    original = _original(state)
    if not may_change_factor and len(target) != len(original):
        raise InvalidReplicationFactor(
            f"The reassignment would change the replication factor from {len(original)} to"
            f" {len(target)}"
        )
    adding = tuple(node for node in target if node not in original)
    removing = tuple(node for node in original if node not in target)
    replicas = (*target, *removing)
    isr = tuple(node for node in state.isr if node in replicas)
    if not isr or not (adding or set(isr) & set(target)):
        raise InvalidReplicaAssignment(
            f"None of the replicas {list(replicas)} is in sync: the records would be lost."
        )
    before = state.extra or NONE
    if (replicas, adding, removing) == (state.replicas, before.adding, before.removing):
        # Already in progress. If min.insync.replicas was lowered since, it may be complete now.
        return completed(image, state, least)
    _require_everything(image, state, replicas if adding else target)
    extra = before._replace(adding=adding, removing=removing)
    if not adding:
        # No replica is new, and an in-sync target replica has all records: complete at once.
        extra = extra._replace(removing=())
        return _placed(image, state, target, extra, least)
    return completed(image, _placed(image, state, replicas, extra, least), least)


def _require_everything(image: MetadataImage, state: PartitionState, left: Nodes) -> None:
    """Raise InvalidReplicaAssignment if none of `left`, the replicas that would remain, is live,
    trusted and in sync (`elections.py` defines these words). In that case a dropped replica may be
    the only one with all records, so a leader has to be elected first. But a replica may be dropped
    if its broker is not running and it is neither in sync nor an eligible leader replica. So an
    operator can give up a replica for which an election waits.
    """
    dropped = set(state.replicas) - set(left)
    in_sync = [node for node in state.isr if node in left]
    if trusted(state, available(image, state, in_sync)):
        return
    if dropped & {*state.isr, *(state.extra or NONE).elr, *image.brokers}:
        reached("a reassignment would drop the only good copy")
        raise InvalidReplicaAssignment(
            f"None of the replicas that would remain, {list(left)}, is known to have all records:"
            " wait until the partition has a leader, then reassign it."
        )


def _cancelled(image: MetadataImage, state: PartitionState, least: int) -> PartitionState:
    before = state.extra or NONE
    if not (before.adding or before.removing):
        raise NoReassignmentInProgress("")
    original = _original(state)
    if not set(original) & set(state.isr):
        raise InvalidReplicaAssignment(
            "The reassignment cannot be cancelled: none of the original replicas,"
            f" {list(original)}, is in sync, so records would be lost"
        )
    _require_everything(image, state, original)
    reached("a reassignment was cancelled")
    extra = before._replace(adding=(), removing=())
    # Replicas that were to be removed come last: their former positions are not restored.
    return _placed(image, state, original, extra, least)


def completed(image: MetadataImage, state: PartitionState, least: int) -> PartitionState:
    """Return the state without the replicas to remove if the reassignment is complete, otherwise
    `state` itself.

    A reassignment is complete if all new replicas are in sync, and if at least `least` target
    replicas are (all of them if there are fewer). One of these target replicas must be live and
    known to have all committed records. `least` is min.insync.replicas."""
    extra = state.extra or NONE
    target = tuple(node for node in state.replicas if node not in extra.removing)
    left = tuple(node for node in state.isr if node in target)
    if not (extra.adding or extra.removing) or not set(extra.adding) <= set(left):
        return state
    if len(left) < min(least, len(target)) or not trusted(state, available(image, state, left)):
        return state
    reached("a reassignment was completed")
    return _placed(image, state, target, extra._replace(adding=(), removing=()), least)


def complete_reassignments(image: MetadataImage, topic: str | None) -> Decision[bool]:
    """After min.insync.replicas was lowered, complete the reassignments of `topic` (of all topics
    if `topic` is None) that can be completed, at most PARTITIONS_AT_A_TIME of them. Returns whether
    there are more."""
    changes = list(islice(_completable(image, topic), PARTITIONS_AT_A_TIME + 1))
    more = len(changes) > PARTITIONS_AT_A_TIME
    return Decision(list(by_topic(changes[:PARTITIONS_AT_A_TIME])), more)


def _completable(
    image: MetadataImage, topic: str | None
) -> Iterator[tuple[str, int, PartitionState]]:
    for name in image.topics.keys() if topic is None else image.topics.keys() & {topic}:
        least = min_isr(image, name)
        for index, state in enumerate(image.topics[name].partitions):
            if state.extra is not None and (after := completed(image, state, least)) is not state:
                yield name, index, after


def _placed(
    image: MetadataImage,
    state: PartitionState,
    replicas: Nodes,
    extra: PartitionExtra,
    least: int,
) -> PartitionState:
    """The partition with these replicas, in a new leader epoch unless only their order changes."""
    isr = tuple(node for node in state.isr if node in replicas)
    after = state._replace(replicas=replicas, isr=isr, extra=extra)
    leader = state.leader
    if leader not in replicas:
        reached("a reassignment moves the leadership")
        leader, isr = elect(image, after._replace(leader=NO_LEADER), isr)
    after = moved(after, leader, isr, least)
    assert {*extra.adding, *extra.removing} <= {*replicas}, "a node to add or remove has no replica"
    others = set(replicas) != set(state.replicas) or leader != state.leader
    return after._replace(
        leader_epoch=state.leader_epoch + others, partition_epoch=state.partition_epoch + 1,
        extra=None if after.extra == NONE else after.extra,
    )
