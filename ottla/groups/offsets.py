"""Committed offsets of the groups of one partition, and those that a transaction still holds back.

    OffsetCommit     -> record -> replay: visible at once
    TxnOffsetCommit  -> record -> replay: pending, until the transaction's marker makes it
                                  visible or drops it (KIP-98, KIP-447)

Of two commits to the same partition the one that stands later in the log wins, whenever its
marker comes: a pending offset that a later commit has overtaken is not applied any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.groups.records import CommittedOffset, OffsetKey, Record

TopicIndex = tuple[str, int]
"""A topic's name and a partition's index."""


@dataclass(slots=True)
class PendingOffset:
    """An offset of an open transaction; its value is None once a later commit overtook it."""

    sequence: int
    value: CommittedOffset | None


class Offsets:
    """What is committed, changed by `replay` and `end_transaction` only."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicIndex, CommittedOffset]] = {}
        self._pending: dict[int, dict[OffsetKey, PendingOffset]] = {}
        self._holders: dict[OffsetKey, set[int]] = {}
        """The producers whose open transactions hold a partition's offset."""
        self._sequence = 0

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def groups(self) -> Iterable[str]:
        """The groups that have committed something."""
        return self._groups.keys()

    def of_group(self, group_id: str) -> dict[TopicIndex, CommittedOffset]:
        """All visible offsets of a group; not to be changed."""
        return self._groups.get(group_id, {})

    def find(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The visible offset, or None."""
        offsets = self._groups.get(group_id)
        return None if offsets is None else offsets.get((topic, partition))

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return bool(self._holders) and OffsetKey(group_id, topic, partition) in self._holders

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction holds any offset of the group."""
        return any(key.group_id == group_id for key in self._holders)

    def has_any(self, group_id: str) -> bool:
        """Whether the group has offsets, visible or pending."""
        return group_id in self._groups or (bool(self._holders) and self.has_pending(group_id))

    def pending_of(self, group_id: str) -> Iterator[TopicIndex]:
        """The partitions of a group whose offsets open transactions hold."""
        return ((key.topic, key.partition) for key in self._holders if key.group_id == group_id)

    def replay(
        self, key: OffsetKey, value: CommittedOffset | None, producer_id: int = -1
    ) -> None:
        """Take in a record; `producer_id` is its batch's where that is transactional, else -1."""
        if producer_id >= 0:
            self._sequence += 1
            pending = self._pending.setdefault(producer_id, {})
            pending[key] = PendingOffset(self._sequence, value)
            self._holders.setdefault(key, set()).add(producer_id)
            return
        self._put(key, value)
        if self._holders:
            self._sequence += 1
            self._overtake(key, self._sequence)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Take in a transaction's marker."""
        for key, pending in self._pending.pop(producer_id, {}).items():
            holders = self._holders[key]
            holders.discard(producer_id)
            if not holders:
                del self._holders[key]
            if committed and pending.value is not None:
                self._put(key, pending.value)
                self._overtake(key, pending.sequence)

    def _put(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        group_id, topic, partition = key
        if value is not None:
            offsets = self._groups.get(group_id)
            if offsets is None:
                offsets = self._groups[group_id] = {}
            offsets[topic, partition] = value
        elif (offsets := self._groups.get(group_id)) is not None:
            offsets.pop((topic, partition), None)
            if not offsets:
                del self._groups[group_id]

    def _overtake(self, key: OffsetKey, sequence: int) -> None:
        for producer_id in self._holders.get(key, ()):
            pending = self._pending[producer_id][key]
            if pending.sequence < sequence:
                pending.value = None

    def tombstones(self, group_id: str) -> list[Record]:
        """Records that forget all offsets of a group, pending ones included."""
        keys = [OffsetKey(group_id, *index) for index in self.of_group(group_id)]
        return [Record(key, None) for key in keys]

    def tombstones_of_topics(self, topics: frozenset[str]) -> list[Record]:
        """Records that forget what any group has committed of deleted topics."""
        return [
            Record(OffsetKey(group_id, topic, partition), None)
            for group_id, offsets in self._groups.items()
            for topic, partition in offsets
            if topic in topics
        ]
