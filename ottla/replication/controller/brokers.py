"""The controller's decisions about brokers: who belongs to the cluster, and what that means for
partitions.

A broker that returns as another process is first *gone*, then *registered*: what it led has a
new leader epoch in any case. A partition whose in-sync replicas are all gone keeps them listed, as
each of them has everything committed, and has no leader until one of them is back.

Large changes take several decisions, the one that removes a broker first. What remains to be done
is visible in the image: `repair` finds it, whichever controller comes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice

from ottla.replication.metadata import (
    NO_LEADER,
    BrokerGone,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ControllerElected,
    Decision,
    MetadataImage,
    MetadataRecord,
    PartitionsChanged,
    PartitionState,
)
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError

PARTITIONS_AT_A_TIME = 1000
"""Partitions that one decision changes at most."""

Change = tuple[str, int, PartitionState]


class BrokerNotRegistered(ProtocolError):
    """The cluster has no broker with this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class StaleBrokerEpoch(ProtocolError):
    """The broker has registered again since then."""

    code = ErrorCode.STALE_BROKER_EPOCH


def unregister_broker(image: MetadataImage, node_id: int, serving_id: int) -> Decision[None]:
    """Forget a broker that will not return; `serving_id`, which serves this, is registered."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise BrokerNotRegistered(f"Broker ID {node_id} is not currently registered")
    if node_id == serving_id or broker.incarnation:
        # In a cluster the image has only the brokers with a session with ZooKeeper.
        raise InvalidRequest(
            f"Broker {node_id} is running, and would register again: ask another broker once it"
            " has stopped"
        )
    return Decision([BrokerGone(node_id)], None)


def controller_elected(image: MetadataImage, node_id: int, epoch: int) -> Decision[None]:
    """The first entry of a term."""
    assert epoch > image.controller_epoch, "terms follow each other"
    return Decision([ControllerElected(node_id, epoch)], None)


def broker_gone(image: MetadataImage, node_id: int, epoch: int) -> Decision[bool]:
    """Remove a broker that has gone, unless it has another epoch by now.

    Leaders move to in-sync replicas that are live, and the broker leaves every in-sync set that
    has such a member. The result says whether `repair` is needed for the rest.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != epoch:
        return Decision([], False)
    return _with_repairs(image, [BrokerGone(node_id)])


def broker_registered(image: MetadataImage, broker: BrokerImage) -> Decision[bool]:
    """Add a broker whose former incarnation is gone; it may lead what has no leader.

    Raises StaleBrokerEpoch for an epoch that is not above the one in the image.
    """
    known = image.brokers.get(broker.node_id)
    if known is not None:
        if known.epoch >= broker.epoch:
            raise StaleBrokerEpoch(
                f"broker {broker.node_id} registers under epoch {broker.epoch}, it has"
                f" {known.epoch} already"
            )
        assert known.incarnation == broker.incarnation, "gone comes first"
    return _with_repairs(image, [BrokerRegistered(broker)])


def repair(image: MetadataImage) -> Decision[bool]:
    """Bring leaders and in-sync sets in line with live brokers; returns whether more is left."""
    return _with_repairs(image, [])


def _with_repairs(image: MetadataImage, first: list[MetadataRecord]) -> Decision[bool]:
    changes = list(islice(_repairs(image.apply(first)), PARTITIONS_AT_A_TIME + 1))
    more = len(changes) > PARTITIONS_AT_A_TIME
    return Decision([*first, *by_topic(changes[:PARTITIONS_AT_A_TIME])], more)


def _repairs(image: MetadataImage) -> Iterator[Change]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            repaired = repaired_state(image, state)
            if repaired is not state:
                yield topic.name, index, repaired


def by_topic(changes: list[Change]) -> Iterator[MetadataRecord]:
    """Changes of partitions as records, one for each topic."""
    for name, rows in groupby(changes, key=lambda change: change[0]):
        yield PartitionsChanged(name, tuple((index, state) for _, index, state in rows))


def repaired_state(image: MetadataImage, state: PartitionState) -> PartitionState:
    """A partition adjusted to the registered brokers; the same object if nothing changes."""
    isr = tuple(node for node in state.isr if node in image.brokers) or state.isr
    leader = state.leader
    if leader not in image.brokers or leader in image.leaving or leader not in isr:
        leader = elect(image, replace(state, isr=isr))
    return changed(state, leader, isr)


def elect(image: MetadataImage, state: PartitionState) -> int:
    """The first in-sync replica in the order of assignment that is not shutting down.

    One that is shutting down continues to lead where no other can, until it has left.
    """
    there = [node for node in state.replicas if node in state.isr and node in image.brokers]
    for node in there:
        if node not in image.leaving:
            return node
    return state.leader if state.leader in there else NO_LEADER


def changed(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    """The state with another leader or in-sync set, and the epochs that go with it."""
    if (leader, isr) == (state.leader, state.isr):
        return state
    return replace(
        state, leader=leader, isr=isr, partition_epoch=state.partition_epoch + 1,
        leader_epoch=state.leader_epoch + (leader != state.leader),
    )


def controlled_shutdown(image: MetadataImage, node_id: int, epoch: int) -> Decision[bool]:
    """A broker wants to stop: move its leadership to others and remove it from in-sync sets.

    The result says whether it may stop now: no partition that it leads could have another leader.
    Raises StaleBrokerEpoch.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != epoch:
        raise StaleBrokerEpoch(f"broker {node_id} is not registered under epoch {epoch}")
    first: list[MetadataRecord] = [] if node_id in image.leaving else [BrokerLeaving(node_id)]
    after = image.apply(first)
    changes = list(islice(_departures(after, node_id), PARTITIONS_AT_A_TIME + 1))
    done = len(changes) <= PARTITIONS_AT_A_TIME
    return Decision([*first, *by_topic(changes[:PARTITIONS_AT_A_TIME])], done)


def _departures(image: MetadataImage, node_id: int) -> Iterator[Change]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if node_id not in state.isr:
                continue
            leader = elect(image, state)
            isr = state.isr
            if leader not in (node_id, NO_LEADER):
                isr = tuple(node for node in isr if node != node_id)
            after = changed(state, leader, isr)
            if after is not state:
                yield topic.name, index, after


def in_sync_everywhere(image: MetadataImage, node_id: int) -> bool:
    """Whether a broker is in the in-sync set of every partition that it has a replica of."""
    return all(
        node_id in state.isr
        for topic in image.topics.values()
        for state in topic.partitions
        if node_id in state.replicas
    )


def preferred_leaders(image: MetadataImage) -> Decision[int]:
    """Return leadership to preferred replicas in sync; returns how many have moved."""
    changes = []
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            first = state.replicas[0]
            there = first in state.isr and first in image.brokers and first not in image.leaving
            if state.leader != first and there:
                changes.append((topic.name, index, changed(state, first, state.isr)))
                if len(changes) == PARTITIONS_AT_A_TIME:
                    break
    return Decision(list(by_topic(changes[:PARTITIONS_AT_A_TIME])), len(changes))
