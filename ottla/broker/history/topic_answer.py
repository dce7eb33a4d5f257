"""Answers why a replica is out of sync or a leader is missing: present state, then recent events.

Each broker answers about the partitions with a replica on it. The leader knows how far its
followers are behind; every broker that has a replica explains a partition without a leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.history.open_transactions import (
    OPENED_MAX,
    Ongoing,
    briefly,
    ongoing,
    opened,
)
from ottla.broker.history.partition_sentences import ENDINGS, nodes, out_of_sync, sentence
from ottla.broker.history.reasons import out_of_sync_reason
from ottla.broker.threads.slices import Slices
from ottla.groups.waits import Finding
from ottla.replication.metadata import NO_LEADER, PartitionExtra
from ottla.wire.errors import UnknownTopicOrPartition
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.groups.history.rings import Event
    from ottla.replication.metadata import MetadataImage, PartitionState, TopicImage
    from ottla.replication.partition import Partition

NONE = PartitionExtra()
PARTITIONS_MAX = 10_000
EVENTS_MAX = 1_000


REFUSE_WRITES = {"log_offline", "directory_full", "under_min_isr"}
"""Findings because of which a coordinator cannot write to its log."""


async def why_topic(broker: BrokerContext, name: str) -> dict[str, Any]:
    """The answer of this broker. Raises UnknownTopicOrPartition."""
    image, slices = broker.image, Slices()
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic {name!r} not found")
    partitions, events, count = [], [], 0
    known_open: Ongoing = {}
    for index, state in enumerate(topic.partitions[:PARTITIONS_MAX]):
        if broker.node_id not in state.replicas:
            continue
        findings = list(_standing(broker, image, topic, index))
        led = broker.replicas.partition(name, index) if state.leader == broker.node_id else None
        if led is not None and led.last_stable_offset() < led.high_watermark:
            if not count:
                known_open = await ongoing(broker, slices)
            findings += _held_back(broker, led, known_open if count < OPENED_MAX else None)
            count += 1
        if led is not None and state.leader != state.replicas[0]:
            findings.append(_not_preferred(state))
        partitions.append({
            "partition": index, "leader": state.leader, "replicas": state.replicas,
            "isr": state.isr, "led_here": state.leader == broker.node_id,
            "now": [{"kind": each.kind, "text": each.text, **each.fields} for each in findings],
        })
        events += [
            event_as_json(index, each)
            for each in broker.histories.partitions.rings.of((topic.topic_id, index))
        ]
        if slices.over:
            await slices.pause()
    events.sort(key=lambda each: each["at_ms"])
    return {
        "topic": name, "broker": broker.node_id, "at_ms": broker.clock.now_ms(),
        "partitions": partitions, "events": events[-EVENTS_MAX:],
    }


def event_as_json(index: int, event: Event) -> dict[str, Any]:
    """An event of a partition with its sentence."""
    return {
        "at_ms": event.at_ms, "partition": index, "kind": event.kind, "text": sentence(event),
        "times": event.times, "last_ms": event.last_ms if event.times > 1 else event.at_ms,
        **{name: value for name, value in event.fields.items() if value is not None},
    }


def refusing_writes(broker: BrokerContext, name: str, index: int) -> Finding | None:
    """Why a partition refuses writes with acks=all at present; None if it accepts them."""
    image = broker.image
    topic = image.topics.get(name)
    if topic is None or index >= len(topic.partitions):
        return None
    found = _standing(broker, image, topic, index)
    return next((each for each in found if each.kind in REFUSE_WRITES), None)


def _standing(
    broker: BrokerContext, image: MetadataImage, topic: TopicImage, index: int
) -> Iterator[Finding]:
    """What is wrong with a partition's replicas, the causes first."""
    state = topic.partitions[index]
    partition = broker.replicas.partition(topic.name, index)
    if partition is not None:
        yield from _log(broker, partition)
    if state.leader == NO_LEADER:
        yield _leaderless(image, state)
    elif state.leader == broker.node_id and partition is not None:
        for node in state.replicas:
            if node not in state.isr:
                yield _out_of_sync(broker, image, topic, index, node)
        if partition.role.under_min_isr:
            yield Finding(
                "under_min_isr",
                f"writes with acks=all are refused: min.insync.replicas is"
                f" {partition.log.config.min_insync_replicas}, but only {_brokers(state.isr)}"
                f" {'is' if len(state.isr) == 1 else 'are'} in sync (replicas:"
                f" {nodes(state.replicas)})",
                {"isr": state.isr},
            )
        yield from _reassignment(state)


def _held_back(
    broker: BrokerContext, partition: Partition, known_open: Ongoing | None
) -> Iterator[Finding]:
    """The open transaction that consumers wait for; `known_open` is None if the producer is not to
    be looked for."""
    stable = partition.last_stable_offset()
    behind = partition.high_watermark - stable
    if behind <= 0:
        return                  # it has ended meanwhile
    if known_open is None:
        text, about = briefly(stable)
    else:
        text, about = opened(broker, partition, stable, known_open)
    yield Finding(
        "open_transaction",
        f"{text}. Consumers with isolation.level=read_committed wait for the transaction to"
        f" end, and {counted(behind, 'record waits', 'records wait')}",
        {"waiting": behind, **about},
    )


