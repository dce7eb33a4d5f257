"""Which replica leads a partition, which are in sync, and which others may be elected.

A replica is *trusted* unless it is doubtful or lost. It is `doubtful` if its machine has stopped
without warning since the replica was last known to have all committed records. Then the end of its
log may be missing. It is `lost` if its log is missing, damaged or outdated. Leaders are elected
among live replicas, in the order of assignment:

1. a trusted member of the in-sync set;
2. a trusted eligible leader replica (KIP-966): one that left the in-sync set when fewer than
   min.insync.replicas members remained. The high watermark does not move while the set is so small,
   so the replica has all committed records;
3. the longest log of all live replicas, if there is no eligible leader replica, if all in-sync
   replicas are doubtful but live, and if all *awaited* replicas are live. An awaited replica
   stopped shortly before a doubtful one;
4. on request, or where `unclean.leader.election.enable` is set, the longest log of all live
   replicas.

An election removes absent and doubtful members from the in-sync set; they join again like any
follower. If no trusted member is live and no other replica can be elected, the set stays as it is.
It then still names the replicas that were the last to have all committed records.

Replicas whose power fails at the same moment leave the set one after the other, as their sessions
end. The last replica remains alone in the set. It never learned that it was alone, so it has not
flushed the records that were committed in memory. Therefore the other replicas are awaited: one of
their disks may have more records. A broker that stayed live has flushed its records, so its
replicas need not wait for any other replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ottla.replication.metadata import (
    NO_LEADER,
    MetadataImage,
    PartitionExtra,
    PartitionState,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.marks import reached

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
NONE = PartitionExtra()

Nodes = tuple[int, ...]


class EligibleLeadersNotAvailable(ProtocolError):
    """No replica is available, or replicas that the election needs have not reported the ends of
    their logs."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A replica's report about its log: the last leader epoch and the end offset. `broker_epoch` is
    the epoch of the broker that sent it."""

    broker_epoch: int
    last_epoch: int
    end: int


def min_isr(image: MetadataImage, topic: str) -> int:
    """min.insync.replicas of a topic: its own value, or the cluster-wide one, or 1."""
    for resource in (("topic", topic), ("broker", "")):
        text = image.config_of(*resource).get(MIN_ISR)
        if text is not None:
            return int(text)
    return 1


def unclean_is_enabled(image: MetadataImage, topic: str, otherwise: bool) -> bool:
    """Whether a topic allows leaders that are not in sync; `otherwise` is the value in the
    controller's configuration file."""
    for resource in (("topic", topic), ("broker", "")):
        text = image.config_of(*resource).get(UNCLEAN)
        if text is not None:
            return text.strip().lower() == "true"
    return otherwise


def trusted(state: PartitionState, nodes: Collection[int]) -> Nodes:
    """Those of `nodes` that are neither doubtful nor lost, in the order of assignment."""
    extra = state.extra or NONE
    return tuple(
        node for node in state.replicas
        if node in nodes and node not in extra.doubtful and node not in extra.lost
    )


def available(image: MetadataImage, state: PartitionState, nodes: Collection[int]) -> Nodes:
    """Those of `nodes` that are registered and whose log directory works, in the order of `nodes`.
    Empty while a backup is being adopted: a leader elected now would get the epoch after the
    backup's, and brokers' logs may already have other records of that epoch."""
    if image.adopting is not None:
        return ()
    offline = (state.extra or NONE).offline
    return tuple(node for node in nodes if node in image.brokers and node not in offline)


def may_lead(image: MetadataImage, state: PartitionState, nodes: Collection[int]) -> Nodes:
    """Those of `nodes` that are available and not shutting down. Elections prefer these, and the
    next `repair` calls `elect` for every partition whose leader is no longer among them.
    """
    there = available(image, state, nodes)
    return tuple(node for node in there if node not in image.leaving) if image.leaving else there


