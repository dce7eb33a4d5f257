"""Topics and partitions: list, describe, create, grow, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.errors import NotSupported, Refused, check
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.client.connection import Connection

TIMEOUT_MS = 30_000
Result = TypeVar("Result")
PARTITIONS_PER_RESPONSE = 2000


@dataclass
class Partition:
    """One partition. Brokers are given by their ids; `leader` is -1 if there is no leader. `elr`
    and `last_known_elr` are None if the broker does not report them."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline: list[int] = field(default_factory=list)


@dataclass
class Topic:
    """One topic. `error` is a code of the protocol, 0 for none."""

    name: str
    id: bytes
    internal: bool
    partitions: list[Partition]
    error: int = 0


def each(cluster: ClusterClient) -> Iterator[Any]:
    """The Metadata of every topic, unordered. Topics are decoded one at a time, so that a hundred
    thousand partitions are never in memory at once."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = cluster.any().call_in_parts(request, "topics")
    for _, topic in response:
        yield topic
    check(response.message.error_code)
    cluster.learn(response.message)


def names(cluster: ClusterClient, *, internal: bool = True) -> list[str]:
    """The names of all topics, sorted."""
    return sorted(topic.name for topic in each(cluster) if internal or not topic.is_internal)


def brokers(asked: Connection) -> set[int]:
    """The live brokers, as the broker of this connection knows them. Metadata may also list brokers
    that have stopped."""
    try:
        return {broker.broker_id for broker in asked.call(DescribeClusterRequest()).brokers}
    except NotSupported:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return {broker.node_id for broker in asked.call(request).brokers}


def describe(
    cluster: ClusterClient,
    wanted: Iterable[str] | None = None,
    limit: int = 0,
    asked: Connection | None = None,
) -> list[Topic]:
    """The named topics, or all, sorted by name; unknown topics have an `error`.

    Asks the broker `asked`. Asks any broker if `asked` is None, or if brokers lack
    DescribeTopicPartitions. A response has up to `limit` partitions; 0 means
    PARTITIONS_PER_RESPONSE.
    """
    if wanted is None and asked is not None:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        wanted = [topic.name or "" for topic in asked.call(request).topics]
    listed = sorted(set(wanted)) if wanted is not None else names(cluster)
    if cluster.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return _described(asked or cluster.any(), listed, limit or PARTITIONS_PER_RESPONSE)
    return [_of_metadata(topic) for topic in cluster.metadata(listed).topics] if listed else []


def _described(asked: Connection, wanted: list[str], limit: int) -> list[Topic]:
    described: dict[str, Topic] = {}
    cursor = None
    remaining = [DescribeTopicPartitionsRequest.Topic(name=name) for name in wanted]
    while remaining:
        request = DescribeTopicPartitionsRequest(
            topics=remaining, response_partition_limit=limit, cursor=cursor
        )
        response = asked.call(request)
        for topic in response.topics:
            made = described.setdefault(
                topic.name,
                Topic(topic.name, topic.topic_id, topic.is_internal, [], topic.error_code),
            )
            made.partitions += [_partition(item) for item in topic.partitions]
        if response.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )
        remaining = [topic for topic in remaining if topic.name >= cursor.topic_name]
    return [described[name] for name in wanted if name in described]


def _partition(item: Any) -> Partition:
    return Partition(
        item.partition_index,
        item.leader_id,
        item.leader_epoch,
        list(item.replica_nodes),
        list(item.isr_nodes),
        getattr(item, "eligible_leader_replicas", None),
        getattr(item, "last_known_elr", None),
        list(item.offline_replicas),
    )


def _of_metadata(topic: Any) -> Topic:
    parts = sorted(topic.partitions, key=lambda part: part.partition_index)
    return Topic(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        [_partition(part) for part in parts],
        topic.error_code,
    )


def topic_id(cluster: ClusterClient, name: str) -> bytes:
    """The id of a topic; raises Refused if it does not exist."""
    [topic] = cluster.metadata([name]).topics
    check(topic.error_code, what=f"topic {name!r}")
    return bytes(topic.topic_id)


def leaders(cluster: ClusterClient, wanted: Iterable[str]) -> dict[tuple[str, int], int]:
    """The leader of every partition of these topics; raises Refused for an unknown topic."""
    found, errors = leaders_or_errors(cluster, wanted)
    for name, code in errors.items():
        check(code, what=f"topic {name!r}")
    return found


def leaders_or_errors(
    cluster: ClusterClient, wanted: Iterable[str]
) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
    """The leader of every partition of these topics, and the error code of each topic that has one,
    for example because it was deleted."""
    found: dict[tuple[str, int], int] = {}
    errors: dict[str, int] = {}
    for topic in cluster.metadata(wanted).topics:
        if topic.error_code:
            errors[topic.name] = topic.error_code
            continue
        for part in topic.partitions:
            found[topic.name, part.partition_index] = part.leader_id
    return found, errors


def of_all_coordinators(cluster: ClusterClient, name: str, ask: Callable[[], Result]) -> Result:
    """The result of `ask`, which queries all coordinators. They are the leaders of the internal
    topic `name`.

    Waits until every partition of this topic has a leader, and repeats `ask` if a leader has
    changed meanwhile. While a coordinator is being elected, no broker lists its groups or
    transactions.
    """

    def answer() -> Result:
        before = _led_by(cluster, name)
        found = ask()
        if _led_by(cluster, name) != before:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"leaders of {name} have changed meanwhile")
        return found

    found: Result = cluster.with_retries(answer)
    return found


def _led_by(cluster: ClusterClient, name: str) -> dict[int, tuple[int, int]]:
    """The leader and the leader epoch of each partition; raises Refused if a partition has no
    leader."""
    [topic] = cluster.metadata([name]).topics       # has no partitions if the user may not see it
    for part in topic.partitions:
        if part.leader_id < 0:
            what = f"{name}-{part.partition_index}"
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, what=what)
    return {p.partition_index: (p.leader_id, p.leader_epoch) for p in topic.partitions}


def leader(cluster: ClusterClient, place: tuple[str, int]) -> int:
    """The leader of one partition; raises Refused if there is no such partition or no leader."""
    found = leaders(cluster, [place[0]]).get(place)
    what = f"{place[0]}-{place[1]}"
    if found is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=what)
    if found < 0:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, what=what)
    return found


def create(
    cluster: ClusterClient,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Any:
    """Create a topic, or only validate the request; returns the broker's description of the topic.

    -1 means the broker's default; `assignments` are the replicas of each partition.
    """
    kind = CreateTopicsRequest.Topic
    placed = [
        kind.Assignment(partition_index=index, broker_ids=list(replicas))
        for index, replicas in enumerate(assignments)
    ]
    topic = kind(
        name=name,
        num_partitions=-1 if placed else partitions,
        replication_factor=-1 if placed else replication_factor,
        assignments=placed,
        configs=[kind.Config(name=key, value=value) for key, value in (configs or {}).items()],
    )

    def ask() -> Any:
        controller = cluster.controller()
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=cluster.timeout_ms(controller), validate_only=dry_run)
        [made] = controller.call(request).topics
        check(made.error_code, made.error_message, f"topic {name!r}")
        return made

    return cluster.with_retries(ask)


def known_partitions(made: Any) -> int | None:
    """How many partitions a topic has that `create` returned. None if the user may not read the
    topic's settings: then brokers hide this number, too."""
    return None if made.num_partitions < 0 else int(made.num_partitions)


