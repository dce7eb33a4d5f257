"""Chooses the brokers of a partition's replicas: round robin over the live brokers, with each
replica on another rack if possible. If too few brokers are live, brokers that are away get replicas
too. A client may also assign the replicas itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from itertools import islice

from ottla.replication.metadata import NO_LEADER, BrokerImage, MetadataImage, PartitionState
from ottla.wire.errors import ErrorCode, ProtocolError

Replicas = tuple[int, ...]


class InvalidReplicationFactor(ProtocolError):
    """More replicas than brokers, less than one replica, or a change of the number of replicas that
    the client has not allowed."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(ProtocolError):
    """A client's own assignment is not possible."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class Rotation:
    """The order in which brokers get the replicas of consecutive partitions.

    Leaders rotate. The distance from the leader to the other replicas grows with each round. So if
    a broker fails, the partitions that it led do not all move to the same broker. Each replica goes
    to the next broker whose rack has the fewest replicas of the partition (KIP-36). Brokers without
    a rack count as one rack.
    """

    __slots__ = ("nodes", "racks", "several")

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.racks = racks
        self.several = len(set(racks.values())) > 1
        self.nodes = _alternating(racks) if self.several else sorted(racks)

    def replicas(self, turn: int, rounds: int, replication_factor: int) -> Replicas:
        """The replicas of a partition, at most one on each broker; the first one is preferred as
        the leader."""
        first = turn % len(self.nodes)
        if not self.several:
            others = islice(self._others(first, rounds), replication_factor - 1)
            return (self.nodes[first], *others)
        return self._over_racks(first, rounds, replication_factor)

    def _others(self, first: int, rounds: int) -> Iterator[int]:
        """All nodes but the first one. This is a generator since callers need only a few of
        possibly hundreds of nodes."""
        nodes, size = self.nodes, len(self.nodes)
        for step in range(size - 1):
            yield nodes[(first + 1 + (rounds + step) % (size - 1)) % size]

    def _over_racks(self, first: int, rounds: int, replication_factor: int) -> Replicas:
        chosen = [self.nodes[first]]
        used = {self.racks[chosen[0]]}
        while len(chosen) < replication_factor:
            for node in self._others(first, rounds):
                rack = self.racks[node]
                if rack in used or node in chosen:
                    continue
                used.add(rack)
                chosen.append(node)
                if len(chosen) == replication_factor:
                    break
            used.clear()                            # each rack got a replica, or is exhausted
        return tuple(chosen)


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, one of each rack in turn."""
    sizes: Counter[str | None] = Counter()
    places = {}
    for node in sorted(racks):
        rack = racks[node]
        places[node] = sizes[rack], rack is not None, rack or ""
        sizes[rack] += 1
    return sorted(places, key=places.__getitem__)


def turn_of(brokers: Mapping[int, BrokerImage], node_id: int) -> int:
    """The position in the rotation at which the broker `node_id` leads; `node_id` itself if the
    broker is not live. A caller that adds partitions to a topic continues from that position."""
    return _rotation(brokers).nodes.index(node_id) if node_id in brokers else node_id


def _rotation(brokers: Mapping[int, BrokerImage]) -> Rotation:
    return Rotation({node_id: broker.rack for node_id, broker in brokers.items()})


def registered(image: MetadataImage) -> dict[int, BrokerImage]:
    """The brokers that may get replicas: those that are live, and those that are away but were not
    unregistered. Apache Kafka calls the latter fenced."""
    away = {node: broker for node, broker in image.former.items() if broker.endpoints}
    return {**away, **image.brokers}


def cordoned(image: MetadataImage) -> set[int]:
    """The registered brokers that get no new partitions: all their log directories are cordoned
    (KIP-1066)."""
    nodes = set()
    for node, broker in registered(image).items():
        text = image.config_of("broker", str(node)).get("cordoned.log.dirs", "")
        names = {each.strip() for each in text.split(",")} - {""}
        if "*" in names or (broker.directories and len(names) >= len(broker.directories)):
            nodes.add(node)
    return nodes


def spread(
    image: MetadataImage, count: int, replication_factor: int, start: int
) -> tuple[PartitionState, ...]:
    """Place `count` new partitions. `start` is the position in the rotation to begin at. If too few
    brokers are live, the remaining replicas go to absent brokers that were not unregistered. So
    topics can be created during a rolling restart, as in Apache Kafka."""
    closed = cordoned(image)
    brokers = {node: each for node, each in image.brokers.items() if node not in closed}
    size = len(brokers)
    if closed and not size:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are"
            " currently fenced, or have all their log directories cordoned."
        )
    away = sorted(registered(image).keys() - image.brokers.keys() - closed)
    if size == 0 or replication_factor > size + len(away):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): only"
            f" {size + len(away)} broker(s) are registered"
            + (" with a log directory that is not cordoned." if closed else ".")
        )
    rotation = _rotation(brokers)
    if size == replication_factor == 1:
        return (new_partition(tuple(rotation.nodes), image),) * count
    lacking = max(0, replication_factor - size)
    # A round is `size` partitions. With racks, the first round begins at the first new
    # partition, so that each whole round of new partitions loads the brokers evenly.
    first_round, offset = divmod(start, size)
    return tuple(
        new_partition(
            rotation.replicas(
                start + index,
                first_round + (index if rotation.several else offset + index) // size,
                replication_factor - lacking,
            ) + tuple(away[(start + index + n) % len(away)] for n in range(lacking)),
            image,
        )
        for index in range(count)
    )


def new_partition(replicas: Replicas, image: MetadataImage) -> PartitionState:
    """The state of a partition at its creation. Its live replicas are in sync, and the first of
    them leads. But brokers that are shutting down are left out of the in-sync set, because they
    may be gone before they learn of the partition. If all live replicas are on such brokers, none
    is left out."""
    live = tuple(node for node in replicas if node in image.brokers)
    isr = tuple(node for node in live if node not in image.leaving) or live
    assert len(set(replicas)) == len(replicas), "a broker is listed twice"
    return PartitionState(isr[0] if isr else NO_LEADER, 0, replicas, isr)


def assigned_partition(
    index: int, replicas: Replicas, image: MetadataImage
) -> PartitionState:
    """The state of a new partition with the replicas that a client has assigned. Raises
    InvalidReplicaAssignment if none of their brokers is live."""
    state = new_partition(replicas, image)
    if not state.isr:
        raise InvalidReplicaAssignment(
            "All brokers specified in the manual partition assignment for partition"
            f" {index} are fenced or in controlled shutdown."
        )
    return state


def require_assignment(
    replicas: Replicas, brokers: Container[int], replication_factor: int | None,
    closed: Container[int] = (),
) -> None:
    """Raise if a client's assignment of one partition is not possible.

    `replication_factor` is the number of replicas of the preceding partitions; None for the first
    partition. `closed` are brokers that get no new partitions.
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
        if node in closed:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {node}, but all its log"
                " directories are cordoned."
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