def moved(
    state: PartitionState, leader: int, isr: Nodes, wanted: int, distrusted: Nodes = ()
) -> PartitionState:
    """The state with another leader or in-sync set; the other fields follow from these.

    `wanted` is min.insync.replicas. `distrusted` are replicas that must not become eligible
    leaders. Returns the same object if nothing changes.
    """
    extra = state.extra or NONE
    if len(isr) >= min(wanted, len(state.replicas)):
        elr: Nodes = ()
        last: Nodes = ()
    else:
        out = [n for n in state.replicas if n not in isr]
        # A replica in a failed directory may come back with fewer records than it had.
        left = trusted(state, {*extra.elr, *state.isr} - {*distrusted, *extra.offline})
        elr = tuple(n for n in out if n in left)
        before = {*extra.elr, *extra.last_elr, *state.isr}
        last = tuple(n for n in out if n in before and n not in elr)
    # A leader is no longer doubtful: its log now defines which records are committed.
    doubtful = tuple(node for node in extra.doubtful if node in isr and node != leader)
    if leader in extra.doubtful:
        reached("a doubtful replica leads")
    return changed(state, leader, isr, extra._replace(
        elr=elr, last_elr=last, doubtful=doubtful,
        lost=tuple(node for node in extra.lost if node in isr),
        offline=tuple(node for node in extra.offline if node in state.replicas),
        awaited=tuple(
            node for node in extra.awaited
            if doubtful and node in state.replicas and node not in isr
        ),
    ))


def changed(
    state: PartitionState, leader: int, isr: Nodes, extra: PartitionExtra | None
) -> PartitionState:
    """The state with these values, and with the epochs that the change requires."""
    assert leader == NO_LEADER or leader in isr, "the leader is not in the in-sync set"
    assert all(node in state.replicas for node in isr), "a node in the in-sync set has no replica"
    extra = None if extra == NONE else extra
    if (leader, isr, extra) == (state.leader, state.isr, state.extra):
        return state
    return state._replace(
        leader=leader, isr=isr, extra=extra, partition_epoch=state.partition_epoch + 1,
        leader_epoch=state.leader_epoch + (leader != state.leader),
    )


def repaired_state(image: MetadataImage, state: PartitionState, wanted: int) -> PartitionState:
    """The state of a partition with the leader and in-sync set that follow from the registered
    brokers; the same object if nothing changes."""
    isr = trusted(state, available(image, state, state.isr)) or state.isr
    isr = tuple(node for node in state.isr if node in isr)
    leader = state.leader
    if leader not in trusted(state, may_lead(image, state, isr)):
        leader, isr = elect(image, state, isr)
    return moved(state, leader, isr, wanted)


def elect(image: MetadataImage, state: PartitionState, isr: Nodes) -> tuple[int, Nodes]:
    """The new leader and its in-sync set, by rules 1 and 2 of this module's docstring. Rule 3 is
    applied only if it has a single candidate. Returns NO_LEADER and `isr` if no replica can lead.

    If no other in-sync replica can lead, a leader that is shutting down leads until it has left.
    """
    for node in trusted(state, may_lead(image, state, isr)):
        return node, isr
    if state.leader in trusted(state, available(image, state, isr)):
        reached("a leader that is shutting down has no successor yet")
        return state.leader, isr
    for node in trusted(state, may_lead(image, state, (state.extra or NONE).elr)):
        reached("an eligible replica outside the in-sync set was elected")
        return node, (node,)
    if all_doubtful(image, state):
        candidates = _candidates(image, state)
        if len(candidates) == 1:
            reached("the only live replica leads although it is doubtful")
            return candidates[0], candidates
    reached("nobody can lead a partition")
    return NO_LEADER, isr


def all_doubtful(image: MetadataImage, state: PartitionState) -> bool:
    """True if every replica that may have all committed records is live and not shutting down, but
    none of them is trusted. In that case, waiting cannot bring a better copy than the longest log
    of the live replicas."""
    extra = state.extra or NONE
    needed = (*state.isr, *extra.awaited)
    return (
        not extra.elr and {*state.isr} <= {*extra.doubtful}
        and may_lead(image, state, needed) == needed
    )


