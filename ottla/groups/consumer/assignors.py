"""Server-side assignors: compute the target assignment from the subscriptions (KIP-848).

An assignor is a pure function: its result does not depend on the order of the members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from ottla.groups.cluster_view import Topic
from ottla.groups.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it; `owned` is its previous target."""

    topics: frozenset[str]
    instance_id: str | None = None
    owned: frozenset[TopicPartition] = field(default_factory=frozenset)


Assignments = dict[str, frozenset[TopicPartition]]
Assignor = Callable[[Mapping[str, Subscriber], Mapping[str, Topic]], Assignments]


def uniform(members: Mapping[str, Subscriber], topics: Mapping[str, Topic]) -> Assignments:
    """Spread partitions evenly over members; each member keeps as many of its partitions as it can.

    If all members subscribe to the same topics, their numbers of partitions differ by at most one.
    Otherwise, a partition's owner has at most one partition more than any other subscriber of the
    topic.
    """
    mine: dict[str, set[TopicPartition]] = {member_id: set() for member_id in sorted(members)}
    subscribers: dict[bytes, list[str]] = {}
    for name in sorted(topics):
        readers = [member_id for member_id in mine if name in members[member_id].topics]
        if readers:
            subscribers[topics[name].topic_id] = readers
    counts = {topic.topic_id: topic.partitions for topic in topics.values()}
    in_order = [
        (topic_id, partition)
        for topic_id in sorted(subscribers) for partition in range(counts[topic_id])
    ]
    free = set(in_order)
    _keep_former(members, mine, subscribers, free)
    loads = {member_id: len(partitions) for member_id, partitions in mine.items()}
    in_order = [partition for partition in in_order if partition in free]
    # Partitions with few possible owners come first: other partitions have more choices later.
    if len({len(readers) for readers in subscribers.values()} | {len(mine)}) == 1:
        least = [(load, member_id) for member_id, load in loads.items()]
        heapify(least)
        for partition in in_order:
            load, owner = least[0]
            mine[owner].add(partition)
            heapreplace(least, (load + 1, owner))
    else:
        for partition in sorted(in_order, key=lambda p: len(subscribers[p[0]])):
            owner = min(subscribers[partition[0]], key=lambda m: (loads[m], m))
            mine[owner].add(partition)
            loads[owner] += 1
        _even_out(mine, subscribers)
    return {member_id: frozenset(partitions) for member_id, partitions in mine.items()}


def _keep_former(
    members: Mapping[str, Subscriber],
    mine: dict[str, set[TopicPartition]],
    subscribers: dict[bytes, list[str]],
    free: set[TopicPartition],
) -> None:
    """Lets each member keep the partitions that it had. If all members read the same topics, a
    member keeps at most an even share."""
    share, extra = divmod(len(free), max(len(mine), 1))
    same_for_all = all(len(each) == len(mine) for each in subscribers.values())
    # Members that had the most partitions keep one more than the share, so fewer partitions move.
    readers = {topic_id: set(member_ids) for topic_id, member_ids in subscribers.items()}
    for member_id in sorted(mine, key=lambda m: (-len(members[m].owned), m)):
        wanted = [p for p in members[member_id].owned if p in free and member_id in readers[p[0]]]
        if same_for_all and len(wanted) > share:
            quota = share + (1 if extra > 0 else 0)
            extra -= 1 if extra > 0 else 0
            if len(wanted) > quota:
                wanted = sorted(wanted)[:quota]
        mine[member_id].update(wanted)
        free.difference_update(wanted)


def _even_out(
    mine: dict[str, set[TopicPartition]], subscribers: dict[bytes, list[str]]
) -> None:
    """Move partitions from a member to a subscriber that has at least two partitions fewer."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(mine, key=lambda m: (-len(mine[m]), m)):
            for partition in sorted(mine[giver]):
                taker = min(subscribers[partition[0]], key=lambda m: (len(mine[m]), m))
                if len(mine[taker]) + 1 < len(mine[giver]):
                    mine[giver].remove(partition)
                    mine[taker].add(partition)
                    moved = True


def range_(members: Mapping[str, Subscriber], topics: Mapping[str, Topic]) -> Assignments:
    """Give each subscriber of a topic a run of consecutive partitions.

    The order of the members is the same for every topic. So topics are assigned alike if they have
    the same subscribers and equally many partitions (co-partitioned). Static members are ordered by
    instance id, so that a restart does not move their partitions.
    """
    order = sorted(members, key=lambda m: (members[m].instance_id is None,
                                           members[m].instance_id or m))
    mine: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for name in sorted(topics):
        readers = [member_id for member_id in order if name in members[member_id].topics]
        if not readers:
            continue
        topic = topics[name]
        share, extra = divmod(topic.partitions, len(readers))
        start = 0
        for position, member_id in enumerate(readers):
            end = start + share + (1 if position < extra else 0)
            mine[member_id].update((topic.topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in mine.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
