"""Records of topics, one after the other, with kafka-python or confluent-kafka: with a group or
without one.

Without a group partitions are assigned directly, so that the first record is there in milliseconds
and nothing is left behind on the broker.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, check
from ottla.tools.admin import offsets
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.stream.client_settings import bootstrap_servers, keyword_arguments, known_to
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafka import KafkaConsumer

    from ottla.client.cluster import Cluster

POLL_MS = 500
GROUP_POLL_MS = 5000
"""A member of a group has to join within one poll: kafka-python 3.0.12 forgets an assignment that
comes after the poll in which it asked again because of new metadata, and then reads nothing more.
"""
GROUP_IDLE_MS = 5000
"""When a member of a group has read to the end: others may get its partitions, or leave some."""
TOPIC_SECONDS = 30.0
COMMIT_SECONDS = 5.0
SILENCE_SECONDS = 120.0
"""How long nothing may come although there are records; clients ask all the time."""
STUCK_SECONDS = 30.0
"""How long a member of a group waits for a coordinator or a leader that is being elected."""
MAY_COME = (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
"""What a topic's metadata may say while it is being created."""


@dataclass
class Reading:
    """What to read: where each partition begins, where it ends, when to stop.

    `start` is EARLIEST, LATEST or an offset; `ends` are offsets at which a partition is done.
    """

    topics: list[str] = field(default_factory=list)
    pattern: str = ""
    group: str = ""
    start: int = LATEST
    starts: dict[Place, int] = field(default_factory=dict)
    partitions: list[int] | None = None
    ends: dict[Place, int] | None = None
    idle_ms: int | None = None
    """Stop when no record has come for so long."""
    group_ends: dict[Place, int] = field(default_factory=dict)
    """A member of a group does not stop for that before it has joined, and has reached these
    offsets of the partitions that it got."""
    stop: Callable[[], bool] = lambda: False


def open_consumer(
    cluster: Cluster, wanted: Reading, properties: Mapping[str, str], client: str
) -> Any:
    """A consumer with one of the two libraries."""
    servers = bootstrap_servers(cluster, client)
    start = "earliest" if wanted.start == EARLIEST else "latest"
    if client == "confluent-kafka":
        from ottla.tools.stream.confluent import ConfluentConsumer

        return ConfluentConsumer(servers, wanted.group, properties, start)
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    settings = {
        "auto_offset_reset": start, **known_to(KafkaConsumer, keyword_arguments(properties)),
    }  # fmt: skip
    settings |= {"group_id": wanted.group or None, "enable_auto_commit": False}
    try:
        return KafkaConsumer(bootstrap_servers=servers, **settings)
    except (AssertionError, ValueError, KafkaError) as wrong:
        raise ClientError(f"cannot make a consumer: {wrong}") from wrong


def read(
    cluster: Cluster, wanted: Reading, properties: Mapping[str, str], client: str = "kafka-python"
) -> Generator[Any, None, None]:
    """kafka-python's records (topic, partition, offset, timestamp, key, value, headers), or those
    of confluent-kafka under the same names.

    Close it where it is not read to its end: that commits for the group, and may raise ClientError.
    """
    from kafka.errors import KafkaError

    consumer = open_consumer(cluster, wanted, properties, client)
    handed = Handed(consumer if wanted.group else None)
    try:
        try:
            if wanted.group and wanted.partitions is None:
                subscribe(consumer, wanted)
                yield from handed.count(poll(consumer, wanted, {}))
            else:
                yield from handed.count(poll(consumer, wanted, assign(cluster, consumer, wanted)))
        finally:
            handed.commit()
    except KafkaError as failed:
        raise ClientError(f"{type(failed).__name__}: {failed}".rstrip(": ")) from failed
    finally:
        consumer.close(autocommit=False)


class Handed:
    """Offsets of what has been handed out: only that is committed, not what was merely fetched."""

    def __init__(self, consumer: KafkaConsumer | None) -> None:
        self.consumer = consumer
        self.next: dict[Place, int] = {}
        self.committed_at = time.monotonic()

    def count(self, records: Iterator[Any]) -> Iterator[Any]:
        """The records; each counts as handed out when the next one is asked for, or at the end."""
        for record in records:
            self.next[record.topic, record.partition] = record.offset + 1
            yield record
            if time.monotonic() - self.committed_at > COMMIT_SECONDS:
                self.commit()

    def commit(self) -> None:
        """Commit for the group, if there is one."""
        self.committed_at = time.monotonic()
        if self.consumer is None or not self.next:
            return
        from kafka import OffsetAndMetadata, TopicPartition

        self.consumer.commit(
            {
                TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
                for place, offset in self.next.items()
            }
        )
        self.next.clear()


def subscribe(consumer: KafkaConsumer, wanted: Reading) -> None:
    if wanted.pattern:
        consumer.subscribe(pattern=wanted.pattern)
    else:
        consumer.subscribe(wanted.topics)


