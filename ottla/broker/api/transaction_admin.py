"""WriteTxnMarkers, DescribeTransactions, ListTransactions, DescribeProducers: requests of brokers
and administrators about transactions (KIP-664)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.api.refusals import refused_topics
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import (
    CLUSTER_REFUSED,
    TOPIC_REFUSED,
    TRANSACTION_REFUSED,
    Access,
)
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.groups.consumer import patterns
from ottla.groups.topic_indexes import indexes_by_topic
from ottla.groups.transactions.markers import TransactionMarker
from ottla.groups.transactions.records import (
    TopicIndex,
    TransactionState,
    TransactionValue,
)
from ottla.replication.controller.access import Operation
from ottla.replication.topic_names import require_legal_name
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger("ottla.groups")

NO_PRODUCER_ID = -1
VERSIONS_FROM = 2
"""First WriteTxnMarkers version in which each marker has a transaction version (KAFKA-19446)."""

COMMIT_SECONDS = 2.0
"""How long a marker waits for its replicas. After this time the answer is a timeout, and the
coordinator sends the marker again. All later markers of this coordinator for this broker wait for
the answer."""

if TYPE_CHECKING:
    Begun = tuple[
        WriteTxnMarkersResponse.Marker, str, list[int], list[asyncio.Future[ErrorCode]]
    ]
    """The markers of one transaction for one topic: the transaction's part of the response, the
    topic, its partitions, and for each partition a future with the outcome."""


@handles(ApiKey.WRITE_TXN_MARKERS, access=by_item)
async def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Write transaction markers into partitions that this broker leads.

    Replies once each marker is committed or refused, at the latest after COMMIT_SECONDS. Requires
    CLUSTER_ACTION, which brokers have, or ALTER on the cluster (KIP-664).
    """
    access, made = context.access, WriteTxnMarkersResponse.Marker
    if not access.quiet.cluster(Operation.CLUSTER_ACTION) and not access.cluster(Operation.ALTER):
        return _refused_markers(request)
    response = WriteTxnMarkersResponse(markers=[])
    slices = Slices()
    begun: list[Begun] = []
    for marker in request.markers:
        ending = TransactionMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version if context.version >= VERSIONS_FROM else 0,
        )
        answered = made(producer_id=marker.producer_id, topics=[])
        response.markers.append(answered)
        for topic in filter(lambda topic: topic.partition_indexes, marker.topics):
            indexes = list(dict.fromkeys(topic.partition_indexes))
            writes = [
                _begin_write((topic.name, index), ending, context)
                async for index in slices.each(indexes)
            ]
            begun.append((answered, topic.name, indexes, writes))
    # Write all markers before awaiting any of them. Otherwise a marker whose replicas do not answer
    # would delay the other markers, and the coordinator might send the other markers again.
    waiting = [each for *_, writes in begun for each in writes if not each.done()]
    loop = context.broker.coordinators.transactions.loop
    patience = loop.call_later(COMMIT_SECONDS, _time_out, waiting)
    try:
        await _fill(begun)
    finally:
        patience.cancel()
    return response


