"""FindCoordinator (key 10): which broker coordinates a group or a transactional id."""

from __future__ import annotations

import re

from ottla.broker.context import BrokerContext
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    TRANSACTION_REFUSED,
    Access,
)
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.broker.topic_creation import create_missing, lacking_brokers
from ottla.groups.routing import OFFSETS_TOPIC, TRANSACTION_TOPIC, partition_for
from ottla.replication.controller.access import Operation
from ottla.replication.metadata import Endpoint
from ottla.wire.apis import ApiKey
from ottla.wire.errors import CoordinatorNotAvailable, ErrorCode, InvalidRequest, ProtocolError
from ottla.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:[0-9]+")
NO_ERROR = "NONE"
"""The message that Apache Kafka sends below version 4 if there is no error."""
TOPIC_OF_TYPE = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC}
"""For each type of key, the internal topic whose partition leaders are the coordinators."""


REFUSAL_OF_TYPE = {GROUP: GROUP_REFUSED, TRANSACTION: TRANSACTION_REFUSED}


def _may_find(key_type: int, key: str, access: Access) -> bool:
    """Whether the client has DESCRIBE on the group or transactional id. Other key types require
    CLUSTER_ACTION."""
    if key_type == GROUP:
        return access.group(Operation.DESCRIBE, key)
    if key_type == TRANSACTION:
        return access.transaction(Operation.DESCRIBE, key)
    return access.cluster(Operation.CLUSTER_ACTION)


@handles(ApiKey.FIND_COORDINATOR, access=by_item)
async def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Answer for one key or, from version 4 on, for several keys (KIP-699)."""
    kind, access = request.key_type if context.version >= 1 else GROUP, context.access
    code = REFUSAL_OF_TYPE.get(kind, CLUSTER_REFUSED)
    if context.version < 4 and not _may_find(kind, request.key, access):
        raise ProtocolError("Authorization failed.", ErrorCode(code))
    asked, refused = await access.divide(
        request.coordinator_keys, lambda key: _may_find(kind, key, access)
    )
    topic = TOPIC_OF_TYPE.get(kind)
    if topic is not None and topic not in context.broker.image.topics:
        await create_missing(context.broker, [topic])
    if context.version < 4:
        one = _answer(kind, request.key, context)
        return FindCoordinatorResponse(
            error_code=one.error_code, error_message=one.error_message,
            node_id=one.node_id, host=one.host, port=one.port,
        )
    made = FindCoordinatorResponse.Coordinator
    coordinators = [_answer(kind, key, context) async for key in Slices().each(asked)]
    coordinators += [
        made(key=key, node_id=-1, host="", port=-1, error_code=code) for key in refused
    ]
    return FindCoordinatorResponse(coordinators=coordinators)


def _answer(
    key_type: int, key: str, context: RequestContext
) -> FindCoordinatorResponse.Coordinator:
    answer = FindCoordinatorResponse.Coordinator(key=key, node_id=-1, host="", port=-1)
    if context.version < 4:
        answer.error_message = NO_ERROR
    try:
        answer.node_id, endpoint = _find(key_type, key, context)
        answer.host, answer.port = endpoint.host, endpoint.port
    except ProtocolError as error:
        answer.error_code, answer.error_message = int(error.code), error.message
    return answer


def _find(key_type: int, key: str, context: RequestContext) -> tuple[int, Endpoint]:
    """The coordinator's node id, and its endpoint on the client's listener."""
    if key_type not in (GROUP, TRANSACTION, SHARE):
        raise InvalidRequest(f"coordinator type {key_type} is unknown")
    if key_type == SHARE and not SHARE_KEY.fullmatch(key):
        raise InvalidRequest(
            f"{key!r} is not a valid key for a share group: the form is group:topic id:partition")
    broker: BrokerContext = context.broker
    name = TOPIC_OF_TYPE.get(key_type, "")
    topic = broker.image.topics.get(name)
    if topic is None:
        why = lacking_brokers(broker, name) if name else ""
        raise CoordinatorNotAvailable(f"{key!r} has no coordinator yet{why}; retry")
    index = partition_for(key, len(topic.partitions))
    leader = topic.partitions[index].leader
    if leader == broker.node_id and (topic.name, index) in broker.replicas.offline:
        raise CoordinatorNotAvailable(f"{topic.name}-{index} is in a log directory that has failed")
    node = broker.image.brokers.get(leader)
    endpoint = None if node is None else node.endpoint(context.client.listener)
    if endpoint is None:
        raise CoordinatorNotAvailable(f"the coordinator of {key!r} is not available; retry")
    return leader, endpoint
