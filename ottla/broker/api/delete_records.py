"""DeleteRecords (key 21): deletes the records below an offset by moving the log start."""

from __future__ import annotations

from ottla.broker.api.named import merged
from ottla.broker.api.refusals import refused_topics
from ottla.broker.context import RequestContext
from ottla.broker.dispatch import handles
from ottla.broker.security.access import TOPIC_REFUSED
from ottla.broker.security.decisions import by_item
from ottla.broker.topic_creation import is_internal
from ottla.replication.controller.access import Operation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidTopic,
    OffsetOutOfRange,
    ProtocolError,
)
from ottla.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS, versions=range(0, 3), access=by_item)
async def delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Move log starts (KIP-107); the next round of retention deletes whole segments below.

    The answer is sent once the log starts are durable: deleted records do not return. In Apache
    Kafka they do, after a crash within a minute. DELETE of each topic.
    """
    access = context.access
    asked, refused = access.split(
        request.topics, lambda topic: access.topic(Operation.DELETE, topic.name)
    )
    response = DeleteRecordsResponse(topics=[])
    for name, items in merged(asked).items():
        once = {item.partition_index: item for item in items}       # the last one wins
        partitions = [_delete_below(name, item, context) for item in once.values()]
        response.topics.append(DeleteRecordsResponse.Topic(name=name, partitions=partitions))
    moved = [
        (topic.name, answer)
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code == 0
    ]
    unsafe = await context.broker.checkpoints.log_starts(
        {(topic, answer.partition_index) for topic, answer in moved}
    )
    for topic, answer in moved:
        if (topic, answer.partition_index) in unsafe:
            answer.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            answer.low_watermark = NO_LOW_WATERMARK
    response.topics += refused_topics(DeleteRecordsResponse.Topic, refused, TOPIC_REFUSED)
    return response


def _delete_below(
    topic: str, item: DeleteRecordsRequest.Topic.Partition, context: RequestContext
) -> DeleteRecordsResponse.Topic.Partition:
    answer = DeleteRecordsResponse.Topic.Partition(
        partition_index=item.partition_index, low_watermark=NO_LOW_WATERMARK
    )
    try:
        answer.low_watermark = _move_start(topic, item.partition_index, item.offset, context)
    except ProtocolError as error:
        answer.error_code = int(error.code)
    return answer


def _move_start(topic: str, index: int, offset: int, context: RequestContext) -> int:
    """The resulting log start offset: a request for a lower offset changes nothing."""
    broker = context.broker
    if is_internal(topic):
        raise InvalidTopic(f"{topic} is an internal topic; its records cannot be deleted")
    partition = broker.replicas.partition(topic, index)
    if partition is None:
        raise broker.replicas.absent(topic, index)
    partition.require_leader()
    if not partition.log.config.deletes:
        raise ProtocolError(
            f"cleanup.policy of {topic} does not contain delete", ErrorCode.POLICY_VIOLATION
        )
    end = partition.high_watermark
    if offset == HIGH_WATERMARK:
        offset = end
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(f"{partition!r} can be deleted up to {end}, not up to {offset}")
    if offset > partition.log.log_start_offset:
        partition.log.delete_before(offset)
        partition.wake()
    return partition.log.log_start_offset
