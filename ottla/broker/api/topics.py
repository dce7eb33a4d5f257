"""CreateTopics (key 19), DeleteTopics (20), CreatePartitions (37)."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import TOPIC_REFUSED, Access
from ottla.broker.security.decisions import asks_as_a_broker, by_item
from ottla.broker.settings.entries import topic_entries
from ottla.broker.threads.slices import Slices
from ottla.broker.topic_creation import new_topic_id, topic_defaults
from ottla.replication.controller.access import Operation
from ottla.replication.controller.topics import (
    NO_ID,
    MorePartitions,
    NewTopic,
    Permit,
    TopicAnswer,
    create_partitions,
    create_topics,
    delete_topics,
)
from ottla.replication.metadata import Decision, MetadataImage
from ottla.replication.steps import Steps
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError
from ottla.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

REFUSED = "Topic authorization failed."
AnyDecision = Decision[list[TopicAnswer]] | Steps[Decision[list[TopicAnswer]]]
Decide = Callable[[MetadataImage, Permit], AnyDecision]
STRICT_CREATE, STRICT_DELETE, STRICT_WIDEN = 6, 5, 3
"""The first versions whose clients know the error for an exceeded quota (KIP-599)."""


async def _decide(
    context: RequestContext,
    strict_since: int,
    decide: Decide,
    failed: Callable[[ProtocolError], list[TopicAnswer]],
) -> list[TopicAnswer]:
    """Decide within the client's quota for mutations; `failed` turns an error into the answers."""
    broker = context.broker
    quota = broker.quotas.mutations(context.client, context.version >= strict_since)

    def within_quota(image: MetadataImage) -> AnyDecision:
        if quota is None:
            return decide(image, lambda partitions: None)
        quota.begin()
        return decide(image, quota.take)

    answers = await broker.metadata_log.decide_each(failed, within_quota)
    if quota is not None:
        context.throttle(quota.throttle_ms)
    return answers


