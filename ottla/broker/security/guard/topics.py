"""Guards of what is about topics and their records."""

from __future__ import annotations

from typing import Any

from ottla.broker.security.guard.access import TOPIC_REFUSED, Access, Amend, Answered, guards, split
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.messages import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeTopicPartitionsResponse,
    MetadataResponse,
    OffsetForLeaderEpochResponse,
)

TOPIC_OPERATIONS = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS,
)
NOT_ASKED = -(1 << 31)
NEEDED = {
    ApiKey.LIST_OFFSETS: Operation.DESCRIBE,
    ApiKey.DELETE_RECORDS: Operation.DELETE,
    ApiKey.DESCRIBE_PRODUCERS: Operation.READ,
}
MESSAGE = "Topic authorization failed."


@guards(ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_PRODUCERS)
def guard_partitions(request: Any, access: Access) -> Amend | None:
    """Each partition of a topic that is refused has the refusal as its error."""
    operation = NEEDED[ApiKey(access.key)]
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(operation, topic.name)
    )
    return add_refused(access.key, refused)


def add_refused(key: int, refused: list[Any], code: int = TOPIC_REFUSED) -> Amend | None:
    """Put an error for each partition of topics into a response's topics."""
    if not refused:
        return None
    made: Any = APIS[key].response

    def amend(response: Any) -> None:
        response.topics = [*response.topics, *(refusal(made.Topic, each, code) for each in refused)]

    return amend


def refusal(made: Any, topic: Any, code: int) -> Any:
    """A topic of a response with this error for each of its partitions."""
    indexes = getattr(topic, "partition_indexes", None)
    if indexes is None:
        indexes = [each.partition_index for each in topic.partitions]
    answer = made(
        partitions=[made.Partition(partition_index=index, error_code=code) for index in indexes]
    )
    for name in ("name", "topic_id"):
        if hasattr(topic, name) and hasattr(answer, name):
            setattr(answer, name, getattr(topic, name))
    return answer


@guards(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def guard_epochs(request: Any, access: Access) -> Amend | None:
    """As above, under other names."""
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(Operation.DESCRIBE, topic.topic)
    )
    made = OffsetForLeaderEpochResponse.Topic

    def amend(response: OffsetForLeaderEpochResponse) -> None:
        response.topics = [
            *response.topics,
            *(
                made(
                    topic=topic.topic,
                    partitions=[
                        made.Partition(partition=each.partition, error_code=TOPIC_REFUSED)
                        for each in topic.partitions
                    ],
                )
                for topic in refused
            ),
        ]

    return amend if refused else None


@guards(ApiKey.METADATA)
def guard_metadata(request: Any, access: Access) -> Amend:
    """What one may not describe is refused where it was named, and left out of all topics; to
    create a topic by asking for it needs CREATE."""
    refused: list[Any] = []
    everything = not request.topics if access.version == 0 else request.topics is None
    if not everything:
        request.topics, refused = split(
            request.topics, lambda topic: _may_ask(access, request, topic)
        )
    nothing = access.version == 0 and not everything and not request.topics
    if nothing:
        # An empty list would ask for all of them; no topic is called like this.
        request.topics = [type(refused[0])(name=".")]
    asked_operations = access.version >= 8 and request.include_topic_authorized_operations
    asked_cluster = 8 <= access.version <= 10 and request.include_cluster_authorized_operations

    def amend(response: MetadataResponse) -> None:
        if everything:
            response.topics = [
                each
                for each in response.topics
                if access.topic(Operation.DESCRIBE, each.name or "")
            ]
        if nothing:
            response.topics = []
        for each in response.topics:
            if asked_operations and each.name:
                each.topic_authorized_operations = access.operations(
                    Resource.TOPIC, each.name, TOPIC_OPERATIONS
                )
        response.topics = [*response.topics, *(_unnamed(each, access) for each in refused)]
        if asked_cluster:
            response.cluster_authorized_operations = _cluster_operations(access)

    return amend


def _may_ask(access: Access, request: Any, topic: Any) -> bool:
    if not access.topic_item(Operation.DESCRIBE, topic):
        return False
    name = topic.name
    if not name or name in access.image.topics:
        return True
    if access.version >= 4 and not request.allow_auto_topic_creation:
        return True
    return access.cluster(Operation.CREATE) or access.topic(Operation.CREATE, name)


