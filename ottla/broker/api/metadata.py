"""Metadata (key 3), DescribeCluster (60), DescribeTopicPartitions (75): who leads what.

A client learns every broker at the endpoint of the listener that it came through itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ottla.broker.context import BrokerContext, RequestContext
from ottla.broker.dispatch import handles
from ottla.broker.threads.slices import Slices
from ottla.broker.topic_creation import create_missing, is_internal
from ottla.replication.metadata import Endpoint, MetadataImage, PartitionState, TopicImage
from ottla.replication.topic_names import require_legal_name
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    InvalidTopic,
    ProtocolError,
)
from ottla.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

NO_ID = bytes(16)
NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
"""Bits of what a client may do (KIP-430), by the numbers of Kafka's AclOperation."""
BROKER_ENDPOINTS = 1


@handles(ApiKey.METADATA, versions=range(0, 14))
async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Tell brokers and topics; missing topics are created if client and broker allow it."""
    topics = request.topics
    try:
        _require_sense(request, context.version)
    except ProtocolError as error:
        return _refused(request, error)
    if topics is None or (context.version == 0 and not topics):
        view = _View(request, context)
        answers = await _all_topics(view)
        return _metadata_response(request, view, answers)
    ids = {topic.topic_id for topic in topics if topic.topic_id != NO_ID}
    if ids:
        # A request that gives ids is about these alone, as in Kafka.
        view = _View(request, context)
        return _metadata_response(request, view, [view.topic_by_id(each) for each in ids])
    names = dict.fromkeys(topic.name or "" for topic in topics)
    broker = context.broker
    # As in Kafka, the request that creates a topic is told that there is none yet: the next one
    # finds it. kafka-go's ReadPartitions of a deleted topic lives by that, for one.
    view = _View(request, context)
    if request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        await create_missing(broker, names)
    return _metadata_response(request, view, [view.topic_by_name(name) for name in names])


async def _all_topics(view: _View) -> list[MetadataResponse.Topic]:
    """What is told of every topic; with many thousands others are served meanwhile."""
    answers, slices = [], Slices()
    for topic in view.image.topics.values():
        answers.append(view.topic(topic))
        if slices.over:
            await slices.pause()
    return answers


def _require_sense(request: MetadataRequest, version: int) -> None:
    for topic in request.topics or ():
        if topic.topic_id != NO_ID and version < 12:
            raise InvalidRequest(f"version {version} of Metadata does not look topics up by id")
        if topic.name is None and (topic.topic_id == NO_ID or version < 12):
            raise InvalidRequest("a topic is asked for without a name")


def _refused(request: MetadataRequest, error: ProtocolError) -> MetadataResponse:
    """Below version 13 an error of the whole request is told in each topic."""
    return MetadataResponse(
        topics=[
            MetadataResponse.Topic(
                error_code=int(error.code), name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ],
        error_code=int(error.code),
    )


def _metadata_response(
    request: MetadataRequest, view: _View, topics: list[MetadataResponse.Topic]
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(
                node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for node_id, endpoint, rack in view.brokers
        ],
        cluster_id=view.image.cluster_id,
        controller_id=_controller_id(view.image),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _reachable(
    image: MetadataImage, listener: str
) -> Iterator[tuple[int, Endpoint, str | None]]:
    for node_id, broker in sorted(image.brokers.items()):
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield node_id, endpoint, broker.rack


def _controller_id(image: MetadataImage) -> int:
    """Any broker takes what is meant for the controller; a client wants one that is there."""
    if image.controller_id in image.brokers:
        return image.controller_id
    return min(image.brokers, default=-1)


class _View:
    """The image as one client sees it: over its listener, in its version.

    What is told of a topic stays the same until the topic or the brokers change, so it is built
    once: with ten thousand partitions that is most of the work.
    """

    def __init__(self, request: MetadataRequest, context: RequestContext) -> None:
        self.image = context.broker.image
        self.brokers = list(_reachable(self.image, context.listener))
        self.reachable = frozenset(node_id for node_id, _, _ in self.brokers)
        self.broker = context.broker
        self.version = context.version
        self.operations = (
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        )
        self.circumstances = (
            self.reachable, frozenset(self.image.brokers), self.version >= 6, self.operations,
            self.broker.replicas.offline,
        )
        if len(_told) > 2 * len(self.image.topics) + TOPICS_REMEMBERED_MIN:
            _told.clear()

    def topic(self, topic: TopicImage) -> MetadataResponse.Topic:
        """What is told of a topic that there is."""
        known = _told.get(topic.name)
        if known is not None and known[0] is topic and known[1] == self.circumstances:
            return known[2]
        answer = self._build(topic)
        _told[topic.name] = (topic, self.circumstances, answer)
        return answer

    def _build(self, topic: TopicImage) -> MetadataResponse.Topic:
        partition_class = MetadataResponse.Topic.Partition
        alive = _alive(topic, self.reachable, self.broker)
        return MetadataResponse.Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[
                partition_class(
                    error_code=_leader_error(
                        state, self.image, served, self.reachable, self.version
                    ),
                    partition_index=index,
                    leader_id=state.leader if state.leader in served else -1,
                    leader_epoch=state.leader_epoch,
                    replica_nodes=list(state.replicas),
                    isr_nodes=list(state.isr),
                    offline_replicas=[n for n in state.replicas if n not in served],
                )
                for index, (state, served) in enumerate(
                    zip(topic.partitions, alive, strict=True)
                )
            ],
            topic_authorized_operations=self.operations,
        )

    def topic_by_id(self, topic_id: bytes) -> MetadataResponse.Topic:
        """What is told of the topic of this id, or that there is none."""
        topic = self.image.topic_by_id(topic_id)
        if topic is not None:
            return self.topic(topic)
        return MetadataResponse.Topic(
            error_code=int(ErrorCode.UNKNOWN_TOPIC_ID), name=None, topic_id=topic_id
        )

    def topic_by_name(self, name: str) -> MetadataResponse.Topic:
        """What is told of the topic of this name, or why there is none."""
        topic = self.image.topics.get(name)
        if topic is not None:
            return self.topic(topic)
        return MetadataResponse.Topic(
            error_code=int(_why_unknown(name)),
            name=name,
            is_internal=is_internal(name),
            topic_authorized_operations=self.operations,
        )


TOPICS_REMEMBERED_MIN = 1000
_told: dict[str, tuple[TopicImage, object, MetadataResponse.Topic]] = {}
"""Answers by topic, each with the image and the circumstances that it is true in."""


def _why_unknown(name: str) -> ErrorCode:
    try:
        require_legal_name(name)
    except InvalidTopic as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _alive(
    topic: TopicImage, reachable: frozenset[int], broker: BrokerContext
) -> list[frozenset[int]]:
    """The brokers that serve each partition: not this one where the log directory has failed."""
    offline, others = broker.replicas.offline, reachable - {broker.node_id}
    if not offline:
        return [reachable] * len(topic.partitions)
    return [
        others if (topic.name, index) in offline else reachable
        for index in range(len(topic.partitions))
    ]


def _leader_error(
    state: PartitionState,
    image: MetadataImage,
    alive: Container[int],
    reachable: Container[int],
    version: int,
) -> int:
    if state.leader in alive:
        return 0
    if state.leader in image.brokers and state.leader not in reachable and version >= 6:
        return int(ErrorCode.LISTENER_NOT_FOUND)
    return int(ErrorCode.LEADER_NOT_AVAILABLE)


@handles(ApiKey.DESCRIBE_CLUSTER, versions=range(0, 3))
def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Tell the brokers alone (KIP-700)."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        known = request.endpoint_type == 2
        raise ProtocolError(
            "this is a broker: ask it for brokers, endpoint type 1",
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        )
    image = context.broker.image
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=_controller_id(image),
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for node_id, endpoint, rack in _reachable(image, context.listener)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=range(0, 1))
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Tell topics in the order of their names, page by page (KIP-966)."""
    image, cursor = context.broker.image, request.cursor
    asked = {topic.name for topic in request.topics}
    names = asked or image.topics.keys()
    if cursor is not None:
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            return _misplaced_cursor(request)
        names = {name for name in names if name >= cursor.topic_name}
    partitions_max = context.broker.config.max_request_partition_size_limit
    limit = min(max(request.response_partition_limit, 1), partitions_max)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        if limit == 0:
            response.next_cursor = _cursor(name, 0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponse.Topic(
                    error_code=int(_why_unknown(name)),
                    name=name,
                    is_internal=is_internal(name),
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        start = cursor.partition_index if cursor and name == cursor.topic_name else 0
        end = min(start + limit, len(topic.partitions))
        response.topics.append(_described(topic, range(start, end), context))
        limit -= max(end - start, 0)
        if end < len(topic.partitions):
            response.next_cursor = _cursor(name, end)
            break
    return response


def _misplaced_cursor(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """A cursor before partition 0, or at a topic that is not asked for: told in each topic."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponse.Topic(
                error_code=int(ErrorCode.INVALID_REQUEST), name=topic.name
            )
            for topic in request.topics
        ]
    )


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponse.NextCursor:
    return DescribeTopicPartitionsResponse.NextCursor(topic_name=name, partition_index=index)


def _described(
    topic: TopicImage, indexes: range, context: RequestContext
) -> DescribeTopicPartitionsResponse.Topic:
    image = context.broker.image
    reachable = frozenset(node_id for node_id, _, _ in _reachable(image, context.listener))
    alive = _alive(topic, reachable, context.broker)
    return DescribeTopicPartitionsResponse.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponse.Topic.Partition(
                error_code=_leader_error(state, image, served, reachable, 12),
                partition_index=index,
                leader_id=state.leader if state.leader in served else -1,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[n for n in state.replicas if n not in served],
            )
            for index, state, served in ((n, topic.partitions[n], alive[n]) for n in indexes)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
