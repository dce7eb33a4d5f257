"""The controller's decisions about brokers: which brokers belong to the cluster, and how partitions
change when brokers come and go.

A broker that returns as another process is first removed (BrokerGone), then registered. So the
partitions that it led always get a new leader epoch. If all in-sync replicas of a partition are
gone, they stay in the in-sync set, since each of them has all committed records. Then the partition
has no leader until one of them is back, or another replica may be elected (`elections`).

Whether a broker's replicas are trusted depends on how its last run ended (`elections`).

A large change takes several decisions. If the change removes a broker, the first decision removes
it. The image shows what remains to be done, so `repair` finds the rest even under another
controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby, islice

from ottla.log.storage.run_record import LOST, MACHINE
from ottla.replication.controller.elections import (
    NONE,
    available,
    changed,
    distrusted_state,
    elect,
    may_lead,
    min_isr,
    moved,
    online_state,
    repaired_state,
    trusted,
)
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
    RecentlyGone,
)
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError
from ottla.wire.marks import reached

PARTITIONS_AT_A_TIME = 1000
"""The most partitions that one decision changes."""

Change = tuple[str, int, PartitionState]


class BrokerNotRegistered(ProtocolError):
    """The cluster has no broker with this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class Deposed(ProtocolError):
    """Another broker has become the controller meanwhile."""

    code = ErrorCode.NOT_CONTROLLER


class StaleBrokerEpoch(ProtocolError):
    """The broker is not registered, or has registered again under another broker epoch."""

    code = ErrorCode.STALE_BROKER_EPOCH


def unregister_broker(image: MetadataImage, node_id: int, serving_id: int) -> Decision[bool]:
    """Forget a broker that will not return; `serving_id` is the broker that serves the request.
    Returns whether there is more to do.

    In a cluster, elections no longer wait for a broker that was removed, even if it may have more
    records than a doubtful replica. The image keeps the broker's former registration in case it
    returns, but without addresses: brokers without addresses are not listed as away.
    """
    broker = image.brokers.get(node_id)
    if broker is None and node_id in image.former:
        records: list[MetadataRecord] = [
            BrokerGone(other, tuple(node for node in company if node != node_id))
            for other, company in image.company.items() if node_id in company
        ]
        changes = list(islice(_not_awaited(image, node_id), PARTITIONS_AT_A_TIME + 1))
        records += by_topic(changes[:PARTITIONS_AT_A_TIME])
        if image.adopting is not None and node_id in image.adopting.awaited:
            left = tuple(node for node in image.adopting.awaited if node != node_id)
            records.append(image.adopting._replace(awaited=left))
        former = image.former[node_id]
        if former.endpoints:
            records += [
                BrokerRegistered(former._replace(endpoints=())),
                BrokerGone(node_id, image.company.get(node_id, ())),
            ]
        if former.endpoints or node_id in image.recently_gone:
            records.append(RecentlyGone(tuple(sorted(image.recently_gone - {node_id}))))
        return Decision(records, len(changes) > PARTITIONS_AT_A_TIME)
    if broker is None:
        raise BrokerNotRegistered(f"Broker ID {node_id} is not currently registered")
    if node_id == serving_id or broker.incarnation:
        # In a cluster, the image has only brokers that have a session with ZooKeeper.
        raise InvalidRequest(
            f"Broker {node_id} is running and would register again. Stop it first, then send this"
            " request to another broker"
        )
    return Decision([BrokerGone(node_id)], False)


def _not_awaited(image: MetadataImage, node_id: int) -> Iterator[Change]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if state.extra is not None and node_id in state.extra.awaited:
                left = tuple(node for node in state.extra.awaited if node != node_id)
                extra = state.extra._replace(awaited=left)
                yield topic.name, index, changed(state, state.leader, state.isr, extra)


def controller_elected(image: MetadataImage, node_id: int, epoch: int) -> Decision[None]:
    """Record the election of a controller, as the first entry of its term. Raises Deposed if a
    later term has begun meanwhile."""
    if epoch <= image.controller_epoch:
        raise Deposed(f"broker {node_id} was elected controller in epoch {epoch}, but broker"
                      f" {image.controller_id} was elected later, in epoch"
                      f" {image.controller_epoch}")
    return Decision([ControllerElected(node_id, epoch)], None)


