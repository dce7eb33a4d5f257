"""Metadata (key 3), DescribeCluster (60), DescribeTopicPartitions (75): brokers and leaders.

A client gets every broker's endpoint for the listener that the client is connected to.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from ottla.broker.context import BrokerContext
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import TOPIC_REFUSED, Access
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.broker.topic_creation import create_missing, is_internal
from ottla.replication.controller.access import CLUSTER_NAME, Operation, Resource
from ottla.replication.metadata import (
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionState,
    TopicImage,
)
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
TOPIC_OPERATIONS = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
)
BROKER_ENDPOINTS = 1
FENCED_SINCE = 2


@handles(ApiKey.METADATA, access=by_item)
async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Report brokers and topics; create missing topics if client and broker allow it."""
    topics, access = request.topics, context.access
    try:
        _require_sense(request, context.version)
    except ProtocolError as error:
        return _refused(request, error)
    if topics is None or (context.version == 0 and not topics):
        view = _View(request, context, access)
        answers = await _all_topics(view)
        return _metadata_response(request, view, answers)
    broker = context.broker
    creates = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    asked, refused = await access.divide(
        topics, lambda topic: _may_ask(access, creates, topic)
    )
    refusals = [_refusal(each, context.version) for each in refused]
    if any(topic.topic_id != NO_ID for topic in topics):
        # As in Kafka, topics requested by name are left out if others are requested by id.
        view = _View(request, context, access)
        ids = {topic.topic_id for topic in asked if topic.topic_id != NO_ID}
        await view.prepare(map(view.image.topic_by_id, ids))
        answers = [view.topic_by_id(each) for each in ids]
        return _metadata_response(request, view, answers + refusals)
    names = dict.fromkeys(topic.name or "" for topic in asked)
    # As in Kafka, the request that creates a topic gets an error, and the next request finds the
    # topic. For instance kafka-go's ReadPartitions of a deleted topic relies on this error.
    view = _View(request, context, access)
    if creates:
        await create_missing(broker, names, context.client)
    await view.prepare(map(view.image.topics.get, names))
    answers = [view.topic_by_name(name) for name in names]
    return _metadata_response(request, view, answers + refusals)


def _may_ask(access: Access, creates: bool, topic: MetadataRequest.Topic) -> bool:
    """Whether the client has DESCRIBE on the topic and, if the request would create it, CREATE on
    the cluster or the topic."""
    if not access.topic_item(Operation.DESCRIBE, topic):
        return False
    name = topic.name
    if not creates or not name or name in access.image.topics:
        return True
    return access.quiet.cluster(Operation.CREATE) or access.topic(Operation.CREATE, name)


def _refusal(topic: MetadataRequest.Topic, version: int) -> MetadataResponse.Topic:
    """An authorization error. It does not reveal the name of a topic that was given by its id."""
    answer = MetadataResponse.Topic(error_code=TOPIC_REFUSED, name=topic.name or "", partitions=[])
    if version >= 10 and not topic.name:
        answer.topic_id = topic.topic_id
        answer.name = None if version >= 12 else ""
    return answer


async def _all_topics(view: _View) -> list[MetadataResponse.Topic]:
    """The entries of all topics that the client may describe, built in slices."""
    answers, slices = [], Slices()
    await view.prepare(view.image.topics.values())
    access = view.access.quiet
    for topic in view.image.topics.values():
        if access.topic(Operation.DESCRIBE, topic.name):
            answers.append(view.topic(topic))
        if slices.over:
            await slices.pause()
    return answers


def _require_sense(request: MetadataRequest, version: int) -> None:
    for topic in request.topics or ():
        if topic.topic_id != NO_ID and version < 12:
            raise InvalidRequest(f"version {version} of Metadata does not support topic ids")
        if topic.name is None and (topic.topic_id == NO_ID or version < 12):
            raise InvalidRequest("a topic is requested without a name")


def _refused(request: MetadataRequest, error: ProtocolError) -> MetadataResponse:
    """Refuse the whole request. Below version 13 only the topics have an error code."""
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
        brokers=view.brokers.answers,
        cluster_id=view.image.cluster_id,
        controller_id=_controller_id(view.image, view.reachable),
        topics=topics,
        cluster_authorized_operations=_cluster_operations(
            view.access, request.include_cluster_authorized_operations
        ),
    )