@handles(ApiKey.CREATE_TOPICS, access=by_item)
async def create_topics_api(
    request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create topics. The answer is sent when the topics can be used.

    Requires CREATE on the cluster or on each topic; brokers need CLUSTER_ACTION. The answer has a
    topic's settings if the client may describe them.
    """
    broker, access = context.broker, context.access
    # A broker sends this request to create an internal topic, or on behalf of a client. In the
    # second case, that broker has already checked the client's right to create the topic.
    everywhere = asks_as_a_broker(context) or access.cluster(Operation.CREATE)
    asked, refused = await access.divide(
        request.topics, lambda topic: everywhere or access.topic(Operation.CREATE, topic.name)
    )
    wanted = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(each.partition_index, tuple(each.broker_ids)) for each in topic.assignments],
            [(config.name, config.value) for config in topic.configs],
        )
        for topic in asked
    ]

    def create(image: MetadataImage, permit: Permit) -> AnyDecision:
        defaults = topic_defaults(broker, image)
        return create_topics.steps(
            image, wanted, defaults, new_topic_id, request.validate_only, permit
        )

    answers = await _decide(
        context, STRICT_CREATE, create,
        lambda error: [TopicAnswer(topic.name, error) for topic in wanted],
    )
    response, slices = CreateTopicsResponse(topics=[]), Slices()
    for answer in answers:
        response.topics.append(_created(answer, context, access))
        if slices.over:
            await slices.pause()
    made = CreateTopicsResponse.Topic
    response.topics += [
        made(name=each.name, error_code=TOPIC_REFUSED, error_message=REFUSED, configs=[])
        for each in refused
    ]
    return response


def _created(
    answer: TopicAnswer, context: RequestContext, access: Access
) -> CreateTopicsResponse.Topic:
    if answer.error is not None:
        return CreateTopicsResponse.Topic(
            name=answer.name or "",
            error_code=int(answer.error.code),
            error_message=answer.error.message or None,
            configs=[],
        )
    name = answer.name or ""
    if context.version >= 5 and not access.topic(Operation.DESCRIBE_CONFIGS, name):
        return CreateTopicsResponse.Topic(
            name=name,
            topic_id=answer.topic_id,
            topic_config_error_code=TOPIC_REFUSED,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
    return CreateTopicsResponse.Topic(
        name=name,
        topic_id=answer.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(answer.partitions),
        replication_factor=len(answer.partitions[0].replicas),
        configs=_configs(answer, context) if context.version >= 5 else [],
    )


def _configs(
    answer: TopicAnswer, context: RequestContext
) -> list[CreateTopicsResponse.Topic.Config]:
    """All effective settings of a new topic, its own and the inherited ones (KIP-525).

    Building them is most of the cost of a creation. For topics without settings of their own, they
    are cached until the broker's settings change.
    """
    broker, kept = context.broker, context.broker.kept
    layers = broker.config.layers(broker.image)
    if answer.configs:
        return _all_configs(answer, context)
    if kept.new_topic_configs is None or not all(
        map(operator.is_, kept.new_topic_configs[0], layers)
    ):
        kept.new_topic_configs = layers, _all_configs(answer, context)
    return kept.new_topic_configs[1]


def _all_configs(
    answer: TopicAnswer, context: RequestContext
) -> list[CreateTopicsResponse.Topic.Config]:
    return [
        CreateTopicsResponse.Topic.Config(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.sensitive,
        )
        for entry in topic_entries(context.broker, context.broker.image, answer.configs)
    ]


@handles(ApiKey.DELETE_TOPICS, access=by_item)
async def delete_topics_api(
    request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Delete topics by name, or by id from version 6 on.

    Requires DELETE on the cluster. Without it, requires DELETE on each topic, and DESCRIBE on
    topics that are given by name. If a topic is given by its id, the answer has its name only if
    the client may describe it.
    """
    access, made = context.access, DeleteTopicsResponse.Response
    named: list[tuple[str | None, bytes]]
    if context.version < 6:
        named = [(name, NO_ID) for name in request.topic_names]
    else:
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    everywhere = access.cluster(Operation.DELETE)

    def may_delete(name: str) -> bool:
        """Asked again in the decision: a topic that this broker does not know yet passes below."""
        return everywhere or access.topic(Operation.DELETE, name)

    wanted, refused = await access.divide(
        named, lambda each: everywhere or _may_delete(access, *each)
    )
    if not context.broker.config.delete_topic_enable:
        answers = [TopicAnswer(name, _disabled(context.version), i) for name, i in wanted]
    else:
        answers = await _decide(
            context, STRICT_DELETE, lambda image, permit: delete_topics(
                image, wanted, permit, may_delete),
            lambda error: [TopicAnswer(name, error, topic_id) for name, topic_id in wanted],
        )
    return DeleteTopicsResponse(
        responses=[
            made(
                name=answer.name,
                topic_id=answer.topic_id,
                error_code=0 if answer.error is None else int(answer.error.code),
                error_message=None if answer.error is None else answer.error.message or None,
            )
            for answer in answers
        ] + [
            made(
                name=_shown(access, name, topic_id), topic_id=topic_id, error_code=TOPIC_REFUSED
            )
            for name, topic_id in refused
        ]
    )


def _may_delete(access: Access, name: str | None, topic_id: bytes) -> bool:
    """Whether the client may delete a topic. A name requires DESCRIBE and, if the topic exists,
    DELETE. An id requires only DELETE, as in Kafka: the answer reveals nothing to a client that
    knows the id. Unknown ids pass."""
    if not name:
        deleted = access.name_of(topic_id)
        return deleted is None or access.topic(Operation.DELETE, deleted)
    return access.topic(Operation.DESCRIBE, name) and (
        name not in access.image.topics or access.topic(Operation.DELETE, name)
    )


def _shown(access: Access, name: str | None, topic_id: bytes) -> str | None:
    shown = name or access.name_of(topic_id)
    return shown if shown and access.topic(Operation.DESCRIBE, shown) else name


def _disabled(version: int) -> ProtocolError:
    if version < 3:
        return InvalidRequest("Topic deletion is disabled.")
    return ProtocolError("Topic deletion is disabled.", ErrorCode.TOPIC_DELETION_DISABLED)


@handles(ApiKey.CREATE_PARTITIONS, access=by_item)
async def create_partitions_api(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to topics. The answer is sent when the partitions can be used.

    Requires ALTER on each topic.
    """
    access, made = context.access, CreatePartitionsResponse.Result
    asked, refused = await access.divide(
        request.topics, lambda topic: access.topic(Operation.ALTER, topic.name)
    )
    wanted = [
        MorePartitions(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else [tuple(each.broker_ids) for each in topic.assignments],
        )
        for topic in asked
    ]
    answers = await _decide(
        context, STRICT_WIDEN,
        lambda image, permit: create_partitions(image, wanted, request.validate_only, permit),
        lambda error: [TopicAnswer(topic.name, error) for topic in wanted],
    )
    return CreatePartitionsResponse(
        results=[
            made(
                name=answer.name or "",
                error_code=0 if answer.error is None else int(answer.error.code),
                error_message=None if answer.error is None else answer.error.message or None,
            )
            for answer in answers
        ] + [
            made(name=each.name, error_code=TOPIC_REFUSED, error_message=REFUSED)
            for each in refused
        ]
    )
