"""A cluster as one user sees it at one moment: topics, partitions, offsets, sizes, disks.

Reading a large cluster takes seconds, so `take` yields a picture after each part that it has read.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.errors import ClientError, NotConnected, check
from ottla.console import topic_columns
from ottla.console.topic_columns import UNKNOWN, Topics
from ottla.tools.admin import cluster as clusters
from ottla.tools.admin import topics as listed
from ottla.tools.admin.offsets import EARLIEST, LATEST
from ottla.tools.admin.topics import TIMEOUT_MS
from ottla.wire.messages import DescribeLogDirsRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.client.connection import Connection
    from ottla.client.frames import Sent

Memory = MutableMapping[Hashable, Any]
Value = TypeVar("Value")
RATE_SECONDS_MIN = 1.0
ASKED_AT_ONCE = 1_000
"""The most partitions in a request for offsets. A topic's name of n characters counts as
n / PARTITION_SIZE partitions. So a request has at most 12 KB, or 30 KB if each topic has one
partition."""
PARTITION_SIZE = 12
"""Bytes of a partition in a request for offsets."""
SENT_AHEAD = 2
"""The console sends two requests at a time for the same partitions: for first and for next offsets.
Before it sends another two, it receives answers until only this many requests are unanswered.
Brokers work on these while the console decodes answers. A broker may read no requests while it
waits for the console to receive an answer. More unanswered requests might then not fit into the
socket's buffers, and the console would block while it sends."""
WITHOUT_EPOCHS = 3
"""The newest version of ListOffsets that reports no leader epochs. To report the epoch of a first
offset, a broker has to read files of partitions that it has not used since its start."""


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
    there, notes = members(cluster, memory), list[str]()
    described = listed.each(cluster)
    first = list(islice(described, 1))
    # All topics have been received. While they are decoded, the brokers add up sizes.
    asked = ask_disks(cluster, there, notes)
    try:
        picture = Picture(there, Topics(chain(first, described)))
        memory["topics"] = picture.topics
        yield picture
        picture = replace(
            picture, disks=read_disks(asked, picture.topics, notes), notes=[*notes])
    finally:
        for connection, _ in asked.values():        # after an error: nobody will read the answers
            connection.close()
    yield picture
    offsets = Offsets(time.time(), picture.topics.column(), picture.topics.column())
    attempt(notes, "offsets", lambda: read_offsets(cluster, picture.topics, offsets), None)
    sum_up(memory, picture.topics, offsets)
    yield replace(picture, offsets=offsets, notes=notes)


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
    columns = {EARLIEST: found.starts, LATEST: found.ends}
    connections = connections_to(cluster, set(topics.leaders) - {-1})
    waiting: deque[tuple[Connection, Sent, Page, array[int]]] = deque()
    try:
        for leader, page in pages(topics):
            if leader not in connections:
                continue
            for which, column in columns.items():
                sent = connections[leader].send(request(page, which), at_most=WITHOUT_EPOCHS)
                waiting.append((connections[leader], sent, page, column))
            while len(waiting) > SENT_AHEAD:
                store_answer(*waiting.popleft())
        while waiting:
            store_answer(*waiting.popleft())
    finally:
        for connection, *_ in waiting:  # after an error: nobody will read these answers
            connection.close()


def connections_to(cluster: ClusterClient, brokers: Iterable[int]) -> dict[int, Connection]:
    """Connections to the brokers that can be reached. To find a broker, `cluster` may send a
    request on any of its connections. So receive the answers to all earlier requests first."""
    found = {}
    for broker in brokers:
        try:
            found[broker] = cluster.node(broker)
        except NotConnected:            # the broker has just failed: another broker will lead
            continue
    return found


def store_answer(connection: Connection, sent: Sent, page: Page, column: array[int]) -> None:
    """Receives the offsets of a page, and writes them into a column."""
    first = {topic.name: topic.first for topic, _ in page}
    for answer in connection.answer(sent).topics:
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
                count = len(part) + len(topic.name) // PARTITION_SIZE
                if counts[leader] + count > ASKED_AT_ONCE and waiting[leader]:
                    yield leader, waiting.pop(leader)
                    counts[leader] = 0
                waiting[leader].append((topic, part))
                counts[leader] += count
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
    """Computes the number of records, and the rates of topics since the previous reading."""
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


Asked = dict[int, tuple["Connection", "Sent"]]
"""Requests for the log directories of brokers, by broker."""


def ask_disks(cluster: ClusterClient, members: Members, notes: list[str]) -> Asked:
    """Asks all unfenced brokers for their log directories, so that all brokers work at once."""
    found: dict[int, Connection] = {}
    for one in members.brokers:
        if one.broker_id not in members.fenced:
            connection = attempt(
                notes, disks_of(one.broker_id), partial(cluster.node, one.broker_id), None)
            if connection is not None:
                found[one.broker_id] = connection
    asked: Asked = {}
    for broker, connection in found.items():
        sent = attempt(notes, disks_of(broker), partial(
            connection.send, DescribeLogDirsRequest(topics=None)), None)
        if sent is not None:
            asked[broker] = connection, sent
    return asked


def disks_of(broker: int) -> str:
    """What a note calls the log directories of a broker."""
    return f"disks of broker {broker}"


def read_disks(asked: Asked, topics: Topics, notes: list[str]) -> Disks:
    """Reads the log directories that `ask_disks` has asked for."""
    disks = Disks([], topics.column())
    for broker in list(asked):
        attempt(notes, disks_of(broker), partial(
            read_directories, *asked.pop(broker), topics, disks, broker), None)
    return disks


def read_directories(
    connection: Connection, sent: Sent, topics: Topics, disks: Disks, broker: int
) -> None:
    """Reads the log directories of a broker: the size of all their replicas, and the sizes of the
    topics that the user may see. A user who may DESCRIBE the cluster gets an answer with all
    topics, even with topics that this user may not see. Raises ClientError."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    response = connection.answer(sent, in_parts=("results", "topics"))
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


def described(broker: int, found: Any, replicas: int, size: int) -> Directory:
    """A log directory in a broker's answer."""
    return Directory(
        broker, found.log_dir, f"error {found.error_code}" if found.error_code else None,
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None, replicas, size,
    )
