"""Scans all offsets of a shard in slices, since a scan of a million offsets would block the loop.

A sweep is a generator that receives the Result of each turn and puts the tombstones of one slice
into it. Between two slices anything may happen to the shard, so a sweep keeps only names,
and looks up everything else again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.groups import offset_requests
from ottla.groups.group import Group
from ottla.groups.records import CommittedOffset, OffsetKey, Record
from ottla.groups.result import Result
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.offsets import Offsets
    from ottla.wire.errors import ProtocolError

SWEEP = "sweep"
"""The timer of a shard for the next slice."""
LOOKS_MAX = 500
"""The most offsets and groups in a slice; removing all of them takes two milliseconds."""

Sweep = Generator[None, Result, None]
Groups = Mapping[str, Group]


class Sweeps:
    """The sweeps of one shard, run one after the other; at most one of each kind runs or waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, Sweep] = {}

    def begin(self, kind: str, sweep: Callable[[], Sweep], result: Result) -> None:
        """Begins a sweep, unless there is one of this kind already. The first slice runs now,
        unless another sweep is running; SWEEP timers run the other slices."""
        if kind in self._waiting:
            return
        begun = self._waiting[kind] = sweep()
        next(begun)
        if len(self._waiting) == 1:
            self.do_slice(result)

    def do_slice(self, result: Result) -> None:
        """Do the next slice."""
        for kind, sweep in [*self._waiting.items()][:1]:
            try:
                sweep.send(result)
            except StopIteration:
                del self._waiting[kind]
        if self._waiting:
            result.set_timer(SWEEP, "", after_ms=1)


def expiring(groups: Groups, offsets: Offsets, retention_ms: int) -> Sweep:
    """Removes expired offsets, and empty groups that have no offsets left (KIP-211)."""
    result, looks = (yield), 0
    for group_id in list(groups):
        dropped = 0
        for topic, partition in list(offsets.of_group(group_id)):
            looks += 1
            if looks % LOOKS_MAX == 0:
                # After the yield, the tombstones are replayed, or the log has refused them.
                result, dropped = (yield), 0
            group, value = groups.get(group_id), offsets.find(group_id, topic, partition)
            if group is None or value is None:
                continue
            base_ms = group.expiry_base_ms(value)
            if (
                base_ms is not None
                and not group.subscribes_to(topic)
                and not offsets.is_pending(group_id, topic, partition)
                and offset_requests.has_expired(value, base_ms, result.wall_ms, retention_ms)
            ):
                result.records.append(Record(OffsetKey(group_id, topic, partition), None))
                dropped += 1
        group = groups.get(group_id)
        if (
            group is not None
            and group.is_unused
            and not offsets.has_pending(group_id)
            and len(offsets.of_group(group_id)) == dropped
        ):
            result.records.extend(group.tombstones())
        looks += 1
        if looks % LOOKS_MAX == 0:
            result = yield


def forgetting(
    topics: set[str], kept: set[str], offsets: Offsets, cluster: Callable[[], ClusterView]
) -> Sweep:
    """Removes the committed and pending offsets of deleted topics from all groups.

    The caller may add more topics while the sweep runs; the sweep ends once `topics` is empty.
    If a topic was recreated under the same name, the offsets of the new topic stay. If the log
    refuses tombstones, for example on a full disk, the names of the topics are added to `kept`.
    """
    result, looks = (yield), 0
    while topics:
        gone = frozenset(topics)
        topics.clear()

        def done(error: ProtocolError | None, gone: frozenset[str] = gone) -> None:
            if error is not None:
                reached("the log refused to remove offsets of deleted topics")
                kept.update(gone)

        result.after_replay.append(done)
        for group_id in offsets.all_groups():
            for topic, partition in offsets.indexes_of(group_id):
                looks += 1
                if looks % LOOKS_MAX == 0:
                    result = yield
                    result.after_replay.append(done)
                if topic in gone:
                    values = offsets.values(group_id, topic, partition)
                    if _is_stale(topic, values, cluster()):
                        result.records.append(Record(OffsetKey(group_id, topic, partition), None))


def _is_stale(topic: str, values: Iterable[CommittedOffset], cluster: ClusterView) -> bool:
    """Whether none of the values belongs to the topic that has the name now."""
    known = cluster.topic(topic)
    return known is None or all(value.topic_id != known.topic_id for value in values)
