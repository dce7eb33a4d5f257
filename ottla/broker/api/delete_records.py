"""DeleteRecords (key 21): deletes the records below an offset by moving the log start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.broker.api.refusals import refused_topics
from ottla.broker.api.requested_topics import merged_topics
from ottla.broker.context import BrokerContext
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import TOPIC_REFUSED
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.broker.topic_creation import is_internal
from ottla.replication.controller.access import Operation
from ottla.replication.partition import Partition
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

Waiting = tuple[Partition, DeleteRecordsResponse.Topic.Partition]


@handles(ApiKey.DELETE_RECORDS, access=by_item)
async def delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Move log start offsets (KIP-107). The next retention run deletes segments wholly below them.

    The answer is sent once the log starts are durable here, so deleted records never reappear. In
    Apache Kafka, a crash within a minute can bring them back. The answer also waits until all live
    replicas have moved their log starts, but no longer than the request's timeout. Requires DELETE
    on each topic.
    """
    access = context.access
    asked, refused = await access.divide(
        request.topics, lambda topic: access.topic(Operation.DELETE, topic.name)
    )
    response, slices = DeleteRecordsResponse(topics=[]), Slices()
    moved: list[Waiting] = []
    for name, items in merged_topics(asked).items():
        once = {item.partition_index: item for item in items}       # the last one wins
        partitions = [
            await _delete_below(name, item, context, moved)
            async for item in slices.each(once.values())
        ]
        response.topics.append(DeleteRecordsResponse.Topic(name=name, partitions=partitions))
    unsafe = await context.broker.checkpoints.log_starts(
        {(each.topic, each.index) async for each, _ in slices.each(moved)}
    )
    waiting: list[Waiting] = []
    async for partition, answer in slices.each(moved):
        if (partition.topic, partition.index) in unsafe:
            _refuse(answer, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            waiting.append((partition, answer))
    await _reached_everywhere(waiting, request.timeout_ms / 1000, context.broker, slices)
    response.topics += refused_topics(DeleteRecordsResponse.Topic, refused, TOPIC_REFUSED)
    return response


def _refuse(answer: DeleteRecordsResponse.Topic.Partition, code: ErrorCode) -> None:
    answer.error_code, answer.low_watermark = int(code), NO_LOW_WATERMARK


async def _reached_everywhere(
    waiting: list[Waiting], seconds: float, broker: BrokerContext, slices: Slices
) -> None:
    """Return once all live replicas have reached the log starts in the answers. An answer gets an
    error if this broker no longer leads the partition, or if the timeout ends first."""
    loop = asyncio.get_running_loop()
    left: dict[Partition, DeleteRecordsResponse.Topic.Partition] = {}
    looks: dict[Partition, Callable[[], None]] = {}
    done: asyncio.Future[None] | None = None

    def end() -> None:
        if done is not None and not done.done():
            done.set_result(None)

    def look(partition: Partition) -> None:
        if partition in left and not _is_open(partition, left[partition], broker):
            del left[partition]
            if not left:
                end()

    timer = loop.call_later(max(seconds, 0), end)
    try:
        async for partition, answer in slices.each(waiting):
            if _is_open(partition, answer, broker):
                left[partition] = answer
                looks[partition] = partial(look, partition)
                partition.start_watchers[looks[partition]] = None
        if left and loop.time() < timer.when():
            done = loop.create_future()
            await done
    finally:
        timer.cancel()
        for partition, called in looks.items():
            partition.start_watchers.pop(called, None)
    for partition, answer in left.items():
        if _is_open(partition, answer, broker):
            answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            answer.low_watermark = partition.low_watermark()


def _is_open(
    partition: Partition, answer: DeleteRecordsResponse.Topic.Partition, broker: BrokerContext
) -> bool:
    """Whether the answer has to wait because a live replica still has records below the log start
    in the answer. If this broker no longer leads the partition, the answer gets an error."""
    if answer.error_code:
        return False
    if not partition.led_here:
        deleted = partition.topic_id not in broker.replicas.by_id
        _refuse(
            answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if deleted
            else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        return False
    return partition.low_watermark() < answer.low_watermark


async def _delete_below(
    topic: str, item: DeleteRecordsRequest.Topic.Partition, context: RequestContext,
    moved: list[Waiting],
) -> DeleteRecordsResponse.Topic.Partition:
    """Move one log start, and add the partition and the answer to `moved`. The list holds
    `Partition` objects instead of names, since a topic that is created later may have the same
    name."""
    answer = DeleteRecordsResponse.Topic.Partition(
        partition_index=item.partition_index, low_watermark=NO_LOW_WATERMARK
    )
    try:
        partition = await _move_start(topic, item.partition_index, item.offset, context)
        answer.low_watermark = partition.log.log_start_offset
        moved.append((partition, answer))
    except ProtocolError as error:
        answer.error_code = int(error.code)
    return answer


async def _move_start(topic: str, index: int, offset: int, context: RequestContext) -> Partition:
    """Move a partition's log start up to `offset` if the start is lower; returns the partition."""
    broker = context.broker
    if is_internal(topic):
        raise InvalidTopic(f"{topic} is an internal topic; its records cannot be deleted")
    partition = broker.replicas.partition(topic, index)
    if partition is None:
        raise broker.replicas.absent(topic, index)
    partition.require_leader()
    if not partition.log.config.deletes:
        raise ProtocolError(
            f"records of {topic} cannot be deleted: its cleanup.policy does not contain `delete`",
            ErrorCode.POLICY_VIOLATION,
        )
    end = partition.high_watermark
    if offset == HIGH_WATERMARK:
        offset = end
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(
            f"the records of {partition!r} can be deleted up to offset {end}, not up to {offset}"
        )
    if offset > partition.log.log_start_offset:
        await broker.workers.after_rebuilds(partition.log.wake)
        partition.require_leader()
        partition.log.delete_before(offset)
        partition.wake()
        partition.wake_followers()
    return partition