def _candidates(image: MetadataImage, state: PartitionState) -> Nodes:
    """The replicas that may lead and have not lost their logs."""
    lost = (state.extra or NONE).lost
    return tuple(node for node in may_lead(image, state, state.replicas) if node not in lost)


def to_ask(image: MetadataImage, state: PartitionState, unclean: bool) -> Nodes:
    """The replicas of a partition without a leader that have to report their log ends for an
    election; none if the partition has a leader, or has to wait for other replicas."""
    if state.leader != NO_LEADER or not (unclean or all_doubtful(image, state)):
        return ()
    # If all live replicas have lost their logs, ask them nevertheless: an operator may accept the
    # loss.
    return _candidates(image, state) or available(image, state, state.replicas)


def leaderless(image: MetadataImage, otherwise: bool) -> Iterator[tuple[str, int, Nodes, bool]]:
    """The partitions that need an election of the longest log: topic, index, the replicas to ask,
    and whether the election is unclean. A partition that needs an unclean election is left out if
    the topic's setting does not allow it."""
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if state.leader == NO_LEADER:
                unclean = not all_doubtful(image, state)
                if unclean and not unclean_is_enabled(image, topic.name, otherwise):
                    continue
                if nodes := to_ask(image, state, unclean):
                    yield topic.name, index, nodes, unclean


def longest(
    image: MetadataImage, state: PartitionState, ends: Mapping[int, LogEnd], unclean: bool
) -> int:
    """The live replica with the longest log: the highest last leader epoch, then the highest end
    offset; in-sync replicas win a tie.

    Raises EligibleLeadersNotAvailable if no replica has answered under its current broker epoch.
    Unless the election is unclean, every in-sync and every awaited replica must have answered.
    """
    needed = {*state.isr, *(state.extra or NONE).awaited}
    nodes = [
        node for node in to_ask(image, state, unclean)
        if node in ends and ends[node].broker_epoch == image.brokers[node].epoch
    ]
    if not nodes or not (unclean or needed <= set(nodes)):
        raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
    reached("the longest log is elected")
    return max(nodes, key=lambda node: (
        ends[node].last_epoch, ends[node].end, node in state.isr, -state.replicas.index(node)
    ))


def led_alone(state: PartitionState, leader: int) -> PartitionState:
    """The state with a leader that may lack records: it alone is in sync, and no other replica is
    an eligible leader."""
    extra = (state.extra or NONE)._replace(
        elr=(), last_elr=(), doubtful=(), lost=(), awaited=()
    )
    return changed(state, leader, (leader,), extra)


