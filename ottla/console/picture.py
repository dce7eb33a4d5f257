"""A cluster as one user sees it at one moment: topics, partitions, offsets, sizes, disks."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.errors import ClientError
from ottla.tools.admin import cluster as clusters
from ottla.tools.admin import offsets, partitions
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.admin.topics import Topic, describe

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

Memory = MutableMapping[Hashable, Any]
Value = TypeVar("Value")
RATE_SECONDS_MIN = 1.0


@dataclass
class Directory:
    """A log directory of a broker; sizes are None where the broker does not know them."""

    broker: int
    path: str
    error: str | None
    total: int | None
    usable: int | None
    replicas: int
    size: int


@dataclass
class Picture:
    """A cluster at one moment."""

    at: float
    topics: list[Topic]
    cluster_id: str | None
    controller: int
    brokers: list[Any]
    fenced: set[int]
    directories: list[Directory] = field(default_factory=list)
    sizes: dict[Place, int] = field(default_factory=dict)
    """Of the largest replica of each partition."""
    shown_bytes: int = 0
    """Of all replicas of the topics that the user may see."""
    starts: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    """Records a second of each topic, since the picture before; empty for the first one."""
    notes: list[str] = field(default_factory=list)
    """What could not be read, and why."""


def take(cluster: Cluster, memory: Memory) -> Picture:
    """Read everything. What the user may not see is missing, and noted."""
    notes: list[str] = []
    described = described_brokers(cluster)
    topics = describe(cluster)
    picture = Picture(
        time.time(), topics, cluster.cluster_id, cluster.controller_id,
        sorted(described.brokers, key=lambda one: one.broker_id),
        {one.broker_id for one in described.brokers if getattr(one, "is_fenced", False)},
        notes=notes,
    )
    shown = {topic.name for topic in topics}
    places = [
        (topic.name, part.index) for topic in topics for part in topic.partitions
        if part.leader >= 0
    ]
    picture.starts = attempt(notes, "offsets", lambda: known(cluster, places, EARLIEST), {})
    picture.ends = attempt(notes, "offsets", lambda: known(cluster, places, LATEST), {})
    for one in picture.brokers:
        if one.broker_id not in picture.fenced:
            read = disks(cluster, picture, one, shown)
            attempt(notes, f"disks of broker {one.broker_id}", read, None)
    picture.rates = rates(memory.get("picture"), picture)
    memory["picture"] = picture
    return picture


def described_brokers(cluster: Cluster) -> Any:
    """DescribeCluster, with the fenced brokers if the cluster can tell them."""
    cluster.refresh()
    try:
        return clusters.brokers(cluster, fenced=cluster.supports(60, 2))
    except ClientError:
        return clusters.brokers(cluster)


def attempt(notes: list[str], what: str, read: Callable[[], Value], otherwise: Value) -> Value:
    """What `read` returns; if it is refused, a note says so."""
    try:
        return read()
    except ClientError as refused:
        text = f"{what}: {refused}"
        if text not in notes:
            notes.append(text)
        return otherwise


def known(cluster: Cluster, places: list[Place], which: int) -> dict[Place, int]:
    """The offsets of the partitions that answer."""
    wanted = dict.fromkeys(places, which)
    found = offsets.at(cluster, wanted) if wanted else {}
    return {place: one.offset for place, one in found.items() if not one.error}


def disks(
    cluster: Cluster, picture: Picture, broker: Any, shown: set[str]
) -> Callable[[], None]:
    """What reads the log directories of a broker into a picture: whole, and the sizes of the topics
    that the user may see. Who may describe the cluster is told those of all topics."""

    def read() -> None:
        for found in partitions.log_dirs(cluster, broker.broker_id):
            total = getattr(found, "total_bytes", -1)
            usable = getattr(found, "usable_bytes", -1)
            size = count = 0
            for topic in found.topics:
                for part in topic.partitions:
                    size += part.partition_size
                    count += 1
                    if topic.name in shown:
                        place = (topic.name, part.partition_index)
                        picture.shown_bytes += part.partition_size
                        picture.sizes[place] = max(picture.sizes.get(place, 0), part.partition_size)
            error = f"error {found.error_code}" if found.error_code else None
            picture.directories.append(Directory(
                broker.broker_id, found.log_dir, error, total if total >= 0 else None,
                usable if usable >= 0 else None, count, size,
            ))

    return read


def rates(before: Picture | None, now: Picture) -> dict[str, float]:
    """Records a second of each topic between two pictures."""
    if before is None or now.at - before.at < RATE_SECONDS_MIN:
        return before.rates if before is not None else {}
    found: dict[str, float] = {}
    for (topic, index), end in now.ends.items():
        grown = end - before.ends.get((topic, index), end)
        found[topic] = found.get(topic, 0.0) + max(grown, 0)
    elapsed = now.at - before.at
    return {topic: round(grown / elapsed, 2) for topic, grown in found.items()}
