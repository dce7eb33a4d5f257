"""The requests of clients with partial rights about one guarded topic, or about all topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.replication.controller.access import Operation
from ottla.wire import messages
from ottla.wire.records import Record, build_batch

RETENTION_MS = "86400001"
"""The value of retention.ms that clients try to set."""


@dataclass(frozen=True)
class Ask:
    """A request, and the right that it needs. Without `need`, the request names no topic, and the
    answer lists what the client may see."""

    request: Any
    version: int
    need: Operation | None = None
    by_id: bool = False
    creates: bool = False
    """Whether the request also needs CREATE if the topic does not exist."""
    value: bytes = b""
    """The record that the request would append."""

    def __str__(self) -> str:
        return f"{type(self.request).__name__} v{self.version}"


@dataclass(frozen=True)
class Subject:
    """What a request is about: a topic by its name, and its id if the id is known."""

    name: str
    topic_id: bytes | None
    partition: int
    value: bytes
    now_ms: int


Make = Callable[[Subject, Random], Ask | None]


def list_all(subject: Subject, chance: Random) -> Ask:
    made = messages.MetadataRequest
    return Ask(made(topics=None, allow_auto_topic_creation=False), chance.choice((9, 12, 13)))


def describe_all(subject: Subject, chance: Random) -> Ask:
    return Ask(messages.DescribeTopicPartitionsRequest(
        topics=[], response_partition_limit=chance.choice((1, 2000)), cursor=None), 0)


def describe(subject: Subject, chance: Random) -> Ask:
    made = messages.MetadataRequest
    creates = chance.random() < 0.3
    return Ask(made(
        topics=[made.Topic(name=subject.name)], allow_auto_topic_creation=creates,
        include_topic_authorized_operations=chance.random() < 0.5,
    ), chance.choice((9, 12)), Operation.DESCRIBE, creates=creates)


def describe_id(subject: Subject, chance: Random) -> Ask | None:
    made = messages.MetadataRequest
    if subject.topic_id is None:
        return None
    return Ask(made(
        topics=[made.Topic(name=None, topic_id=subject.topic_id)], allow_auto_topic_creation=False,
    ), chance.choice((12, 13)), Operation.DESCRIBE, by_id=True)


def describe_partitions(subject: Subject, chance: Random) -> Ask:
    made = messages.DescribeTopicPartitionsRequest
    return Ask(made(
        topics=[made.Topic(name=subject.name)], response_partition_limit=2, cursor=None,
    ), 0, Operation.DESCRIBE)


def fetch(subject: Subject, chance: Random) -> Ask | None:
    made = messages.FetchRequest.Topic
    version = chance.choice((12, 13, 17))
    if version >= 13 and subject.topic_id is None:
        return None
    named = {"topic_id": subject.topic_id} if version >= 13 else {"topic": subject.name}
    return Ask(messages.FetchRequest(
        replica_id=-1, max_wait_ms=chance.choice((0, 0, 50)), min_bytes=1, max_bytes=1 << 20,
        topics=[made(**named, partitions=[made.Partition(
            partition=subject.partition, fetch_offset=0, partition_max_bytes=1 << 20)])],
    ), version, Operation.READ, by_id=version >= 13)


def produce(subject: Subject, chance: Random) -> Ask | None:
    made = messages.ProduceRequest.TopicData
    version = chance.choice((11, 13))
    if version >= 13 and subject.topic_id is None:
        return None
    named = {"topic_id": subject.topic_id} if version >= 13 else {"name": subject.name}
    data = build_batch([Record(timestamp=subject.now_ms, key=None, value=subject.value)])
    return Ask(messages.ProduceRequest(
        acks=chance.choice((1, -1)), timeout_ms=1000, topic_data=[made(
            **named, partition_data=[made.PartitionData(index=subject.partition, records=data)])],
    ), version, Operation.WRITE, by_id=version >= 13, value=subject.value)


def delete(subject: Subject, chance: Random) -> Ask | None:
    made = messages.DeleteTopicsRequest
    how = chance.choice(("old", "name", "id"))
    if how == "old":
        return Ask(made(topic_names=[subject.name], timeout_ms=5000), 5, Operation.DELETE)
    if how == "name":
        topic = made.Topic(name=subject.name)
    elif subject.topic_id is not None:
        topic = made.Topic(topic_id=subject.topic_id)
    else:
        return None
    return Ask(made(topics=[topic], topic_names=[], timeout_ms=5000), 6, Operation.DELETE,
               by_id=how == "id")


def delete_records(subject: Subject, chance: Random) -> Ask:
    made = messages.DeleteRecordsRequest.Topic
    return Ask(messages.DeleteRecordsRequest(topics=[made(name=subject.name, partitions=[
        made.Partition(partition_index=subject.partition, offset=-1)
    ])], timeout_ms=1000), 2, Operation.DELETE)


def list_offsets(subject: Subject, chance: Random) -> Ask:
    made = messages.ListOffsetsRequest.Topic
    return Ask(messages.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[made(
        name=subject.name, partitions=[
            made.Partition(partition_index=subject.partition, timestamp=chance.choice((-1, -2)))])],
    ), 8, Operation.DESCRIBE)


def end_of_epoch(subject: Subject, chance: Random) -> Ask:
    made = messages.OffsetForLeaderEpochRequest.Topic
    return Ask(messages.OffsetForLeaderEpochRequest(topics=[made(
        topic=subject.name, partitions=[
            made.Partition(partition=subject.partition, leader_epoch=0)])],
    ), 4, Operation.DESCRIBE)


def describe_producers(subject: Subject, chance: Random) -> Ask:
    made = messages.DescribeProducersRequest
    return Ask(made(topics=[made.Topic(
        name=subject.name, partition_indexes=[subject.partition])]), 0, Operation.READ)


def describe_configs(subject: Subject, chance: Random) -> Ask:
    made = messages.DescribeConfigsRequest
    return Ask(made(resources=[made.Resource(
        resource_type=2, resource_name=subject.name, configuration_keys=["retention.ms"])]),
        4, Operation.DESCRIBE_CONFIGS)


def alter_configs(subject: Subject, chance: Random) -> Ask:
    made = messages.IncrementalAlterConfigsRequest
    return Ask(made(resources=[made.Resource(
        resource_type=2, resource_name=subject.name, configs=[made.Resource.Config(
            name="retention.ms", config_operation=0, value=RETENTION_MS)])]),
        1, Operation.ALTER_CONFIGS)


def widen(subject: Subject, chance: Random) -> Ask:
    made = messages.CreatePartitionsRequest
    return Ask(made(topics=[made.Topic(name=subject.name, count=5, assignments=None)],
                    timeout_ms=5000), 3, Operation.ALTER)


def create(subject: Subject, chance: Random) -> Ask:
    made = messages.CreateTopicsRequest
    return Ask(made(topics=[made.Topic(
        name=subject.name, num_partitions=1, replication_factor=-1, assignments=[], configs=[])],
        timeout_ms=5000), 7, Operation.CREATE)


MAKERS: tuple[Make, ...] = (
    list_all, describe_all, describe, describe_id, describe_partitions, fetch, fetch, fetch,
    produce, produce, delete, delete, delete, delete_records, list_offsets, end_of_epoch,
    describe_producers, describe_configs, alter_configs, widen, create,
)
"""What clients choose from."""
PROOFS: dict[Operation, Make] = {
    Operation.DESCRIBE: describe, Operation.READ: fetch, Operation.WRITE: produce,
    Operation.DESCRIBE_CONFIGS: describe_configs, Operation.ALTER_CONFIGS: alter_configs,
    Operation.DELETE: delete_records,
}
"""By operation, a request that a client with this right repeats at the end until it succeeds."""


def things_in(value: Any) -> Iterator[Any]:
    """All texts, ids and other bytes in a message, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from things_in(each)
    elif isinstance(value, (str, bytes)):
        yield value
    elif isinstance(value, memoryview):
        yield bytes(value)
    elif hasattr(type(value), "__slots__"):
        for name in type(value).__slots__:
            yield from things_in(getattr(value, name, None))


def item_codes(value: Any) -> Iterator[int]:
    """The error codes of the items of an answer: of its topics, partitions or resources."""
    for name in type(value).__slots__:
        inner = getattr(value, name, None)
        for each in inner if isinstance(inner, list) else ():
            if hasattr(type(each), "__slots__"):
                if hasattr(each, "error_code"):
                    yield each.error_code
                yield from item_codes(each)