def assign(cluster: Cluster, consumer: KafkaConsumer, wanted: Reading) -> dict[Place, int]:
    """Take the partitions without a group; returns the ends that are still to be reached."""
    from kafka import TopicPartition

    places = places_of(cluster, wanted)
    starting = {place: wanted.starts.get(place, wanted.start) for place in places}
    special = {place: start for place, start in starting.items() if start < 0}
    begin = starting | offsets.required(cluster, special)
    consumer.assign([TopicPartition(*place) for place in places])
    for place, start in begin.items():
        consumer.seek(TopicPartition(*place), start)
    return {place: end for place, end in (wanted.ends or {}).items() if end > begin[place]}


def places_of(cluster: Cluster, wanted: Reading) -> list[Place]:
    """The partitions to read; a topic that does not exist yet is waited for a while."""
    deadline = time.monotonic() + TOPIC_SECONDS
    while True:
        if wanted.pattern:
            fits = re.compile(wanted.pattern).fullmatch
            topics = [t for t in cluster.metadata().topics if fits(t.name) and not t.is_internal]
        else:
            asked = cluster.metadata(wanted.topics).topics
            for topic in asked:
                if topic.error_code not in MAY_COME:
                    check(topic.error_code, what=f"topic {topic.name!r}")
            topics = [topic for topic in asked if not topic.error_code]
        found = [
            (topic.name, part.partition_index) for topic in topics for part in topic.partitions
        ]
        if wanted.partitions is not None:
            found = [place for place in found if place[1] in wanted.partitions]
        if (
            found
            or wanted.ends is not None
            or wanted.idle_ms is not None
            or wanted.stop()
            or time.monotonic() > deadline
        ):
            return sorted(found)
        time.sleep(0.2)


def poll(consumer: KafkaConsumer, wanted: Reading, ends: dict[Place, int]) -> Iterator[Any]:
    """Records as they come, until all ends are reached or nothing has come for too long."""
    if wanted.ends is not None and not ends and not wanted.group:
        return
    since, at = time.monotonic(), dict[Place, int]()
    while not wanted.stop():
        most = GROUP_POLL_MS if wanted.group else POLL_MS
        wait = most if wanted.idle_ms is None else min(most, max(wanted.idle_ms, 1))
        batches = consumer.poll(wait)
        for place, records in batches.items():
            key = (place.topic, place.partition)
            for record in records:
                if wanted.ends is not None and record.offset >= wanted.ends.get(key, 1 << 62):
                    ends.pop(key, None)
                    break
                yield record
        now = time.monotonic()
        if batches:
            since = now                     # not before: whoever takes the records may be slow
        if wanted.ends is not None and not wanted.group:
            for key in list(ends):
                here = position(consumer, key)
                if here != at.get(key):     # also across records that are not to be read
                    at[key], since = here, now
                if here >= ends[key]:
                    del ends[key]
            if not ends:
                return
            if now - since >= SILENCE_SECONDS:
                (topic, index), end = min(ends.items())
                raise ClientError(f"{topic}-{index} has records before {end} that did not come")
        idle = now - since
        if wanted.idle_ms is not None and idle * 1000 >= wanted.idle_ms:
            missing = unread(consumer, wanted) if wanted.group_ends else ""
            if not missing:
                return
            if idle >= STUCK_SECONDS:
                raise ClientError(f"group {wanted.group}: {missing}")


def unread(consumer: Any, wanted: Reading) -> str:
    """What a member of a group still has to wait for, "" for nothing."""
    if wanted.partitions is None and not joined(consumer):
        return "its coordinator did not let a member join"
    for place in consumer.assignment():
        end = wanted.group_ends.get((place.topic, place.partition), 0)
        if position(consumer, (place.topic, place.partition)) < end:
            return f"{place.topic}-{place.partition} has records before {end} that did not come"
    return ""


def joined(consumer: Any) -> bool:
    """Whether a member of a group knows its partitions."""
    from kafka import KafkaConsumer
    from kafka.structs import MemberState

    if isinstance(consumer, KafkaConsumer):
        return bool(consumer.group_metadata().state == MemberState.STABLE)
    return bool(consumer.joined)


def position(consumer: KafkaConsumer, place: Place) -> int:
    """The next offset that a partition is read at."""
    from kafka import TopicPartition

    return int(consumer.position(TopicPartition(*place)) or 0)


def read_to_the_end(cluster: Cluster, wanted: Reading, *, committed: bool) -> None:
    """Let a member of a group stop once it has read what there is at this moment."""
    wanted.idle_ms = GROUP_IDLE_MS
    asked = Reading(wanted.topics, wanted.pattern, partitions=wanted.partitions, ends={})
    places = places_of(cluster, asked)
    wanted.group_ends = offsets.required(
        cluster, dict.fromkeys(places, LATEST), committed=committed
    )