def unclean_elections(old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> int:
    """How many partitions of these topics have a new leader that was neither in sync nor an
    eligible leader nor awaited."""
    count = 0
    for name in topics:
        before, after = old.topics.get(name), new.topics.get(name)
        if before is None or after is None or before.topic_id != after.topic_id:
            continue
        for state, changed_to in zip(before.partitions, after.partitions, strict=False):
            leader, extra = changed_to.leader, state.extra or NONE
            count += (
                changed_to is not state and changed_to.isr == (leader,)
                and leader not in {*state.isr, *extra.elr, *extra.awaited}
            )
    return count


def distrusted_state(
    image: MetadataImage, state: PartitionState, node_id: int, lost: bool, wanted: int,
    adopts: bool = False,
) -> PartitionState:
    """A partition after the return of a broker whose replica may have lost records; `lost` is True
    if the replica's log is missing, damaged or outdated.

    The broker's replica is no longer an eligible leader. It leaves the in-sync set if any other
    member is live and trusted. With `lost`, it leaves the set if there is any other member. If it
    stays in the set, it is doubtful or lost, and the replicas that stopped shortly before it are
    awaited. With `adopts`, the image may be older than the logs, so all replicas outside the set
    are awaited.
    """
    extra = state.extra or NONE
    if node_id not in state.isr and node_id not in extra.elr:
        return state
    elr = tuple(node for node in extra.elr if node != node_id)
    before = {*extra.last_elr, *extra.elr} - {*elr}
    last = tuple(node for node in state.replicas if node in before)
    if node_id in state.isr:
        others = tuple(node for node in state.isr if node != node_id)
        if trusted(state, available(image, state, others)) or (lost and others):
            leader = NO_LEADER if state.leader == node_id else state.leader
            reached("a replica that may have lost records leaves the in-sync set")
            return moved(state, leader, others, wanted, distrusted=(node_id,))
        doubtful = tuple(node for node in extra.doubtful if node != node_id)
        gone = tuple(node for node in extra.lost if node != node_id)
        if lost or node_id in extra.lost:
            # A log that was lost once stays lost: the present log may be newer than the loss.
            gone += (node_id,)
            reached("the only replica in sync has lost its log")
        else:
            doubtful += (node_id,)
            reached("a doubtful replica stays in sync as nobody is better")
        awaited = {*extra.awaited}
        if adopts:
            awaited |= {*state.replicas} - {*state.isr}
        elif node_id not in extra.doubtful:
            # If the replica was doubtful before, it has not led since, so `awaited` is still
            # correct.
            awaited |= {*image.company.get(node_id, ())} - {*state.isr}
            if awaited:
                reached("a doubtful replica waits for those that stopped with it")
        extra = extra._replace(
            doubtful=doubtful, lost=gone,
            awaited=tuple(node for node in state.replicas if node in awaited),
        )
    return changed(state, state.leader, state.isr, extra._replace(elr=elr, last_elr=last))


def offline_state(
    image: MetadataImage, state: PartitionState, node_id: int, wanted: int
) -> PartitionState:
    """A partition after one replica's log directory has failed, or its log was found damaged. The
    replica is no longer an eligible leader, and leaves the in-sync set if another trusted member is
    live.

    The leader epoch always changes. When the replica is back, it may have fewer records than it
    reported in the present epoch, and the leader must not rely on that report.
    """
    extra = state.extra or NONE
    if node_id in extra.offline:
        return state
    elr = tuple(node for node in extra.elr if node != node_id)
    before = {*extra.last_elr, *extra.elr} - {*elr}
    last = tuple(node for node in state.replicas if node in before)
    extra = extra._replace(elr=elr, last_elr=last, offline=(*extra.offline, node_id))
    after = changed(state, state.leader, state.isr, extra)
    others = tuple(node for node in state.isr if node != node_id)
    isr = others if trusted(after, available(image, after, others)) else state.isr
    leader = state.leader
    if leader == node_id:
        reached("a leader lost its log directory")
        leader, isr = elect(image, after._replace(leader=NO_LEADER), isr)
    after = moved(after, leader, isr, wanted, distrusted=(node_id,))
    return _once(state, after)._replace(leader_epoch=state.leader_epoch + 1)


def online_state(state: PartitionState, node_id: int) -> PartitionState:
    """The partition once a replica's log directory works again."""
    if state.extra is None or node_id not in state.extra.offline:
        return state
    offline = tuple(node for node in state.extra.offline if node != node_id)
    return changed(state, state.leader, state.isr, state.extra._replace(offline=offline))


def back_state(
    image: MetadataImage, state: PartitionState, node_id: int, wanted: int
) -> PartitionState:
    """The partition once the log directory of a live broker works again. A partition without a
    leader gets one at once, since there may be no later event that triggers an election."""
    after = online_state(state, node_id)
    if after is state or after.leader != NO_LEADER:
        return after
    reached("a repaired directory brings back a leader")
    return _once(state, repaired_state(image, after, wanted))


def _once(before: PartitionState, after: PartitionState) -> PartitionState:
    """`after` with the epochs of a single change, however many steps led to it."""
    return after._replace(
        partition_epoch=before.partition_epoch + 1,
        leader_epoch=before.leader_epoch + (after.leader != before.leader),
    )


def without_eligible(state: PartitionState) -> PartitionState:
    """The partition without its eligible leaders outside the in-sync set; for changes of
    min.insync.replicas."""
    if state.extra is None or not (state.extra.elr or state.extra.last_elr):
        return state
    reached("min.insync.replicas changed while replicas were eligible")
    return changed(state, state.leader, state.isr, state.extra._replace(elr=(), last_elr=()))
