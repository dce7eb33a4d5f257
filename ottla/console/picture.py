"""A cluster as one user sees it at one moment: topics, partitions, offsets, sizes, disks.

Reading a large cluster takes seconds, so `take` yields a picture after each part that it has read.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.errors import ClientError, NotConnected, check
from ottla.console import topic_columns
from ottla.console.topic_columns import UNKNOWN, Topics
from ottla.tools.admin import cluster as clusters
from ottla.tools.admin.offsets import EARLIEST, LATEST
from ottla.tools.admin.topics import TIMEOUT_MS
from ottla.wire.messages import DescribeLogDirsRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

Memory = MutableMapping[Hashable, Any]
Value = TypeVar("Value")
RATE_SECONDS_MIN = 1.0
ASKED_AT_ONCE = 5_000
"""Partitions per request for offsets: no other Python code runs while an answer is decoded."""


@dataclass
class Members:
    """The brokers at one moment."""

    cluster_id: str | None
    controller: int
    brokers: list[Any]
    fenced: set[int]


@dataclass
class Directory:
    """A log directory of a broker; sizes are None if the broker does not know them."""

    broker: int
    path: str
    error: str | None
    total: int | None
    usable: int | None
    replicas: int
    size: int


@dataclass
class Offsets:
    """The offsets of all partitions, as columns, and figures derived from them."""

    at: float
    starts: array[int]
    ends: array[int]
    records: int = 0
    rates: dict[str, float] | None = None
    """Records per second of each topic that grew since the previous reading; None if there was no
    previous reading."""


@dataclass
class Disks:
    """The log directories of all brokers, and the size of each partition's largest replica."""

    directories: list[Directory]
    sizes: array[int]
    shown_bytes: int = 0
    """The size of all replicas of the topics that the user may see."""


@dataclass(frozen=True)
class Picture:
    """A cluster at one moment. Fields that have not been read yet are None."""

    members: Members
    topics: Topics
    offsets: Offsets | None = None
    disks: Disks | None = None
    notes: list[str] = field(default_factory=list)
    """The parts that could not be read, and why."""


def members(cluster: ClusterClient, memory: Memory) -> Members:
    """The brokers and the controller, and the fenced brokers if the cluster reports them."""
    cluster.refresh()
    try:
        described = clusters.brokers(cluster, fenced=cluster.supports(60, 2))
    except ClientError:
        described = clusters.brokers(cluster)
    return Members(
        cluster.cluster_id, cluster.controller_id,
        sorted(described.brokers, key=lambda one: one.broker_id),
        {one.broker_id for one in described.brokers if getattr(one, "is_fenced", False)},
    )


def take(cluster: ClusterClient, memory: Memory) -> Iterator[Picture]:
    """Reads everything, step by step; the last picture is complete. Parts that the user may not
    see are missing, and a note says so."""
    picture = Picture(members(cluster, memory), topic_columns.read(cluster))
    memory["topics"] = picture.topics
    yield picture
    notes: list[str] = []
    offsets = Offsets(time.time(), picture.topics.column(), picture.topics.column())
    attempt(notes, "offsets", lambda: read_offsets(cluster, picture.topics, offsets), None)
    sum_up(memory, picture.topics, offsets)
    picture = replace(picture, offsets=offsets, notes=[*notes])
    yield picture
    disks = Disks([], picture.topics.column())
    for one in picture.members.brokers:
        if one.broker_id not in picture.members.fenced:
            read = disks_reader(cluster, picture.topics, disks, one.broker_id)
            attempt(notes, f"disks of broker {one.broker_id}", read, None)
    yield replace(picture, disks=disks, notes=notes)


def attempt(notes: list[str], what: str, read: Callable[[], Value], otherwise: Value) -> Value:
    """The result of `read`; if it fails, adds a note and returns `otherwise`."""
    try:
        return read()
    except ClientError as refused:
        text = f"{what}: {refused}"
        if text not in notes:
            notes.append(text)
        return otherwise


Page = list[tuple[topic_columns.Topic, tuple[int, ...]]]
"""Topics with the partitions that one broker leads."""


def read_offsets(cluster: ClusterClient, topics: Topics, found: Offsets) -> None:
    """Reads first and next offsets from the leaders that can be reached. Raises ClientError."""
    for leader, page in pages(topics):
        try:
            connection = cluster.node(leader)
        except NotConnected:            # the leader failed a moment ago: another will be elected
            continue
        columns = {EARLIEST: found.starts, LATEST: found.ends}
        sent = [connection.send(request(page, which)) for which in columns]
        answers = [connection.answer(each) for each in sent]
        first = {topic.name: topic.first for topic, _ in page}
        for whole, column in zip(answers, columns.values(), strict=True):
            for answer in whole.topics:
                start = first[answer.name]
                for part in answer.partitions:
                    if not part.error_code:
                        column[start + part.partition_index] = part.offset


