"""Checks of several brokers: an epoch has one leader, no acknowledged record is lost, and all
replicas have the same bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire.batch import batches
from ottla.wire.errors import CorruptMessage, StorageFailed
from tests.simulation.cluster.clients import Part
from tests.simulation.replay import bytes_of
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld


class Leaders:
    """The leader of each partition in each epoch, as the brokers themselves report it."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.known: dict[tuple[bytes, int, int], int] = {}
        self.waters: dict[tuple[bytes, int, int], int] = {}
        self.committed: dict[tuple[bytes, int], int] = {}
        """By partition, the highest high watermark that any leader has had."""
        self.newest: dict[tuple[str, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Check that a partition has at most one leader in an epoch, and that this leader's high
        watermark never goes back."""
        for machine in self.world.brokers:
            for partition in partitions_of(machine):
                if not partition.led_here:
                    continue
                key = partition.topic_id, partition.index, partition.leader_epoch
                water = partition.high_watermark
                if self.waters.get(key) == water and self.known[key] == machine.node_id:
                    continue                # not changed since the last check
                before = self.known.setdefault(key, machine.node_id)
                if before != machine.node_id:
                    raise Violation(
                        f"partition {partition!r} is led by two brokers, {before} and"
                        f" {machine.node_id}, in epoch {key[2]}"
                    )
                if water < self.waters.get(key, 0):
                    raise Violation(
                        f"partition {partition!r}: the high watermark of broker {machine.node_id}"
                        f" went back from {self.waters[key]} to {water}"
                    )
                self.waters[key] = water
                self.committed[key[:2]] = max(self.committed.get(key[:2], 0), water)
                name = partition.topic, partition.index
                self.newest[name] = max(self.newest.get(name, (-1, -1)), (key[2], machine.node_id))

    def of(self, topic: str, index: int) -> int | None:
        """The leader of a partition in the newest epoch in which a leader was seen; None if none
        was."""
        found = self.newest.get((topic, index))
        return None if found is None else found[1]


def partitions_of(machine: ClusterMachine) -> Iterator[Partition]:
    """The partitions of a broker, if it is running."""
    server = machine.server
    if server is not None and machine.up:
        yield from server.replicas


def unsettled(world: ClusterWorld) -> str:
    """The first thing that is not as it must be some time after the last fault, such as a broker
    that does not serve, or a replica that is out of sync; "" if there is none."""
    images: list[MetadataImage] = []
    for machine in world.brokers:
        if not machine.up or machine.server is None:
            return f"{machine.name} does not serve"
        images.append(machine.server.metadata_log.image)
    newest = max(images, key=lambda image: image.offset)
    for image in images:
        if image.offset != newest.offset:
            return f"one broker's metadata are at {image.offset}, another's at {newest.offset}"
    if len(newest.brokers) != len(world.brokers):
        return f"only the brokers {sorted(newest.brokers)} are registered"
    for topic in newest.topics.values():
        for index, state in enumerate(topic.partitions):
            if state.leader < 0:
                return f"partition {topic.name}-{index} has no leader: {state}"
            if set(state.isr) != set(state.replicas):
                return f"not all replicas of {topic.name}-{index} are in sync: {state}"
            if state.extra is not None and (state.extra.adding or state.extra.removing):
                return f"the reassignment of {topic.name}-{index} has not ended: {state}"
    return ""


def copies(world: ClusterWorld) -> dict[tuple[str, int], list[tuple[ClusterMachine, Partition]]]:
    """The replicas of each partition."""
    found: dict[tuple[str, int], list[tuple[ClusterMachine, Partition]]] = {}
    for machine in world.brokers:
        for partition in partitions_of(machine):
            found.setdefault((partition.topic, partition.index), []).append((machine, partition))
    return found


def differences(
    world: ClusterWorld, harmed: Collection[tuple[str, int]], cleaned: Collection[str] = ()
) -> str:
    """The first partition whose replicas differ in any byte, or have records that are not
    committed; "" if there is none. `harmed` are partitions with a byte that has changed or cannot
    be read: their replicas may be damaged until the scrub finds the damage and the other replicas
    repair it. `cleaned` are topics in which each replica removes records by itself, by compaction
    or retention, so that only the remaining records are compared."""
    for name, replicas in copies(world).items():
        try:
            problem = differing(name, replicas, name[0] in cleaned)
        except (CorruptMessage, StorageFailed, OSError) as damage:
            if name not in harmed:
                raise
            problem = f"a replica of {name[0]}-{name[1]} is damaged: {damage}"
        if problem:
            return problem
    return ""


def differing(
    name: tuple[str, int], replicas: list[tuple[ClusterMachine, Partition]], each_cleans: bool
) -> str:
    """`differences` for one partition."""
    ends = {machine.node_id: part.log.log_end_offset for machine, part in replicas}
    # A leader that was replaced may have deleted records before it heard of its successor. Then its
    # log start stays above the log starts of the other replicas.
    start = max(part.log.log_start_offset for _, part in replicas)
    if name[0].startswith("__") or each_cleans:
        equal = len({*ends.values()}) == 1 and not disagree([records_of(p) for _, p in replicas])
    else:
        equal = len({bytes_of(part, start) for _, part in replicas}) == 1
    if not equal:
        return f"the replicas of {name[0]}-{name[1]} differ; they end at {ends}"
    for machine, partition in replicas:
        if partition.high_watermark != partition.log.log_end_offset:
            return (
                f"the high watermark of {name[0]}-{name[1]} on {machine.name} is"
                f" {partition.high_watermark}, the log ends at {partition.log.log_end_offset}"
            )
    return ""


def records_of(partition: Partition) -> dict[int, Any]:
    """By offset, the leader epoch, key and value of each record of a log."""
    return {
        record.offset: (view.leader_epoch, record.key, record.value)
        for view in batches(bytes_of(partition)) for record in view.records()
    }


def disagree(logs: list[dict[int, Any]]) -> bool:
    """Whether two replicas have different records at one offset. Each replica compacts its log by
    itself, so a record that one of them lacks is no difference."""
    known: dict[int, Any] = {}
    return any(known.setdefault(at, record) != record for log in logs for at, record in log.items())


def check_contents(world: ClusterWorld, parts: list[Part]) -> None:
    """Check that every record that was acknowledged or read exists once, at its offset, and that
    the order is right."""
    found = copies(world)
    for part in parts:
        replicas = found.get((part.topic, part.index))
        if not replicas:
            raise Violation(f"partition {part}: no broker has a replica")
        _check_starts(part, replicas)
        at: dict[bytes, int] = {}
        by_offset: dict[int, bytes] = {}
        newest: dict[str, int] = {}
        for view in batches(bytes_of(replicas[0][1])):
            for record in view.records():
                _check_record(part, record, at, newest)
                by_offset[record.offset] = record.value or b""
        for value, offset in part.acked.items():
            if value not in at and max(offset, 0) < part.deleted_below:
                continue    # it was deleted; if its offset is not known (-1), it may have been
            if value not in at:
                raise Violation(
                    f"partition {part}: record {value[:20]!r} was acknowledged at offset {offset},"
                    " and is lost"
                )
            if offset not in (-1, at[value]):
                raise Violation(
                    f"partition {part}: record {value[:20]!r} was acknowledged at offset {offset},"
                    f" but is at offset {at[value]}"
                )
        for offset, value in part.seen.items():
            if offset < part.deleted_below and offset not in by_offset:
                continue
            if by_offset.get(offset) != value:
                raise Violation(
                    f"partition {part}: record {value[:20]!r} was read at offset {offset}, where"
                    f" {by_offset.get(offset, b'nothing')[:20]!r} is now"
                )


def _check_starts(part: Part, replicas: list[tuple[ClusterMachine, Partition]]) -> None:
    """Check each replica's log start. Only DeleteRecords may have moved it, up to the highest
    requested offset. It must not be below the log start that DeleteRecords has answered."""
    for machine, partition in replicas:
        start = partition.log.log_start_offset
        if not part.start <= start <= part.deleted_below:
            raise Violation(
                f"partition {part} begins at offset {start} on broker {machine.node_id};"
                f" DeleteRecords was answered with log start {part.start}, and asked for"
                f" {part.deleted_below} at most"
            )


def _check_record(
    part: Part, record: Any, at: dict[bytes, int], newest: dict[str, int]
) -> None:
    value = record.value or b""
    if value not in part.sent:
        raise Violation(
            f"partition {part}: no client sent record {value[:20]!r} at offset {record.offset}"
        )
    if value in at:
        raise Violation(
            f"partition {part}: record {value[:20]!r} is at offset {at[value]} and at offset"
            f" {record.offset}"
        )
    producer, number = part.sent[value]
    if number < newest.get(producer, 0):
        raise Violation(
            f"partition {part}: record {value[:20]!r} comes after record {newest[producer]} of the"
            f" same producer {producer!r}"
        )
    newest[producer] = number
    at[value] = record.offset
