"""Replicas and leaders: reassignments, elections, log directories."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.errors import NotConnected, check
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

log = logging.getLogger("ottla.tools")

PREFERRED, UNCLEAN = 0, 1


@dataclass
class Moving:
    """A partition's move in progress: all its replicas, the new ones, and those to be removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass
class Replica:
    """One replica in one log directory. `future`: it is still being moved to this directory."""

    broker: int
    directory: str
    topic: str
    partition: int
    size: int
    offset_lag: int
    future: bool


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions' indexes, by topic name."""
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        indexes[topic].append(index)
    return indexes


def reassign(
    cluster: ClusterClient,
    wanted: Mapping[Place, Sequence[int] | None],
    *,
    allow_factor_change: bool = True,
) -> dict[Place, tuple[int, str | None]]:
    """Moves partitions to these brokers, or cancels moves (None). Returns each partition's error
    code and message."""
    kind = AlterPartitionReassignmentsRequest.Topic
    topics = []
    for topic, indexes in by_topic(wanted).items():
        parts = []
        for index in indexes:
            replicas = wanted[topic, index]
            parts.append(
                kind.Partition(
                    partition_index=index, replicas=None if replicas is None else list(replicas)
                )
            )
        topics.append(kind(name=topic, partitions=parts))
    controller = cluster.controller()
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.timeout_ms(controller), topics=topics,
        allow_replication_factor_change=allow_factor_change,
    )
    response = controller.call(request)
    check(response.error_code, response.error_message)
    return {
        (topic.name, part.partition_index): (part.error_code, part.error_message)
        for topic in response.responses
        for part in topic.partitions
    }


def reassignments(cluster: ClusterClient) -> dict[Place, Moving]:
    """All partitions that are being moved."""
    controller = cluster.controller()
    request = ListPartitionReassignmentsRequest(
        timeout_ms=cluster.timeout_ms(controller), topics=None)
    response = controller.call(request)
    check(response.error_code, response.error_message)
    return {
        (topic.name, part.partition_index): Moving(
            list(part.replicas), list(part.adding_replicas), list(part.removing_replicas)
        )
        for topic in response.topics
        for part in topic.partitions
    }


def elect(
    cluster: ClusterClient, election: int, places: Iterable[Place] | None
) -> dict[Place, tuple[int, str | None]]:
    """Elects leaders of these partitions; None means all partitions. Returns the error code and
    message of each affected partition."""
    topics = None
    if places is not None:
        kind = ElectLeadersRequest.TopicPartition
        topics = [
            kind(topic=topic, partitions=indexes) for topic, indexes in by_topic(places).items()
        ]
    controller = cluster.controller()
    request = ElectLeadersRequest(
        election_type=election, topic_partitions=topics,
        timeout_ms=cluster.timeout_ms(controller),
    )
    response = controller.call(request)
    check(response.error_code)
    return {
        (topic.topic, part.partition_id): (part.error_code, part.error_message)
        for topic in response.replica_election_results
        for part in topic.partition_result
    }


def log_dirs(
    cluster: ClusterClient, broker: int, places: Iterable[Place] | None = None
) -> list[Any]:
    """The log directories of a broker. Each lists its partitions, or only those in `places`."""
    request_topics = None
    if places is not None:
        kind = DescribeLogDirsRequest.Topic
        request_topics = [
            kind(topic=topic, partitions=indexes) for topic, indexes in by_topic(places).items()
        ]
    response = cluster.node(broker).call(DescribeLogDirsRequest(topics=request_topics))
    check(getattr(response, "error_code", 0))
    return list(response.results)


def directory_status(found: Any) -> str:
    """`online`, `full` or `offline`, from a broker's answer about one log directory. Never `full`
    for brokers before Apache Kafka 3.3, which do not report how much space is left."""
    if found.error_code:
        return "offline"
    return "full" if getattr(found, "usable_bytes", -1) == 0 else "online"


def replicas(cluster: ClusterClient, places: Iterable[Place] | None = None) -> list[Replica]:
    """The log directory and size of every replica. Replicas on brokers that cannot be reached are
    left out."""
    wanted = None if places is None else list(places)
    found = []
    for broker in cluster.live():
        try:
            directories = log_dirs(cluster, broker, wanted)
        except NotConnected as failed:
            log.warning("the log directories of broker %d are not known: %s", broker, failed)
            continue
        found += [
            Replica(
                broker,
                directory.log_dir,
                topic.name,
                part.partition_index,
                part.partition_size,
                part.offset_lag,
                part.is_future_key,
            )
            for directory in directories
            for topic in directory.topics
            for part in topic.partitions
        ]
    return found


def move_directories(
    cluster: ClusterClient, broker: int, wanted: Mapping[Place, str]
) -> dict[Place, int]:
    """Moves partitions of a broker to other log directories. Returns each partition's error code.
    """
    kind = AlterReplicaLogDirsRequest.Dir
    by_path: dict[str, list[Place]] = defaultdict(list)
    for place, path in wanted.items():
        by_path[path].append(place)
    dirs = [
        kind(
            path=path,
            topics=[
                kind.Topic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(places).items()
            ],
        )
        for path, places in by_path.items()
    ]
    response = cluster.node(broker).call(AlterReplicaLogDirsRequest(dirs=dirs))
    return {
        (topic.topic_name, part.partition_index): part.error_code
        for topic in response.results
        for part in topic.partitions
    }