def _cluster_operations(access: Access, asked: bool) -> int:
    """The operations that the client may perform on the cluster, as bits, if it asked for them
    (KIP-430); 0 if the client may not describe the cluster."""
    if not asked:
        return NOT_ASKED
    if not access.quiet.cluster(Operation.DESCRIBE):
        return 0
    of = CLUSTER_OPERATIONS
    return access.operations(Resource.CLUSTER, CLUSTER_NAME, of)


def _reachable(
    brokers: Mapping[int, BrokerImage], listener: str
) -> Iterator[tuple[int, Endpoint, str | None]]:
    for node_id, broker in sorted(brokers.items()):
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield node_id, endpoint, broker.rack


class _Brokers:
    """The brokers as the clients of one listener see them. All clients share the answers, which are
    never modified. The answers also list departed brokers for a while; these lead no partitions."""

    def __init__(
        self, registered: Mapping[int, BrokerImage], departed: Mapping[int, BrokerImage],
        listener: str,
    ) -> None:
        self.registered, self.departed = registered, departed
        self.node_ids = frozenset(registered)
        self.reachable = frozenset(node_id for node_id, _, _ in _reachable(registered, listener))
        self.answers = [
            MetadataResponse.Broker(
                node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for node_id, endpoint, rack in _reachable({**departed, **registered}, listener)
        ]


def _brokers_of(broker: BrokerContext, image: MetadataImage, listener: str) -> _Brokers:
    """The brokers for a listener. The object stays the same until a broker registers, leaves, or is
    no longer listed."""
    departed = broker.departed.listed(image)
    known = _seen.get(listener)
    if (known is None or known.registered is not image.brokers
            or known.departed is not departed):
        known = _seen[listener] = _Brokers(image.brokers, departed, listener)
    return known


_seen: dict[str, _Brokers] = {}
"""The brokers for each listener."""


def _controller_id(image: MetadataImage, reachable: Collection[int]) -> int:
    """The controller if the client can reach it, else another broker that the client can reach:
    every broker accepts requests for the controller. `reachable` are the live brokers that have
    the client's listener."""
    if image.controller_id in reachable:
        return image.controller_id
    return min(reachable, default=-1)


class _View:
    """The image as one client sees it, for the client's listener and version of Metadata.

    The entry of a topic stays the same until the topic or the brokers change, so it is cached. With
    ten thousand partitions, building entries would be most of the work.
    """

    def __init__(
        self, request: MetadataRequest, context: RequestContext, access: Access
    ) -> None:
        self.access = access
        self.image = context.broker.image
        self.brokers = _brokers_of(context.broker, self.image, context.client.listener)
        self.reachable = self.brokers.reachable
        self.broker = context.broker
        self.version = context.version
        self.tells_operations = request.include_topic_authorized_operations
        self.circumstances = (
            self.reachable, self.brokers.node_ids, self.version >= 6, self.version == 0,
            self.broker.replicas.offline,
        )
        self.kept = context.broker.kept.topics
        if len(self.kept) > 2 * len(self.image.topics) + TOPICS_REMEMBERED_MIN:
            self.kept.clear()

    def topic(self, topic: TopicImage) -> MetadataResponse.Topic:
        """The entry of an existing topic."""
        return self._known(topic) or self._keep(
            topic, self._partitions(topic, range(len(topic.partitions)))
        )

    async def prepare(self, topics: Iterable[TopicImage | None]) -> None:
        """Build the entries of large topics in slices; `topic` then finds them in the cache."""
        slices = Slices()
        async for topic in slices.each(topics):
            if topic is None or len(topic.partitions) <= LARGE_TOPIC or self._known(topic):
                continue
            made: list[MetadataResponse.Topic.Partition] = []
            for at in range(0, len(topic.partitions), LARGE_TOPIC):
                if slices.over:
                    await slices.pause()
                end = min(at + LARGE_TOPIC, len(topic.partitions))
                made += self._partitions(topic, range(at, end))
            self._keep(topic, made)

    def _known(self, topic: TopicImage) -> MetadataResponse.Topic | None:
        known = self.kept.get(topic.name)
        circumstances = (*self.circumstances, self.operations(topic.name))
        if known is not None and known[0] is topic and known[1] == circumstances:
            return known[2]
        return None

    def _keep(
        self, topic: TopicImage, partitions: list[MetadataResponse.Topic.Partition]
    ) -> MetadataResponse.Topic:
        operations = self.operations(topic.name)
        answer = MetadataResponse.Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=partitions,
            topic_authorized_operations=operations,
        )
        self.kept[topic.name] = (topic, (*self.circumstances, operations), answer)
        return answer

    def operations(self, name: str) -> int:
        """The client's allowed operations on a topic as bits, if it asked for them (KIP-430)."""
        if not self.tells_operations:
            return NOT_ASKED
        return self.access.operations(Resource.TOPIC, name, TOPIC_OPERATIONS)

    def _partitions(
        self, topic: TopicImage, indexes: range
    ) -> list[MetadataResponse.Topic.Partition]:
        partition_class = MetadataResponse.Topic.Partition
        alive = _alive(topic, self.reachable, self.broker)[indexes.start : indexes.stop]
        states = topic.partitions[indexes.start : indexes.stop]
        told = self._reachable_only if self.version == 0 else list
        return [
            partition_class(
                error_code=0 if self.version and state.leader in served else _leader_error(
                    state, self.image, served, self.reachable, self.version),
                partition_index=index,
                leader_id=state.leader if state.leader in served else -1,
                leader_epoch=self.image.leader_epoch(topic, state),
                replica_nodes=told(state.replicas),
                isr_nodes=told(state.isr),
                offline_replicas=[] if served.issuperset(state.replicas) else [
                    n for n in state.replicas if n not in served],
            )
            for index, state, served in zip(indexes, states, alive, strict=True)
        ]

    def _reachable_only(self, nodes: Iterable[int]) -> list[int]:
        return [node for node in nodes if node in self.reachable]

    def topic_by_id(self, topic_id: bytes) -> MetadataResponse.Topic:
        """The entry of the topic with this id, or an error if there is none."""
        topic = self.image.topic_by_id(topic_id)
        if topic is not None:
            return self.topic(topic)
        return MetadataResponse.Topic(
            error_code=int(ErrorCode.UNKNOWN_TOPIC_ID), name=None, topic_id=topic_id
        )

    def topic_by_name(self, name: str) -> MetadataResponse.Topic:
        """The entry of the topic with this name, or an error if there is none."""
        topic = self.image.topics.get(name)
        if topic is not None:
            return self.topic(topic)
        return MetadataResponse.Topic(
            error_code=int(_why_unknown(name)),
            name=name,
            is_internal=is_internal(name),
            topic_authorized_operations=self.operations(name),
        )


