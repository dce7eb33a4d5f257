"""All topics of a cluster with their partitions, in columns: a hundred thousand partitions as
objects would take most of the console's memory and CPU.

A partition is an index in the columns; each `Topic` has a range of indexes. Figures that are read
later, such as offsets, are columns of the same length.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

UNKNOWN = -1
"""The figure of a partition whose leader did not answer. Real figures are never negative."""
Brokers = tuple[int, ...]


class Topic(NamedTuple):
    """A topic: `first` is the index of its partition 0, `partitions` is how many it has."""

    name: str
    id: bytes
    internal: bool
    first: int
    partitions: int
    leaderless: int
    out_of_sync: int

    @property
    def places(self) -> range:
        """The indexes of its partitions, in order."""
        return range(self.first, self.first + self.partitions)

    def of(self, column: array[int]) -> array[int]:
        """The part of a column that belongs to this topic."""
        return column[self.first : self.first + self.partitions]

    def total(self, column: array[int]) -> int:
        """The sum of the known figures."""
        found = self.of(column)
        unknown = found.count(UNKNOWN)
        return sum(found) - unknown * UNKNOWN


class Topics:
    """The topics by name, and the columns of their partitions."""

    def __init__(self, described: Iterable[Any]) -> None:
        self.leaders = array("i")
        self.epochs = array("i")
        self.replicas: list[Brokers] = []
        self.isr: list[Brokers] = []
        self.offline: dict[int, Brokers] = {}
        # Many partitions have equal replica lists, so each list is stored once.
        self._same: dict[Brokers, Brokers] = {}
        found = [self._add(topic) for topic in described]
        found.sort(key=attrgetter("name"))
        self.by_name = {topic.name: topic for topic in found}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def partitions(self) -> int:
        """How many partitions there are, which is the length of each column."""
        return len(self.leaders)

    def column(self) -> array[int]:
        """A column without figures yet."""
        return array("q", [UNKNOWN]) * self.partitions

    def led(self) -> Counter[int]:
        """How many partitions each broker leads."""
        return Counter(self.leaders)

    def held(self) -> Counter[int]:
        """How many replicas each broker has."""
        found: Counter[int] = Counter()
        for brokers, count in Counter(self.replicas).items():
            found.update(dict.fromkeys(brokers, count))
        return found

    def _add(self, topic: Any) -> Topic:
        first = self.partitions
        leaderless = behind = 0
        for part in sorted(topic.partitions, key=attrgetter("partition_index")):
            self._fill(first + part.partition_index)
            replicas, isr = self._kept(part.replica_nodes), self._kept(part.isr_nodes)
            self.leaders.append(part.leader_id)
            self.epochs.append(part.leader_epoch)
            self.replicas.append(replicas)
            self.isr.append(isr)
            if part.offline_replicas:
                self.offline[self.partitions - 1] = self._kept(part.offline_replicas)
            leaderless += part.leader_id < 0
            behind += len(isr) < len(replicas)
        return Topic(topic.name or "", topic.topic_id, topic.is_internal, first,
                     self.partitions - first, leaderless, behind)

    def _fill(self, place: int) -> None:
        """Adds the partitions before `place` that the answer omits, without leader and replicas."""
        for _ in range(place - self.partitions):
            self.leaders.append(-1)
            self.epochs.append(-1)
            self.replicas.append(())
            self.isr.append(())

    def _kept(self, brokers: list[int]) -> Brokers:
        found = tuple(brokers)
        return self._same.setdefault(found, found)