def _unnamed(topic: Any, access: Access) -> MetadataResponse.Topic:
    """A refusal; of a topic that was given by its id it does not tell the name."""
    answer = MetadataResponse.Topic(error_code=TOPIC_REFUSED, name=topic.name or "", partitions=[])
    if access.version >= 10 and not topic.name:
        answer.topic_id = topic.topic_id
        answer.name = None if access.version >= 12 else ""
    return answer


def _cluster_operations(access: Access) -> int:
    return access.operations(Resource.CLUSTER, "kafka-cluster", CLUSTER_OPERATIONS)


@guards(ApiKey.DESCRIBE_CLUSTER)
def guard_cluster(request: Any, access: Access) -> Amend:
    """Anybody may know where the brokers are; the bits are those of who asks."""

    def amend(response: Any) -> None:
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = _cluster_operations(access)

    return amend


@guards(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def guard_topic_partitions(request: Any, access: Access) -> Amend:
    """As Metadata, which has a cursor here."""
    everything = not request.topics
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(Operation.DESCRIBE, topic.name)
    )
    refusals = [
        DescribeTopicPartitionsResponse.Topic(
            error_code=TOPIC_REFUSED, name=each.name, partitions=[]
        )
        for each in refused
    ]
    if refused and not request.topics:
        raise Answered(DescribeTopicPartitionsResponse(topics=refusals))

    def amend(response: Any) -> None:
        response.topics = [
            each
            for each in response.topics
            if not everything or access.topic(Operation.DESCRIBE, each.name or "")
        ]
        for each in response.topics:
            if each.name:
                each.topic_authorized_operations = access.operations(
                    Resource.TOPIC, each.name, TOPIC_OPERATIONS
                )
        response.topics = [*response.topics, *refusals]

    return amend


@guards(ApiKey.CREATE_TOPICS)
def guard_create_topics(request: Any, access: Access) -> Amend | None:
    """CREATE on the cluster, or on the topic; settings are told to who may describe them."""
    everywhere = access.cluster(Operation.CREATE)
    request.topics, refused = split(
        request.topics, lambda topic: everywhere or access.topic(Operation.CREATE, topic.name)
    )

    def amend(response: CreateTopicsResponse) -> None:
        for each in response.topics:
            if access.version >= 5 and not each.error_code:
                _hide_configs(each, access)
        response.topics = [
            *response.topics,
            *(
                CreateTopicsResponse.Topic(
                    name=each.name, error_code=TOPIC_REFUSED, error_message=MESSAGE, configs=[]
                )
                for each in refused
            ),
        ]

    return amend


def _hide_configs(topic: CreateTopicsResponse.Topic, access: Access) -> None:
    if not access.topic(Operation.DESCRIBE_CONFIGS, topic.name):
        topic.configs, topic.num_partitions, topic.replication_factor = [], -1, -1
        topic.topic_config_error_code = TOPIC_REFUSED


@guards(ApiKey.DELETE_TOPICS)
def guard_delete_topics(request: Any, access: Access) -> Amend | None:
    """DELETE; who may not describe a topic is not told its name by its id."""
    made = DeleteTopicsResponse.Response
    if access.version < 6:
        request.topic_names, names = split(
            request.topic_names, lambda name: access.topic(Operation.DELETE, name)
        )
        refusals = [made(name=each, error_code=TOPIC_REFUSED) for each in names]
    else:
        request.topics, refused = split(
            request.topics, lambda topic: access.topic_item(Operation.DELETE, topic)
        )
        refusals = [
            made(name=each.name, topic_id=each.topic_id, error_code=TOPIC_REFUSED)
            for each in refused
        ]

    def amend(response: DeleteTopicsResponse) -> None:
        response.responses = [*response.responses, *refusals]

    return amend if refusals else None


@guards(ApiKey.CREATE_PARTITIONS)
def guard_create_partitions(request: Any, access: Access) -> Amend | None:
    """ALTER of the topic."""
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(Operation.ALTER, topic.name)
    )

    def amend(response: CreatePartitionsResponse) -> None:
        response.results = [
            *response.results,
            *(
                CreatePartitionsResponse.Result(
                    name=each.name, error_code=TOPIC_REFUSED, error_message=MESSAGE
                )
                for each in refused
            ),
        ]

    return amend if refused else None


