"""Offsets of the groups of one partition: committed offsets, and offsets of open transactions.

    OffsetCommit     -> record -> replay: visible at once
    TxnOffsetCommit  -> record -> replay: pending, until the transaction's marker makes it
                                  visible or drops it (KIP-98, KIP-447)

Of two commits to the same partition, the later one in the log wins, no matter when markers arrive.
So a pending offset is not applied if another commit follows it in the log. A tombstone also drops
pending offsets, so that a deleted offset does not reappear when its transaction commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from ottla.groups.records import CommittedOffset, OffsetKey, Record
from ottla.wire.marks import reached

TopicIndex = tuple[str, int]
"""A topic's name and a partition's index."""


@dataclass(slots=True)
class PendingOffset:
    """An offset of an open transaction; its value is None once a later commit replaced it."""

    sequence: int
    value: CommittedOffset | None


class Offsets:
    """Committed and pending offsets. Only `replay` and `ending_steps` change them."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicIndex, CommittedOffset]] = {}
        self._pending: dict[int, dict[OffsetKey, PendingOffset]] = {}
        self._holders: dict[str, dict[TopicIndex, set[int]]] = {}
        """By group and partition, the producers whose open transactions have an offset of the
        partition."""
        self._sequence = 0

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def groups(self) -> Iterable[str]:
        """The groups with committed offsets."""
        return self._groups.keys()

    def all_groups(self) -> list[str]:
        """The groups with committed or pending offsets."""
        return [*self._groups, *(each for each in self._holders if each not in self._groups)]

    def values(
        self, group_id: str, topic: str, partition: int
    ) -> Iterator[CommittedOffset]:
        """The offsets that were committed for a partition, visible or pending."""
        if (visible := self.find(group_id, topic, partition)) is not None:
            yield visible
        key = OffsetKey(group_id, topic, partition)
        for producer_id in self._holders.get(group_id, {}).get((topic, partition), ()):
            if (pending := self._pending[producer_id][key].value) is not None:
                yield pending

    def of_group(self, group_id: str) -> dict[TopicIndex, CommittedOffset]:
        """All visible offsets of a group; not to be changed."""
        return self._groups.get(group_id, {})

    def find(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The visible offset, or None."""
        offsets = self._groups.get(group_id)
        return None if offsets is None else offsets.get((topic, partition))

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return (topic, partition) in self._holders.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction holds any offset of the group."""
        return group_id in self._holders

    def has_any(self, group_id: str) -> bool:
        """Whether the group has offsets, visible or pending."""
        return group_id in self._groups or group_id in self._holders

    def has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the group has an offset of the partition, visible or pending."""
        return self.find(group_id, topic, partition) is not None or self.is_pending(
            group_id, topic, partition
        )

    def pending_of(self, group_id: str) -> Iterable[TopicIndex]:
        """The partitions for which an open transaction holds an offset of the group."""
        return self._holders.get(group_id, {}).keys()

    def pending(self) -> dict[tuple[int, OffsetKey], CommittedOffset | None]:
        """Pending offsets by producer and key; None for an offset that a later commit replaced."""
        return {
            (producer_id, key): each.value
            for producer_id, keys in self._pending.items()
            for key, each in keys.items()
        }

    def replay(
        self, key: OffsetKey, value: CommittedOffset | None, producer_id: int = -1
    ) -> None:
        """Applies a record; `producer_id` is the producer of a transactional batch, else -1."""
        group_id, topic, partition = key
        if producer_id >= 0:
            self._sequence += 1
            self._pending.setdefault(producer_id, {})[key] = PendingOffset(self._sequence, value)
            holders = self._holders.setdefault(group_id, {})
            holders.setdefault((topic, partition), set()).add(producer_id)
            return
        self._put(key, value)
        if group_id not in self._holders:
            return
        self._sequence += 1
        if value is None:
            for producer_id in [*self._holders[group_id].get((topic, partition), ())]:
                reached("a tombstone dropped an offset of an open transaction")
                del self._pending[producer_id][key]
                self._release(key, producer_id)
        else:
            self._overtake(key, self._sequence)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Applies a transaction's marker."""
        for _ in self.ending_steps(producer_id, committed):
            pass

    def ending_steps(self, producer_id: int, committed: bool) -> Iterator[None]:
        """Do the same as `end_transaction`, one offset in each step; the other offsets stay pending
        meanwhile."""
        ending = self._pending.get(producer_id, {})
        for key in list(ending):
            pending = ending.pop(key, None)
            if pending is None:
                reached("an offset was deleted while its transaction ends")
                continue                # deleted between two steps
            self._release(key, producer_id)
            if committed and pending.value is not None:
                self._put(key, pending.value)
                self._overtake(key, pending.sequence)
            yield
        if not ending:
            self._pending.pop(producer_id, None)

    def _release(self, key: OffsetKey, producer_id: int) -> None:
        """Notes that a producer's transaction no longer holds an offset."""
        group_id, topic, partition = key
        holders = self._holders[group_id]
        producers = holders[topic, partition]
        assert producer_id in producers, "the transaction has no offset of the partition"
        producers.remove(producer_id)
        if not producers:
            del holders[topic, partition]
            if not holders:
                del self._holders[group_id]

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
        group_id, topic, partition = key
        for producer_id in self._holders.get(group_id, {}).get((topic, partition), ()):
            pending = self._pending[producer_id][key]
            assert pending.sequence <= self._sequence, "the sequence number is not assigned yet"
            if pending.sequence < sequence:
                pending.value = None
                reached("a later commit overtook an offset of an open transaction")

    def tombstones(self, group_id: str, most: int) -> list[Record]:
        """At most `most` records that remove offsets of a group, including pending ones."""
        visible = self.of_group(group_id)
        pending = (index for index in self.pending_of(group_id) if index not in visible)
        return [
            Record(OffsetKey(group_id, *index), None)
            for index in islice(chain(visible, pending), most)
        ]

    def indexes_of(self, group_id: str) -> list[TopicIndex]:
        """The partitions for which the group has an offset, visible or pending."""
        visible = self.of_group(group_id)
        return [*visible, *(index for index in self.pending_of(group_id) if index not in visible)]