def pages(topics: Topics) -> Iterator[tuple[int, Page]]:
    """Yields each leader with at most ASKED_AT_ONCE of its partitions at a time."""
    waiting: dict[int, Page] = defaultdict(list)
    counts: dict[int, int] = defaultdict(int)
    for topic in topics:
        by_leader: dict[int, list[int]] = defaultdict(list)
        for index, leader in enumerate(topic.of(topics.leaders)):
            by_leader[leader].append(index)
        by_leader.pop(-1, None)
        for leader, indexes in by_leader.items():
            for at in range(0, len(indexes), ASKED_AT_ONCE):
                part = tuple(indexes[at : at + ASKED_AT_ONCE])
                if counts[leader] + len(part) > ASKED_AT_ONCE and waiting[leader]:
                    yield leader, waiting.pop(leader)
                    counts[leader] = 0
                waiting[leader].append((topic, part))
                counts[leader] += len(part)
    yield from waiting.items()


def request(page: Page, which: int) -> ListOffsetsRequest:
    """The request for some partitions. Topics with equal partition indexes share one list."""
    made = ListOffsetsRequest.Topic
    parts: dict[tuple[int, ...], list[Any]] = {}
    topics_of_leader = []
    for topic, indexes in page:
        if indexes not in parts:
            parts[indexes] = [
                made.Partition(partition_index=index, timestamp=which) for index in indexes
            ]
        topics_of_leader.append(made(name=topic.name, partitions=parts[indexes]))
    return ListOffsetsRequest(replica_id=-1, topics=topics_of_leader, timeout_ms=TIMEOUT_MS)


def sum_up(memory: Memory, topics: Topics, found: Offsets) -> None:
    """Count the records, and how fast topics have grown since the previous reading."""
    found.records = sum(records(topic, found) for topic in topics)
    before: tuple[Topics, Offsets] | None = memory.get("offsets")
    if before is not None and found.at - before[1].at < RATE_SECONDS_MIN:
        found.rates = before[1].rates
        return
    if before is not None:
        found.rates = rates(*before, topics, found)
    memory["offsets"] = topics, found


def records(topic: topic_columns.Topic, offsets: Offsets) -> int:
    """The sum of next minus first offset over the partitions of a topic."""
    starts, ends = topic.of(offsets.starts), topic.of(offsets.ends)
    if UNKNOWN not in starts and UNKNOWN not in ends:
        return sum(ends) - sum(starts)
    return sum(end - start for start, end in zip(starts, ends, strict=True)
               if UNKNOWN not in (start, end))


def rates(
    topics_before: Topics, before: Offsets, topics: Topics, now: Offsets
) -> dict[str, float]:
    """Records per second of each topic that has grown."""
    growth = {}
    for topic in topics:
        known = topics_before.by_name.get(topic.name)
        if known is None:
            continue
        old, new = known.of(before.ends), topic.of(now.ends)
        if old == new:
            continue
        grown = sum(max(end - start, 0) for start, end in zip(old, new, strict=False)
                    if UNKNOWN not in (start, end))
        if grown:
            growth[topic.name] = round(grown / (now.at - before.at), 2)
    return growth


def disks_reader(
    cluster: ClusterClient, topics: Topics, disks: Disks, broker: int
) -> Callable[[], None]:
    """A function that reads the log directories of a broker: total sizes, and sizes of the topics
    that the user may see. The broker sends all sizes if the user may describe the cluster."""

    def read() -> None:
        sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        response = cluster.node(broker).call_in_parts(
            DescribeLogDirsRequest(topics=None), "results", "topics")
        for directory, there in response:
            of_all = sums[id(directory)]
            topic = topics.by_name.get(there.name)
            for part in there.partitions:
                size = part.partition_size
                of_all[0] += 1
                of_all[1] += size
                if topic is not None and part.partition_index < topic.partitions:
                    place = topic.first + part.partition_index
                    disks.shown_bytes += size
                    disks.sizes[place] = max(disks.sizes[place], size)
        check(getattr(response.message, "error_code", 0))
        disks.directories += [
            described(broker, directory, *sums[id(directory)])
            for directory in response.message.results
        ]

    return read


def described(broker: int, found: Any, replicas: int, size: int) -> Directory:
    """A log directory in a broker's answer."""
    return Directory(
        broker, found.log_dir, f"error {found.error_code}" if found.error_code else None,
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None, replicas, size,
    )
