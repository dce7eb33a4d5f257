"""ListOffsets (key 2) and OffsetForLeaderEpoch (key 23): offsets by time and by epoch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.api.refusals import refused_topics
from ottla.broker.api.requested_topics import merged_topics
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import TOPIC_REFUSED
from ottla.broker.security.decisions import asks_as_a_broker, by_item
from ottla.broker.threads.slices import Slices
from ottla.log.files.index_file import RebuildNeeded
from ottla.replication.controller.access import Operation
from ottla.replication.partition import Partition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolError,
    UnsupportedVersion,
)
from ottla.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from ottla.log.partition.readable_log import ReadableLog

log = logging.getLogger("ottla.offsets")

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version that knows each of these special timestamps (KIP-734, KIP-405, KIP-1005,
KIP-1023)."""
FIRST_WITH_EPOCH = 4
"""The first version that reports leader epochs (KIP-320)."""
QUICK_ANSWERS = 8
"""How many answers are made from memory alone between two looks at the clock."""
CONSUMER, ANY_REPLICA = -1, -2
"""Replica ids that belong to no broker. Requests with ANY_REPLICA are also answered by followers,
with the end offsets of their own logs. The controller uses this id to find the longest log, and
tools use it to look at any replica."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NOTHING = (-1, -1, -1)
Answer = ListOffsetsResponse.Topic.Partition

FoundRecord = tuple[int, int, int]
"""Offset, timestamp in ms, leader epoch; each is -1 if there is none."""


@handles(ApiKey.LIST_OFFSETS, access=by_item)
async def list_offsets(
    request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    """Look up an offset by time, or by a special timestamp, in each partition.

    Requires DESCRIBE on each topic; a broker needs CLUSTER_ACTION instead. The controller uses this
    API to find the longest log.
    """
    access, made = context.access, ListOffsetsResponse.Topic
    everywhere = asks_as_a_broker(context)
    asked, refused = await access.divide(
        request.topics, lambda topic: everywhere or access.topic(Operation.DESCRIBE, topic.name)
    )
    refusals = refused_topics(made, refused, TOPIC_REFUSED)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        # Kafka has no better error code for an unknown isolation level.
        code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return ListOffsetsResponse(topics=refused_topics(made, asked, code) + refusals)
    slices = Slices()
    topics = [
        made(name=name, partitions=await _list_topic(request, name, items, slices, context))
        for name, items in merged_topics(asked).items()
    ]
    return ListOffsetsResponse(topics=topics + refusals)


async def _list_topic(
    request: ListOffsetsRequest,
    topic: str,
    items: list[ListOffsetsRequest.Topic.Partition],
    slices: Slices,
    context: RequestContext,
) -> list[Answer]:
    """The answers for the partitions of one topic, each partition once."""
    once = {item.partition_index: item for item in items}
    counts = Counter(item.partition_index for item in items) if len(once) < len(items) else {}
    known = context.broker.replicas.by_name.get(topic, [])
    if request.replica_id != CONSUMER:
        known = []
    answers = []
    for place, (index, item) in enumerate(once.items()):
        duplicate, answer = counts.get(index, 1) > 1, None
        if 0 <= index < len(known) and not duplicate:
            answer = _at_once(known[index], item, request.isolation_level, context.version)
        look = answer is None or not place % QUICK_ANSWERS
        if answer is None:
            answer = await _list_partition(request, topic, item, duplicate, context)
        answers.append(answer)
        if look and slices.over:
            await slices.pause()
    return answers


def _at_once(
    partition: Partition | None, item: ListOffsetsRequest.Topic.Partition, isolation: int,
    version: int,
) -> Answer | None:
    """The answer for EARLIEST or LATEST, without reading files; None if files are needed or the
    answer is an error. Optimized, because tools ask about 100,000 partitions.

    The leader epoch for EARLIEST may have to be read from a file. Therefore, in versions that
    report leader epochs, only LATEST is answered here."""
    newest = item.timestamp == LATEST
    if partition is None or not version or not (
        newest or (item.timestamp == EARLIEST and version < FIRST_WITH_EPOCH)
    ):
        return None
    offset = partition.edge(newest, isolation == READ_COMMITTED, item.current_leader_epoch)
    if offset < 0:
        return None
    answer = Answer(partition_index=item.partition_index)
    answer.offset = offset
    if version >= FIRST_WITH_EPOCH:
        answer.leader_epoch = partition.leader_epoch
    return answer


async def _list_partition(
    request: ListOffsetsRequest,
    topic: str,
    item: ListOffsetsRequest.Topic.Partition,
    duplicate: bool,
    context: RequestContext,
) -> Answer:
    answer = Answer(partition_index=item.partition_index)
    partition = None
    try:
        if duplicate:
            raise InvalidRequest(f"{topic}-{item.partition_index} is requested more than once")
        if item.timestamp < EARLIEST_PENDING_UPLOAD or (
            context.version < FIRST_VERSION.get(item.timestamp, 0)
        ):
            raise UnsupportedVersion(
                f"ListOffsets version {context.version} does not know the special timestamp"
                f" {item.timestamp}"
            )
        partition = context.broker.replicas.partition(topic, item.partition_index)
        if partition is None:
            raise context.broker.replicas.absent(topic, item.partition_index)
        of_follower = request.replica_id == ANY_REPLICA and not partition.led_here
        if of_follower and item.timestamp == LATEST and partition.log.readable:
            answer.leader_epoch, answer.offset = partition.own_end()
            return answer
        partition.require_leader(item.current_leader_epoch)
        _require_known_end(partition, item.timestamp, request, context.version)
        end = _end(partition, request)
        if context.version == 0:
            answer.old_style_offsets = await context.broker.workers.after_rebuilds(
                partial(_segment_starts, partition, item, end)
            )
        else:
            answer.offset, answer.timestamp, epoch = await _look_up(
                partition, item.timestamp, end, context
            )
            if context.version >= FIRST_WITH_EPOCH:
                answer.leader_epoch = epoch
    except ProtocolError as error:
        answer.error_code = int(error.code)
        if partition is not None:
            context.broker.doubted.doubt(partition, error)
    except OSError as error:
        log.error("%s-%d could not be read: %s", topic, item.partition_index, error)
        if partition is not None:
            context.broker.doubted.doubt(partition, error)
        answer.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    return answer


def _require_known_end(
    partition: Partition, timestamp: int, request: ListOffsetsRequest, version: int
) -> None:
    """Raise an error while this broker is a new leader that possibly does not know its
    predecessor's high watermark. Otherwise it might report a lower end offset than its predecessor
    did (KIP-207)."""
    if partition.end_is_known or request.replica_id != CONSUMER:
        return
    if timestamp not in (EARLIEST, EARLIEST_LOCAL):
        raise ProtocolError(
            f"the new leader of {partition!r} does not know the partition's high watermark yet;"
            " retry",
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE,
        )


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    """The first offset that this client may not read; replicas and tools may read everything."""
    if request.replica_id != CONSUMER:
        return partition.log.log_end_offset
    return partition.last_stable_offset() if request.isolation_level else partition.high_watermark


async def _look_up(
    partition: Partition, timestamp: int, end: int, context: RequestContext
) -> FoundRecord:
    log = partition.log
    if timestamp == LATEST:
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        epoch = await context.broker.workers.after_rebuilds(
            partial(log.leader_epoch_for_offset, start)
        )
        return start, -1, epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING                      # there is no tiered storage
    record = await _searched(log, timestamp, end, context)
    if record is None or record[0] >= end:
        return NOTHING
    return record


async def _searched(
    log: ReadableLog, timestamp: int, end: int, context: RequestContext
) -> FoundRecord | None:
    """Run a search, and return its result. A worker thread searches a batch if that may take long.
    If an index turns out to be wrong, a thread rebuilds it and the search begins again."""
    slices, workers = Slices(), context.broker.workers
    rebuilt = None

    begin = partial(log.newest_steps, end) if timestamp == MAX_TIMESTAMP else (
        partial(log.timestamp_steps, timestamp))
    steps = await workers.after_rebuilds(begin)
    while True:
        try:
            search = next(steps)
        except StopIteration as ended:
            record: FoundRecord | None = ended.value
            return record
        except RebuildNeeded as needed:
            needed.rebuild.check_new(rebuilt)
            rebuilt = needed.rebuild
            await workers.renew(rebuilt)
            steps = await workers.after_rebuilds(begin)
            continue
        if search.takes_long:
            await workers.run(search.run)
        else:
            search.run()
        if slices.over:
            await slices.pause()


def _segment_starts(
    partition: Partition, item: ListOffsetsRequest.Topic.Partition, end: int, patient: bool
) -> list[int]:
    """The answer of version 0: segment boundaries up to the timestamp, the newest first."""
    log = partition.log
    if item.timestamp == LATEST:
        starts: Iterable[int] = [end]
    elif item.timestamp == EARLIEST:
        starts = [log.log_start_offset]
    else:
        log.wake(patient)
        bases = [
            max(segment.base_offset, log.log_start_offset)
            for segment in log.segments
            if segment.base_offset < end and segment.largest_timestamp(patient) <= item.timestamp
        ]
        starts = reversed(bases)
    return list(starts)[: max(item.max_num_offsets, 0)]


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, access=by_item)
async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Report the end of a leader epoch: clients use it to detect truncation (KIP-101, KIP-320).

    Requires DESCRIBE on each topic, or CLUSTER_ACTION, which brokers have.
    """
    access, made = context.access, OffsetForLeaderEpochResponse.Topic
    everywhere = access.quiet.cluster(Operation.CLUSTER_ACTION)
    asked, refused = await access.divide(
        request.topics, lambda topic: everywhere or access.topic(Operation.DESCRIBE, topic.topic)
    )
    slices = Slices()
    return OffsetForLeaderEpochResponse(
        topics=[
            made(
                topic=topic.topic,
                partitions=[
                    await _epoch_end(topic.topic, item, context)
                    async for item in slices.each(topic.partitions)
                ],
            )
            for topic in asked
        ] + [
            made(
                topic=topic.topic,
                partitions=[
                    made.Partition(partition=item.partition, error_code=TOPIC_REFUSED)
                    for item in topic.partitions
                ],
            )
            for topic in refused
        ]
    )


async def _epoch_end(
    topic: str,
    item: OffsetForLeaderEpochRequest.Topic.Partition,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse.Topic.Partition:
    answer = OffsetForLeaderEpochResponse.Topic.Partition(partition=item.partition)
    try:
        partition = context.broker.replicas.partition(topic, item.partition)
        if partition is None:
            raise context.broker.replicas.absent(topic, item.partition)
        partition.require_leader(item.current_leader_epoch)
        # Do not limit the answer to the high watermark, which a new leader does not know yet.
        # Otherwise a client that has read beyond the limit would conclude that the log was
        # truncated, and would read again.
        log = partition.log
        answer.leader_epoch, answer.end_offset = await context.broker.workers.after_rebuilds(
            partial(log.end_offset_for_epoch, item.leader_epoch)
        )
    except ProtocolError as error:
        answer.error_code = int(error.code)
    return answer
