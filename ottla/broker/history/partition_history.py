"""The events of the partitions with a replica here: changes of in-sync sets, of leaders, of
replicas and of log directories, and aborted transactions.

Changes are found by comparing two metadata images.
A leader also records how far a follower was behind when it requested the follower's removal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.history.reasons import new_leader_reason, out_of_sync_reason
from ottla.groups.history.rings import Event, Rings, event
from ottla.replication.metadata import PartitionExtra

if TYPE_CHECKING:
    from ottla.log.files.clock import Clock
    from ottla.replication.metadata import MetadataImage, PartitionState
    from ottla.replication.partition import Partition

EACH_MAX = 30
BYTES_MAX = 8 << 20
LEAVING_MAX = 10_000
LOOKED_AT = 500
"""How many unchanged partitions are skipped in one step of `follow`."""
NONE = PartitionExtra()

Key = tuple[bytes, int]
"""A topic's id and a partition's index."""


class Behind(NamedTuple):
    """How far a follower was behind when its leader asked for its removal."""

    records: int
    """-1 if the follower has sent no fetch in this leader epoch."""
    ms: int
    """The time since the follower was last caught up; -1 if it has not been caught up in this
    leader epoch."""


class PartitionHistory:
    """The newest events of each partition with a replica on this broker."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self.node_id, self.clock = node_id, clock
        self.rings: Rings[Key] = Rings(EACH_MAX, BYTES_MAX)
        self.leaving: dict[Key, dict[int, Behind]] = {}
        """The removals that this broker has asked the controller for."""

    def asks_for_removal(self, partition: Partition, nodes: Collection[int]) -> None:
        """Record that this broker, as the leader of a partition, asks the controller to remove
        lagging followers from the in-sync set."""
        ends = {node: end for node, _, end, _, _ in partition.follower_states()}
        log_end = partition.log.log_end_offset
        now_ms = self.clock.monotonic_ms()
        if len(self.leaving) >= LEAVING_MAX:
            self.leaving.clear()            # most requests were refused, or their topic is deleted
        self.leaving[partition.topic_id, partition.index] = {
            node: Behind(
                -1 if ends.get(node, -1) < 0 else max(0, log_end - ends[node]),
                partition.behind_ms(node, now_ms),
            )
            for node in nodes
        }

    def aborted(self, key: Key, fields: dict[str, Any]) -> None:
        """Record that an InitProducerId request has aborted an open transaction in a partition."""
        now_ms, tick_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        self.rings.add(key, event(now_ms, tick_ms, "transaction_aborted", fields))

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> Iterator[None]:
        """Note what has changed, one partition in each step."""
        for name in topics:
            before, after = old.topics.get(name), new.topics.get(name)
            if before is None or after is None or before.topic_id != after.topic_id:
                continue
            for index, (was, now) in enumerate(
                zip(before.partitions, after.partitions, strict=False)
            ):
                if was is not now and self.node_id in (*was.replicas, *now.replicas):
                    self._note(Change((after.topic_id, index), old, new, was, now))
                    yield
                elif index % LOOKED_AT == LOOKED_AT - 1:
                    yield

    def _note(self, change: Change) -> None:
        was, now = change.was, change.now
        asked = self.leaving.pop(change.key, {})
        failed, works = (now.extra or NONE).offline, (was.extra or NONE).offline
        for node in sorted({*failed} - {*works}):
            self._add(change, "directory_failed", broker=node)
        for node in was.isr:
            if node not in now.isr:
                self._add(change, "left_isr", broker=node, **self._why(change, node, asked))
        if was.leader != now.leader:
            kind, text = new_leader_reason(change.old, change.new, was, now)
            self._add(
                change, "leader_changed", leader=now.leader, former=was.leader, reason_kind=kind,
                reason=text,
            )
        for node in now.isr:
            if node not in was.isr:
                self._add(change, "joined_isr", broker=node, out_ms=self._out_ms(change.key, node))
        for node in sorted({*works} - {*failed}):
            self._add(change, "directory_works", broker=node)
        if was.replicas != now.replicas:
            self._add(change, "replicas_changed", replicas=now.replicas, former=was.replicas)

    def _why(self, change: Change, node: int, asked: dict[int, Behind]) -> dict[str, Any]:
        """Why a replica has left the in-sync set."""
        behind = asked.get(node)
        reason = out_of_sync_reason(change.new, change.was, change.now, node)
        fields: dict[str, Any] = {"reason_kind": reason.kind, "reason": reason.then}
        if reason.kind == "lagging" and behind is not None:
            fields |= {"behind": behind.records, "behind_ms": behind.ms}
        return fields

    def _add(self, change: Change, kind: str, **fields: Any) -> None:
        now_ms, tick_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        fields |= {
            "isr": change.now.isr, "partition_epoch": change.now.partition_epoch,
            "leader_epoch": change.now.leader_epoch,
        }
        self.rings.add(change.key, event(now_ms, tick_ms, kind, fields))

    def _out_ms(self, key: Key, node: int) -> int | None:
        """How long a replica was out of sync."""
        left = self.left(key, node)
        return None if left is None else self.clock.monotonic_ms() - left.tick_ms

    def left(self, key: Key, node: int) -> Event | None:
        """The event with which a replica left the in-sync set; None if the replica is back, or if
        no event is known."""
        for each in reversed(self.rings.of(key)):
            if each.fields.get("broker") == node and each.kind in ("left_isr", "joined_isr"):
                return each if each.kind == "left_isr" else None
        return None


class Change(NamedTuple):
    """A partition that has changed, in the old and in the new image."""

    key: Key
    old: MetadataImage
    new: MetadataImage
    was: PartitionState
    now: PartitionState