LARGE_TOPIC = 500
"""How many partition entries are built at a time, which takes about a millisecond."""
TOPICS_REMEMBERED_MIN = 1000


def _why_unknown(name: str) -> ErrorCode:
    try:
        require_legal_name(name)
    except InvalidTopic as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _alive(
    topic: TopicImage, reachable: frozenset[int], broker: BrokerContext
) -> list[frozenset[int]]:
    """For each partition, the reachable brokers where its log directory has not failed."""
    offline, others = broker.replicas.offline, reachable - {broker.node_id}
    return [
        (others if offline and (topic.name, index) in offline else reachable)
        - (frozenset(state.extra.offline) if state.extra and state.extra.offline else frozenset())
        if offline or state.extra else reachable
        for index, state in enumerate(topic.partitions)
    ]


def _leader_error(
    state: PartitionState,
    image: MetadataImage,
    alive: Container[int],
    reachable: Container[int],
    version: int,
) -> int:
    if state.leader in alive:
        if version == 0 and not all(node in reachable for node in (*state.replicas, *state.isr)):
            # The Scala clients of 0.8 fail if a replica is not among the answer's brokers. Such
            # replicas are left out and reported with this code, as in Apache Kafka until 3.9.
            return int(ErrorCode.REPLICA_NOT_AVAILABLE)
        return 0
    if state.leader in image.brokers and state.leader not in reachable and version >= 6:
        return int(ErrorCode.LISTENER_NOT_FOUND)
    return int(ErrorCode.LEADER_NOT_AVAILABLE)


