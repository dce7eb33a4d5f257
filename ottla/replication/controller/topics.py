"""The controller's decisions about topics: create, delete, add partitions.

Each function is pure: it maps an image and a client's request to records and an answer. One
topic's error is reported in its own answer and does not affect other topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.replication.controller.configs import check_sizes
from ottla.replication.controller.elections import NONE
from ottla.replication.metadata import (
    ConfigSet,
    Decision,
    MetadataImage,
    MetadataRecord,
    PartitionsAdded,
    PartitionState,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.placement import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    assigned_partition,
    cordoned,
    registered,
    require_assignment,
    spread,
    turn_of,
)
from ottla.replication.steps import Steps, Stepwise
from ottla.replication.topic_names import METADATA_TOPICS, colliding_name, require_legal_name
from ottla.wire.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    ProtocolError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

NO_ID = bytes(16)
PARTITIONS_PER_REQUEST_MAX = 10_000
"""The most partitions that one request may create, as in Kafka's controller."""
TOO_MANY = f"One request may not make more than {PARTITIONS_PER_REQUEST_MAX} partitions."

Permit = Callable[[int], None]
"""Counts partitions that a client creates or deletes; raises ProtocolError if the client may not
create or delete so many."""
CheckConfigs = Callable[[Mapping[str, str]], None]
"""Raises InvalidConfig if a topic may not have these settings."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 means the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, tuple[int, ...]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The defaults that replace -1 in a NewTopic, and the function that checks settings."""

    num_partitions: int = 1
    replication_factor: int = 1
    check_configs: CheckConfigs = lambda configs: None


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """The result for one topic: `error`, or the topic's id and its new partitions."""

    name: str | None
    error: ProtocolError | None = None
    topic_id: bytes = NO_ID
    partitions: tuple[PartitionState, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicAlreadyExists(ProtocolError):
    """There is a topic with this name."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(ProtocolError):
    """A topic cannot have this number of partitions."""

    code = ErrorCode.INVALID_PARTITIONS


class TooManyPartitions(ProtocolError):
    """One request asks for too many new partitions."""

    code = ErrorCode.POLICY_VIOLATION


@Stepwise
def create_topics(
    image: MetadataImage,
    wanted: Sequence[NewTopic],
    defaults: TopicDefaults,
    new_topic_id: Callable[[], bytes],
    validate_only: bool = False,
    permit: Permit = lambda partitions: None,
) -> Steps[Decision[list[TopicAnswer]]]:
    """Create topics; `validate_only` reports what would happen and changes nothing."""
    times = Counter(topic.name for topic in wanted)
    records: list[MetadataRecord] = []
    answers = []
    made: set[str] = set()
    too_many = sum(_count(topic, defaults) for topic in wanted) > PARTITIONS_PER_REQUEST_MAX
    for topic in wanted:
        yield
        if times[topic.name] > 1:
            continue
        try:
            if too_many:
                raise TooManyPartitions(TOO_MANY)
            turn = image.offset + len(records)
            partitions, configs = _plan_topic(image, topic, defaults, made, turn)
            permit(len(partitions))
        except ProtocolError as error:
            answers.append(TopicAnswer(topic.name, error.kept()))
            continue
        topic_id = _unused_id(image, new_topic_id)
        made.add(topic.name)
        records.append(TopicCreated(topic.name, topic_id, partitions))
        records += [ConfigSet("topic", topic.name, key, configs[key]) for key in configs]
        answers.append(TopicAnswer(topic.name, None, topic_id, partitions, configs))
    answers += [
        TopicAnswer(name, InvalidRequest("Duplicate topic name."))
        for name, count in times.items()
        if count > 1
    ]
    return Decision([] if validate_only else records, answers)


def _count(topic: NewTopic, defaults: TopicDefaults) -> int:
    """How many partitions a requested topic would have, even if the request is not valid."""
    if topic.assignments:
        return len(topic.assignments)
    return defaults.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _plan_topic(
    image: MetadataImage, topic: NewTopic, defaults: TopicDefaults, made: set[str], start: int
) -> tuple[tuple[PartitionState, ...], dict[str, str]]:
    if topic.name in METADATA_TOPICS:
        raise InvalidRequest(f"Creation of internal topic {topic.name} is prohibited.")
    require_legal_name(topic.name)
    if topic.name in image.topics:
        raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
    other = colliding_name(topic.name, image.topics) or colliding_name(topic.name, made)
    if other is not None:
        raise InvalidTopic(f"Topic '{topic.name}' collides with existing topic: {other}")
    configs = _require_configs(topic, defaults.check_configs)
    if topic.assignments:
        return _assigned(image, topic), configs
    factor, count = topic.replication_factor, topic.num_partitions
    if factor < -1 or factor == 0:
        raise InvalidReplicationFactor(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if count < -1 or count == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    count = defaults.num_partitions if count == -1 else count
    factor = defaults.replication_factor if factor == -1 else factor
    return spread(image, count, factor, start), configs


def _require_configs(topic: NewTopic, check: CheckConfigs) -> dict[str, str]:
    configs = {}
    for name, value in topic.configs:
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        configs[name] = value
    check_sizes(configs)
    check(configs)
    return configs


def _assigned(image: MetadataImage, topic: NewTopic) -> tuple[PartitionState, ...]:
    if topic.replication_factor != -1:
        raise InvalidRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != -1:
        raise InvalidRequest(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    placed: dict[int, PartitionState] = {}
    known, closed = registered(image), cordoned(image)
    factor = None
    for index, replicas in topic.assignments:
        if index in placed:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        require_assignment(replicas, known, factor, closed)
        factor = len(replicas)
        placed[index] = assigned_partition(index, replicas, image)
    if sorted(placed) != list(range(len(placed))):
        raise InvalidReplicaAssignment(
            "partitions should be a consecutive 0-based integer sequence"
        )
    return tuple(placed[index] for index in range(len(placed)))


def _unused_id(image: MetadataImage, new_topic_id: Callable[[], bytes]) -> bytes:
    """A new topic id; 0 and 1 are reserved."""
    while True:
        topic_id = new_topic_id()
        if topic_id not in image.names and any(topic_id[:15]):
            return topic_id


def delete_topics(
    image: MetadataImage,
    wanted: Sequence[tuple[str | None, bytes]],
    permit: Permit = lambda partitions: None,
    may_delete: Callable[[str], bool] = lambda name: True,
) -> Decision[list[TopicAnswer]]:
    """Delete topics. Each item of `wanted` has a name and a zero id, or None and an id.
    `may_delete` says whether the client has the right to delete a topic."""
    names = Counter(name for name, _ in wanted if name is not None)
    ids = Counter(topic_id for _, topic_id in wanted if topic_id != NO_ID)
    records: list[MetadataRecord] = []
    answers = []
    answered = set()
    for name, topic_id in wanted:
        try:
            if name is not None and names[name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            if ids[topic_id] > 1:
                raise InvalidRequest("Duplicate topic id.")
            known_name, known_id = _find_topic(image, name, topic_id)
            if names[known_name] and ids[known_id]:
                name, topic_id = known_name, known_id        # one answer for both items
                raise InvalidRequest(
                    "The provided topic name maps to an ID that was already supplied."
                )
            if not may_delete(known_name):
                raise ProtocolError("", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            permit(len(image.topics[known_name].partitions))
        except ProtocolError as error:
            if (name, topic_id) not in answered:
                answers.append(TopicAnswer(name, error.kept(), topic_id))
                answered.add((name, topic_id))
            continue
        records.append(TopicDeleted(known_name))
        answers.append(TopicAnswer(known_name, None, known_id))
    return Decision(records, answers)


def _find_topic(image: MetadataImage, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
    if name is not None and topic_id != NO_ID:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if name is not None:
        topic = image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
        return name, topic.topic_id
    if topic_id == NO_ID:
        raise InvalidRequest("Neither topic name nor id were specified.")
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopicId("This server does not host this topic ID.")
    return topic.name, topic_id


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that should have `count` partitions in total. If `assignments` is None, the
    controller places the new ones."""

    name: str
    count: int
    assignments: Sequence[tuple[int, ...]] | None = None


def create_partitions(
    image: MetadataImage,
    wanted: Sequence[MorePartitions],
    validate_only: bool = False,
    permit: Permit = lambda partitions: None,
) -> Decision[list[TopicAnswer]]:
    """Add partitions to topics."""
    times = Counter(topic.name for topic in wanted)
    records: list[MetadataRecord] = []
    answers = [
        TopicAnswer(name, InvalidRequest("Duplicate topic name."))
        for name, count in times.items()
        if count > 1
    ]
    left = PARTITIONS_PER_REQUEST_MAX
    for topic in wanted:
        if times[topic.name] > 1:
            continue
        try:
            partitions = _plan_partitions(image, topic, left)
            permit(len(partitions))
        except ProtocolError as error:
            answers.append(TopicAnswer(topic.name, error.kept()))
            continue
        left -= len(partitions)
        records.append(PartitionsAdded(topic.name, partitions))
        answers.append(TopicAnswer(topic.name, None, partitions=partitions))
    return Decision([] if validate_only else records, answers)


def _plan_partitions(
    image: MetadataImage, wanted: MorePartitions, left: int
) -> tuple[PartitionState, ...]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    current = len(topic.partitions)
    if wanted.count == current:
        raise InvalidPartitions(f"Topic already has {current} partition(s).")
    if wanted.count < current:
        raise InvalidPartitions(
            f"The topic {wanted.name} currently has {current} partition(s); {wanted.count} would"
            " not be an increase."
        )
    added = wanted.count - current
    if added > left:
        raise TooManyPartitions(TOO_MANY)
    if wanted.assignments is not None and len(wanted.assignments) != added:
        raise InvalidReplicaAssignment(
            f"Attempted to add {added} additional partition(s), but only"
            f" {len(wanted.assignments)} assignment(s) were specified."
        )
    # While partition 0 is being reassigned, it also has the replicas that are to be removed.
    moving = (topic.partitions[0].extra or NONE).removing
    factor = len([node for node in topic.partitions[0].replicas if node not in moving])
    if wanted.assignments is None:
        start = turn_of(image.brokers, topic.partitions[0].replicas[0]) + current
        return spread(image, added, factor, start)
    known, closed = registered(image), cordoned(image)
    for replicas in wanted.assignments:
        require_assignment(replicas, known, factor, closed)
    return tuple(
        assigned_partition(index, replicas, image)
        for index, replicas in enumerate(wanted.assignments, current)
    )
