"""Guards of APIs about topics and their records."""

from __future__ import annotations

from typing import Any

from ottla.broker.security.access import TOPIC_REFUSED, Access, split
from ottla.broker.security.decisions import Amend
from ottla.replication.controller.access import Operation
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.messages import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    OffsetForLeaderEpochResponse,
)

NEEDED = {
    ApiKey.LIST_OFFSETS: Operation.DESCRIBE,
    ApiKey.DELETE_RECORDS: Operation.DELETE,
    ApiKey.DESCRIBE_PRODUCERS: Operation.READ,
}
MESSAGE = "Topic authorization failed."


def guard_partitions(request: Any, access: Access) -> Amend | None:
    """Each partition of a refused topic has the refusal as its error."""
    operation = NEEDED[ApiKey(access.key)]
    request.topics, refused = split(
        request.topics, lambda topic: access.topic(operation, topic.name)
    )
    return add_refused(access.key, refused)


def add_refused(key: int, refused: list[Any], code: int = TOPIC_REFUSED) -> Amend | None:
    """Add an error for each partition of the topics to the topics of a response."""
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


def guard_epochs(request: Any, access: Access) -> Amend | None:
    """The same with other field names."""
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


def guard_create_topics(request: Any, access: Access) -> Amend | None:
    """CREATE on the cluster, or on the topic; settings are shown to those who may describe them."""
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


def guard_delete_topics(request: Any, access: Access) -> Amend | None:
    """DELETE; without DESCRIBE the name of a topic given by id is not revealed."""
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