def _not_preferred(state: PartitionState) -> Finding:
    preferred = state.replicas[0]
    later = " once it is in sync" * (preferred not in state.isr)
    return Finding(
        "not_preferred",
        f"broker {state.leader} leads, but the preferred leader is broker {preferred}: an"
        f" election of preferred leaders makes broker {preferred} the leader{later}",
        {"leader": state.leader, "preferred": preferred},
    )


def _log(broker: BrokerContext, partition: Partition) -> Iterator[Finding]:
    """What is wrong with the log on this broker."""
    if partition.log.offline is not None:
        yield Finding(
            "log_offline",
            f"the log on broker {broker.node_id} is offline: {partition.log.offline}",
            {"broker": broker.node_id},
        )
    home = broker.replicas.storage.homes.get((partition.topic, partition.index))
    if home is not None and home.space.full:
        yield Finding(
            "directory_full",
            f"log directory {home.path} on broker {broker.node_id} is full: writes are refused"
            " until it has space", {"broker": broker.node_id, "path": home.path},
        )


def _leaderless(image: MetadataImage, state: PartitionState) -> Finding:
    """Why a partition has no leader: which replicas could lead, and why they do not."""
    extra = state.extra or NONE
    able = [*state.isr, *(node for node in extra.elr if node not in state.isr)]
    why = "; ".join(
        f"broker {node}: {out_of_sync_reason(image, state, state, node).now}"
        if node not in image.brokers or node in extra.offline or node in image.leaving
        or node in (*extra.lost, *extra.doubtful) else f"broker {node} is awaited"
        for node in able
    )
    one = "one of brokers" if len(able) > 1 else "broker"
    ends = (
        f"the partition gets a leader when {one} {nodes(able)} is back, or by an unclean election,"
        " which may lose records"
    )
    if image.adopting is not None and image.adopting.awaited:
        awaited = image.adopting.awaited
        ends = (
            f"ZooKeeper was restored from a backup: before the start of {_brokers(awaited)}, the"
            " partition can get a leader only by an unclean election, which may lose records"
        )
    return Finding(
        "no_leader",
        f"there is no leader, so nothing can be read or written: only {_brokers(able)}"
        f" {'are' if len(able) > 1 else 'is'} known to have everything that was committed"
        f" ({why}); {ends}",
        {"able": able},
    )


def _out_of_sync(
    broker: BrokerContext, image: MetadataImage, topic: TopicImage, index: int, node: int
) -> Finding:
    """A replica that is out of sync: since when, why, how far behind, and what will end it."""
    partition = broker.replicas.partition(topic.name, index)
    assert partition is not None, "this broker leads the partition, but has no replica of it"
    left = broker.histories.partitions.left((topic.topic_id, index), node)
    state = topic.partitions[index]
    ends = {each: end for each, _, end, _, _ in partition.follower_states()}
    behind = partition.log.log_end_offset - ends[node] if ends.get(node, -1) >= 0 else None
    fields: dict[str, Any] = {"broker": node, "behind": behind}
    elapsed = 0
    if left is not None:
        elapsed = broker.clock.monotonic_ms() - left.tick_ms
        fields |= {"since_ms": left.at_ms, "elapsed_ms": elapsed}
    reason = out_of_sync_reason(image, state, state, node)
    text = out_of_sync(node, None if left is None else left.fields, elapsed, reason)
    if reason.kind in ENDINGS:
        ending = f"the replica is in sync again once {ENDINGS[reason.kind].format(node)}"
    elif behind is None:
        ending = f"broker {node} has sent no fetch to this leader yet"
    else:
        late = counted(behind, "record")
        ending = f"the replica is {late} behind now, and is in sync again once it has caught up"
        if broker.role.leader_throttle is not None and _is_throttled(image, topic.name):
            ending += "; its copying is throttled by leader.replication.throttled.rate"
    return Finding("out_of_sync", f"{text}; {ending}", {**fields, "reason_kind": reason.kind})


def _brokers(of: Sequence[int]) -> str:
    """Brokers in words, such as `brokers 1 and 2`."""
    return f"{'brokers' if len(of) > 1 else 'broker'} {nodes(of)}"


def _is_throttled(image: MetadataImage, topic: str) -> bool:
    return "leader.replication.throttled.replicas" in image.config_of("topic", topic)


def _reassignment(state: PartitionState) -> Iterator[Finding]:
    extra = state.extra or NONE
    if extra.adding or extra.removing:
        missing = [node for node in extra.adding if node not in state.isr]
        waits = f"; it waits for {_brokers(missing)} to be in sync" if missing else ""
        moves = {"adds": extra.adding, "removes": extra.removing}
        done = " and ".join(f"{verb} {_brokers(moved)}" for verb, moved in moves.items() if moved)
        yield Finding(
            "reassigning",
            f"a reassignment {done}{waits}",
            {"adding": extra.adding, "removing": extra.removing},
        )