def _time_out(waiting: Iterable[asyncio.Future[ErrorCode]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(ErrorCode.REQUEST_TIMED_OUT)


async def _fill(begun: list[Begun]) -> None:
    """Add the error codes of these markers to the response, once all codes are known."""
    made = WriteTxnMarkersResponse.Marker
    for answered, name, indexes, writes in begun:
        codes = [await each for each in writes]
        answered.topics.append(
            made.Topic(
                name=name,
                partitions=[
                    made.Topic.Partition(partition_index=index, error_code=int(code))
                    for index, code in zip(indexes, codes, strict=True)
                ],
            )
        )


def _refused_markers(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    made = WriteTxnMarkersResponse.Marker
    return WriteTxnMarkersResponse(
        markers=[
            made(
                producer_id=marker.producer_id,
                topics=refused_topics(made.Topic, marker.topics, CLUSTER_REFUSED),
            )
            for marker in request.markers
        ]
    )


def _begin_write(
    partition: TopicIndex, marker: TransactionMarker, context: RequestContext
) -> asyncio.Future[ErrorCode]:
    """Write a marker. The returned future gets the error code once the marker is committed or
    refused."""
    transactions = context.broker.coordinators.transactions
    future: asyncio.Future[ErrorCode] = transactions.loop.create_future()

    def written(error: ProtocolError | None) -> None:
        if not future.done():           # else the client has disconnected, or the time is over
            future.set_result(ErrorCode.NONE if error is None else error.code)

    if marker.producer_id == NO_PRODUCER_ID:
        future.set_result(ErrorCode.UNKNOWN_SERVER_ERROR)   # as in Kafka: a marker needs a producer
        return future
    try:
        transactions.write_marker(partition, marker, written)
    except ProtocolError as error:
        written(error)
    except Exception as error:
        # For example, the log was truncated. Answer the request's other markers nevertheless.
        text = f"no transaction marker could be written to {partition[0]}-{partition[1]}: {error!r}"
        context.broker.notes.tell(log, f"marker for {partition[0]}-{partition[1]}", text)
        future.set_result(ErrorCode.UNKNOWN_SERVER_ERROR)
    return future


@handles(ApiKey.DESCRIBE_TRANSACTIONS, access=by_item)
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Report state, producer and partitions of transactional ids.

    Requires DESCRIBE on each transactional id. The answer has only the topics that the client may
    describe.
    """
    access = context.access
    asked, refused = await access.divide(
        request.transactional_ids, lambda each: access.transaction(Operation.DESCRIBE, each)
    )
    runtime = context.broker.coordinators.transactions.runtime
    described = []
    async for transactional_id in Slices().each(asked):
        try:
            value = runtime.shard(transactional_id).describe(transactional_id)
            described.append(_described(transactional_id, value, access.quiet))
        except ProtocolError as error:
            described.append(
                DescribeTransactionsResponse.TransactionState(
                    transactional_id=transactional_id, error_code=int(error.code)
                )
            )
    made = DescribeTransactionsResponse.TransactionState
    described += [made(transactional_id=each, error_code=TRANSACTION_REFUSED) for each in refused]
    return DescribeTransactionsResponse(transaction_states=described)


def _described(
    transactional_id: str, value: TransactionValue, access: Access
) -> DescribeTransactionsResponse.TransactionState:
    made = DescribeTransactionsResponse.TransactionState
    return made(
        transactional_id=transactional_id,
        transaction_state=value.state.label,
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.started_ms,
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        topics=[
            made.Topic(topic=topic, partitions=indexes)
            for topic, indexes in indexes_by_topic(value.partitions).items()
            if access.topic(Operation.DESCRIBE, topic)
        ],
    )


@handles(ApiKey.LIST_TRANSACTIONS, access=by_item)
async def list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List this broker's transactional ids that the client may describe and that pass all
    filters."""
    access = context.access.quiet
    runtime = context.broker.coordinators.transactions.runtime
    if runtime.is_loading:
        return ListTransactionsResponse(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    labels = {state.label for state in TransactionState}
    pattern = request.transactional_id_pattern or ""
    patterns.check(pattern)
    present = [each for shard in runtime.shards() for each in shard.transactions.items()]
    slices = Slices()
    transactions = [
        (transactional_id, value)
        async for transactional_id, value in slices.each(present)
        if _passes(value, request, context.broker.clock.now_ms())
        and access.transaction(Operation.DESCRIBE, transactional_id)
    ]
    if pattern:
        matching = patterns.matching(pattern, (each for each, _ in transactions))
        transactions = [each for each in transactions if each[0] in matching]
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in labels],
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=transactional_id,
                producer_id=value.producer_id,
                transaction_state=value.state.label,
            )
            async for transactional_id, value in slices.each(transactions)
        ],
    )


def _passes(value: TransactionValue, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.producer_id_filters and value.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and value.state.label not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - value.started_ms > request.duration_filter


@handles(ApiKey.DESCRIBE_PRODUCERS, access=by_item)
async def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Report the producers of partitions, and the offsets at which open transactions begin.

    Requires READ on each topic.
    """
    made, access = DescribeProducersResponse.Topic, context.access
    asked, refused = await access.divide(
        request.topics, lambda topic: access.topic(Operation.READ, topic.name)
    )
    slices = Slices()
    return DescribeProducersResponse(
        topics=[
            made(
                name=topic.name,
                partitions=[
                    await _producers(topic.name, index, context, slices)
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked
        ] + refused_topics(made, refused, TOPIC_REFUSED)
    )


async def _producers(
    topic: str, index: int, context: RequestContext, slices: Slices
) -> DescribeProducersResponse.Topic.Partition:
    made = DescribeProducersResponse.Topic.Partition
    if slices.over:
        await slices.pause()
    partition = context.broker.replicas.partition(topic, index)
    try:
        require_legal_name(topic)
        if partition is None:
            raise context.broker.replicas.absent(topic, index)
        partition.require_leader()
        producers = await context.broker.workers.after_rebuilds(partition.log.active_producers)
    except ProtocolError as error:
        return made(
            partition_index=index, error_code=int(error.code), error_message=error.message
        )
    return made(
        partition_index=index,
        active_producers=[
            made.ActiveProducer(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.transaction_start,
            )
            async for state in slices.each(producers)
        ],
    )
