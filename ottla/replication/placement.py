"""Which brokers get a partition: round robin over the live ones, or as the client assigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.replication.metadata import NO_LEADER, BrokerImage, PartitionState
from ottla.wire.errors import ErrorCode, ProtocolError

Replicas = tuple[int, ...]


class InvalidReplicationFactor(ProtocolError):
    """More replicas than brokers, or fewer than one."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(ProtocolError):
    """A client's own assignment is not possible."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def spread(
    brokers: Mapping[int, BrokerImage], count: int, replication_factor: int, start: int
) -> tuple[PartitionState, ...]:
    """Place `count` new partitions. `start` is the position in the rotation to begin at.

    Leaders rotate; the other replicas follow at a distance that grows with each round, so that
    the partitions of a lost leader do not all fall to the same broker.
    """
    nodes = sorted(brokers)
    if replication_factor > len(nodes):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): only {len(nodes)}"
            " broker(s) are registered."
        )
    if len(nodes) == 1:
        return (new_partition((nodes[0],), brokers),) * count
    return tuple(
        new_partition(_replicas(nodes, start + index, replication_factor), brokers)
        for index in range(count)
    )


def _replicas(nodes: Sequence[int], turn: int, replication_factor: int) -> Replicas:
    size = len(nodes)
    first, rounds = turn % size, turn // size
    others = [nodes[(first + 1 + (rounds + step) % (size - 1)) % size] for step in range(size - 1)]
    return (nodes[first], *others[: replication_factor - 1])


def new_partition(replicas: Replicas, brokers: Mapping[int, BrokerImage]) -> PartitionState:
    """The state of a partition at its creation: every live replica is in sync."""
    isr = tuple(node for node in replicas if node in brokers)
    return PartitionState(isr[0] if isr else NO_LEADER, 0, replicas, isr)


def require_assignment(
    replicas: Replicas, brokers: Mapping[int, BrokerImage], replication_factor: int | None
) -> None:
    """Raise if a client's assignment of one partition is not possible.

    `replication_factor` is that of the partitions before it; None for the first.
    """
    if not replicas:
        raise InvalidReplicaAssignment(
            "The manual partition assignment includes an empty replica list."
        )
    for node in sorted(replicas):
        if node not in brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {node}, but no such broker is"
                " registered."
            )
        if replicas.count(node) > 1:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {node} more than once."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s),"
            " but this is not consistent with previous partitions, which have"
            f" {replication_factor} replica(s)."
        )