@handles(ApiKey.DESCRIBE_CLUSTER, access=by_item)
def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Report the brokers, without topics (KIP-700)."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        known = request.endpoint_type == 2
        raise ProtocolError(
            f"unsupported endpoint type {request.endpoint_type}: a broker only describes brokers"
            " (endpoint type 1)",
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        )
    image, listener = context.broker.image, context.client.listener
    made = DescribeClusterResponse.Broker
    reachable = list(_reachable(image.brokers, listener))
    brokers = [
        made(broker_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for node_id, endpoint, rack in reachable
    ]
    if context.version >= FENCED_SINCE and request.include_fenced_brokers:
        # Brokers that have stopped and are not unregistered yet; Kafka calls them fenced.
        brokers += [
            made(broker_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack,
                 is_fenced=True)
            for node_id, endpoint, rack in _reachable(image.former, listener)
        ]
        brokers.sort(key=lambda broker: broker.broker_id)
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=_controller_id(image, {node_id for node_id, _, _ in reachable}),
        brokers=brokers,
        cluster_authorized_operations=_cluster_operations(
            context.access, request.include_cluster_authorized_operations
        ),
    )


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, access=by_item)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Report topics in the order of their names, page by page (KIP-966)."""
    image, cursor, access = context.broker.image, request.cursor, context.access
    asked, refused = await access.divide(
        [topic.name for topic in request.topics],
        lambda name: access.topic(Operation.DESCRIBE, name),
    )
    names = set(asked)
    if not request.topics:
        seen = access.quiet
        names = {name for name in image.topics if seen.topic(Operation.DESCRIBE, name)}
    if cursor is not None and (not refused or asked):
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            return _told_of_all(asked, ErrorCode.INVALID_REQUEST, refused)
        names = {name for name in names if name >= cursor.topic_name}
    partitions_max = context.broker.config.max_request_partition_size_limit
    limit = min(max(request.response_partition_limit, 1), partitions_max)
    response, slices = DescribeTopicPartitionsResponse(), Slices()
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
                    topic_authorized_operations=_topic_operations(access, name),
                )
            )
            continue
        start = cursor.partition_index if cursor and name == cursor.topic_name else 0
        end = min(start + limit, len(topic.partitions))
        response.topics.append(await _described(topic, range(start, end), context, slices))
        limit -= max(end - start, 0)
        if end < len(topic.partitions):
            response.next_cursor = _cursor(name, end)
            break
    response.topics += _told_of_all([], ErrorCode.NONE, refused).topics
    return response


def _told_of_all(
    names: list[str], code: ErrorCode, refused: list[str]
) -> DescribeTopicPartitionsResponse:
    """Return an entry with the error `code` for each topic in `names`, and an entry with an
    authorization error for each topic in `refused`."""
    made = DescribeTopicPartitionsResponse.Topic
    errors = [made(error_code=int(code), name=name) for name in names]
    errors += [made(error_code=TOPIC_REFUSED, name=name, partitions=[]) for name in refused]
    return DescribeTopicPartitionsResponse(topics=errors)


def _topic_operations(access: Access, name: str) -> int:
    return access.operations(Resource.TOPIC, name, TOPIC_OPERATIONS)


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponse.NextCursor:
    return DescribeTopicPartitionsResponse.NextCursor(topic_name=name, partition_index=index)


async def _described(
    topic: TopicImage, indexes: range, context: RequestContext, slices: Slices
) -> DescribeTopicPartitionsResponse.Topic:
    image = context.broker.image
    brokers = _reachable(image.brokers, context.client.listener)
    reachable = frozenset(node_id for node_id, _, _ in brokers)
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
                leader_epoch=image.leader_epoch(topic, state),
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.extra.elr if state.extra else ()),
                last_known_elr=list(state.extra.last_elr if state.extra else ()),
                offline_replicas=[n for n in state.replicas if n not in served],
            )
            async for index, state, served in slices.each(
                (n, topic.partitions[n], alive[n]) for n in indexes
            )
        ],
        topic_authorized_operations=_topic_operations(context.access, topic.name),
    )