def brokers_gone(image: MetadataImage, gone: Mapping[int, int]) -> Decision[bool]:
    """Remove brokers that have gone. `gone` maps their ids to their broker epochs; a broker that
    has registered under another epoch meanwhile stays.

    Live in-sync replicas become leaders, and the brokers leave every in-sync set that has a live
    member. Brokers that go at the same time belong in one decision. If they were removed one after
    the other, in-sync sets would shrink to a broker that is gone as well. Returns whether `repair`
    is needed for the rest.
    """
    first: list[MetadataRecord] = [
        # The company includes other brokers of `gone` that are among the recently gone. Such a
        # broker also went a short time ago and came back. It may not have been in sync in between.
        BrokerGone(node_id, tuple(sorted(image.recently_gone - {node_id})))
        for node_id, epoch in gone.items()
        if node_id in image.brokers and image.brokers[node_id].epoch == epoch
    ]
    return _with_repairs(image, first) if first else Decision([], False)


def outlived(
    image: MetadataImage, nodes: Collection[int], seen: MetadataImage
) -> Decision[None]:
    """Remove `nodes` from `recently_gone`: every other live broker has run for so long since they
    went that it cannot have stopped together with them. The caller has checked this for the image
    `seen`. If brokers have come or gone since `seen`, nothing changes."""
    left = image.recently_gone - {*nodes}
    if left == image.recently_gone or (image.brokers, image.former) != (seen.brokers, seen.former):
        return Decision([], None)
    return Decision([RecentlyGone(tuple(sorted(left)))], None)


def broker_registered(
    image: MetadataImage, broker: BrokerImage, stop: str = "clean", lost: Collection[str] = (),
    adopts: bool = False,
) -> Decision[bool]:
    """Add a broker whose former incarnation is gone. It becomes the leader of partitions that have
    no leader, where it can lead.

    `stop`, `lost` and `adopts` are as in `distrust`. If distrusting the replicas takes several
    decisions, the caller calls `distrust` first.

    Raises StaleBrokerEpoch for an epoch that is not above the one in the image.
    """
    known = image.brokers.get(broker.node_id)
    if known is not None:
        if known.epoch >= broker.epoch:
            raise StaleBrokerEpoch(
                f"broker {broker.node_id} cannot register with broker epoch {broker.epoch}: it is"
                f" already registered with broker epoch {known.epoch}"
            )
        assert known.incarnation == broker.incarnation, "the former process was not removed"
    doubts = by_topic(list(_distrusted(image, broker, stop, lost, adopts)))
    return _with_repairs(image, [*doubts, BrokerRegistered(broker)])


def repair(image: MetadataImage) -> Decision[bool]:
    """Bring leaders and in-sync sets in line with live brokers; returns whether more is left."""
    return _with_repairs(image, [])


def _with_repairs(image: MetadataImage, first: list[MetadataRecord]) -> Decision[bool]:
    changes = list(islice(_repairs(image.apply(first)), PARTITIONS_AT_A_TIME + 1))
    more = len(changes) > PARTITIONS_AT_A_TIME
    return Decision([*first, *by_topic(changes[:PARTITIONS_AT_A_TIME])], more)


def _repairs(image: MetadataImage) -> Iterator[Change]:
    for topic in image.topics.values():
        wanted = min_isr(image, topic.name)
        for index, state in enumerate(topic.partitions):
            repaired = repaired_state(image, state, wanted)
            if repaired is not state:
                yield topic.name, index, repaired


def distrust(
    image: MetadataImage, broker: BrokerImage, stop: str, lost: Collection[str],
    adopts: bool = False,
) -> Decision[bool]:
    """Stop trusting replicas of a returning broker, before it is registered.

    `stop` is how the broker's last run ended (`log/storage/run_record`). `lost` are the partitions
    whose logs on the broker are missing, damaged or outdated. `adopts` says that the cluster
    adopts a backup of ZooKeeper. The image may then be older than the logs. So its in-sync sets may
    be outdated, and any replica may have the longest log. Nothing happens if the broker's last
    registration is of the same process, which only has a new session. Returns whether there is
    more to do.
    """
    changes = list(islice(_distrusted(image, broker, stop, lost, adopts), PARTITIONS_AT_A_TIME + 1))
    more = len(changes) > PARTITIONS_AT_A_TIME
    return Decision(list(by_topic(changes[:PARTITIONS_AT_A_TIME])), more)