def grow(
    cluster: ClusterClient,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    dry_run: bool = False,
) -> None:
    """Increase a topic's partitions to `count`; `assignments` are the replicas of the new
    partitions."""
    kind = CreatePartitionsRequest.Topic
    placed = None
    if assignments is not None:
        placed = [kind.Assignment(broker_ids=list(replicas)) for replicas in assignments]
    topic = kind(name=name, count=count, assignments=placed)

    def ask() -> None:
        controller = cluster.controller()
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=cluster.timeout_ms(controller), validate_only=dry_run)
        [done] = controller.call(request).results
        check(done.error_code, done.error_message, f"topic {name!r}")

    cluster.with_retries(ask)


def delete(cluster: ClusterClient, wanted: Sequence[str]) -> dict[str, tuple[int, str | None]]:
    """Delete topics; returns each topic's error code and message."""
    controller = cluster.controller()
    request = DeleteTopicsRequest(timeout_ms=cluster.timeout_ms(controller))
    if controller.version_of(ApiKey.DELETE_TOPICS) >= 6:
        request.topics = [DeleteTopicsRequest.Topic(name=name) for name in wanted]
    else:
        request.topic_names = list(wanted)
    return {
        item.name or "": (item.error_code, item.error_message)
        for item in controller.call(request).responses
    }


def exists(error: int) -> bool:
    """Whether a topic with this error code exists."""
    return error not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    )