def _distrusted(
    image: MetadataImage, broker: BrokerImage, stop: str, lost: Collection[str], adopts: bool
) -> Iterator[Change]:
    node_id = broker.node_id
    known = image.last_known(node_id)
    doubtful = adopts or stop in (MACHINE, LOST)
    lost = frozenset(lost)                      # a set: it may name thousands of replicas
    if known is None or known.incarnation == broker.incarnation:
        return
    for topic in image.topics.values():
        wanted = min_isr(image, topic.name)
        for index, state in enumerate(topic.partitions):
            gone = stop == LOST or f"{topic.name}-{index}" in lost
            # A log directory that failed and works again may have lost what was written.
            failed = node_id in (state.extra or NONE).offline
            after = state
            if gone or doubtful or failed:
                after = distrusted_state(image, state, node_id, gone, wanted, adopts)
            if failed:
                after = online_state(after, node_id)
            if after is not state:
                yield topic.name, index, after


def by_topic(changes: list[Change]) -> Iterator[MetadataRecord]:
    """Changes of partitions as records, one for each topic."""
    for name, rows in groupby(changes, key=lambda change: change[0]):
        yield PartitionsChanged(name, tuple((index, state) for _, index, state in rows))


def controlled_shutdown(image: MetadataImage, node_id: int, epoch: int) -> Decision[bool]:
    """A broker wants to stop: move its leadership to other brokers and remove it from in-sync sets.

    The result is True if nothing is left to move or remove after this decision: the broker may stop
    then. Raises StaleBrokerEpoch.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != epoch:
        raise StaleBrokerEpoch(f"broker {node_id} is not registered with broker epoch {epoch}")
    first: list[MetadataRecord] = [] if node_id in image.leaving else [BrokerLeaving(node_id)]
    after = image.apply(first)
    changes = list(islice(_departures(after, node_id), PARTITIONS_AT_A_TIME + 1))
    done = len(changes) <= PARTITIONS_AT_A_TIME
    return Decision([*first, *by_topic(changes[:PARTITIONS_AT_A_TIME])], done)


def _departures(image: MetadataImage, node_id: int) -> Iterator[Change]:
    for topic in image.topics.values():
        wanted = min_isr(image, topic.name)
        for index, state in enumerate(topic.partitions):
            if node_id not in state.isr:
                continue
            leader, isr = state.leader, state.isr
            if leader == node_id or leader not in available(image, state, isr):
                # The leader may be gone and not replaced by `repair` yet: this broker must not
                # leave the in-sync set in favour of such a leader.
                reached("a broker that stops hands over a partition")
                leader, isr = elect(image, state, isr)
            if leader not in (node_id, NO_LEADER):
                isr = tuple(node for node in isr if node != node_id)
            after = moved(state, leader, isr, wanted)
            if after is not state:
                yield topic.name, index, after


def in_sync_everywhere(image: MetadataImage, node_id: int) -> bool:
    """Whether all of a broker's replicas are in sync, except those in failed log directories."""
    return all(
        node_id in state.isr
        for topic in image.topics.values()
        for state in topic.partitions
        if node_id in state.replicas and node_id not in (state.extra or NONE).offline
    )


def preferred_leaders(image: MetadataImage) -> Decision[int]:
    """Give the leadership back to preferred replicas that are in sync, in at most
    PARTITIONS_AT_A_TIME partitions. The result is the number of partitions that have changed."""
    changes = list(islice(_preferred(image), PARTITIONS_AT_A_TIME))
    return Decision(list(by_topic(changes)), len(changes))


def _preferred(image: MetadataImage) -> Iterator[Change]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            first = state.replicas[0]
            there = first in may_lead(image, state, state.isr)
            # A partition without a leader waits for a trusted replica, or for the election of the
            # longest log.
            if state.leader not in (first, NO_LEADER) and there and trusted(state, (first,)):
                wanted = min_isr(image, topic.name)
                reached("a preferred replica leads again")
                yield topic.name, index, moved(state, first, state.isr, wanted)
