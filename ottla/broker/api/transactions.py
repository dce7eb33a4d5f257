"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn: the requests of transactional producers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from ottla.broker.coordination.answers import answer_of, deliver_to
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import TOPIC_REFUSED, TRANSACTION_REFUSED, Access
from ottla.broker.security.decisions import by_item, on_transaction
from ottla.broker.threads.slices import Slices, in_parts
from ottla.broker.topic_creation import create_missing, is_internal
from ottla.groups.records import Producer
from ottla.groups.result import Answer, Result
from ottla.groups.routing import OFFSETS_TOPIC
from ottla.groups.transactions.errors import NeedsProducerId
from ottla.groups.transactions.records import TopicIndex, TransactionValue
from ottla.groups.transactions.shard import End, TransactionShard
from ottla.replication.controller.access import Operation as AclOperation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
)

if TYPE_CHECKING:
    from ottla.broker.coordination.transaction_coordinator import TransactionCoordinator

FENCED_FROM = 2
"""First version of these requests whose clients know PRODUCER_FENCED."""
BATCHED_FROM = 4
"""First AddPartitionsToTxn version for brokers only. It can name several transactional ids."""
EPOCHS_FROM = 5
"""First version of these requests whose clients use a new epoch for each transaction (KIP-890)."""

VERIFIED_AT_ONCE = 500
"""How many partitions one turn of the event loop verifies. This takes half a millisecond."""

REFUSALS = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
)
"""If one partition of an AddPartitionsToTxn request has one of these errors, none of the request's
partitions is added."""

Operation = Callable[[TransactionShard, Answer, Result, int | None], None]


async def with_new_producer_id(
    context: RequestContext, transactional_id: str, operation: Operation
) -> TransactionValue:
    """Run an operation; if it turns out to need a new producer id, run it again with a new id."""
    transactions = context.broker.coordinators.transactions
    new_id: int | None = None
    while True:
        try:
            return await _begun(transactions, transactional_id, operation, new_id)
        except NeedsProducerId:
            assert new_id is None, "the operation needs a second new producer id"
            new_id = await context.broker.producer_ids.take()


def _begun(
    transactions: TransactionCoordinator,
    transactional_id: str,
    operation: Operation,
    new_id: int | None,
) -> asyncio.Future[TransactionValue]:
    future: asyncio.Future[TransactionValue] = transactions.loop.create_future()
    answer = deliver_to(future)
    transactions.runtime.attempt(
        transactional_id, lambda shard, result: operation(shard, answer, result, new_id), answer
    )
    return future


def as_client_error(error: ProtocolError, knows_fenced: bool) -> ErrorCode:
    """Translate an error into an error code that transactional clients know."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    return error.code


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, access=by_item)
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add partitions to a new or open transaction. A broker can instead ask whether the partitions
    are in the transaction already.

    Clients need WRITE on the transactional id and on every topic, or no partition is added. Brokers
    need CLUSTER_ACTION.
    """
    made = AddPartitionsToTxnResponse
    if context.version < BATCHED_FROM:
        refusals = _refusals(request, context.access)
        if refusals is not None:
            return made(results_by_topic_v3_and_below=refusals)
        codes = await _add(
            request.v3_and_below_transactional_id,
            Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            [(t.name, index) for t in request.v3_and_below_topics for index in t.partitions],
            False,
            context,
        )
        return made(
            results_by_topic_v3_and_below=await _by_topic(request.v3_and_below_topics, codes)
        )
    context.access.need_cluster(AclOperation.CLUSTER_ACTION)
    results = await asyncio.gather(
        *(
            _add(
                each.transactional_id,
                Producer(each.producer_id, each.producer_epoch),
                [(topic.name, index) for topic in each.topics for index in topic.partitions],
                each.verify_only,
                context,
            )
            for each in request.transactions
        )
    )
    return made(
        results_by_transaction=[
            made.ResultsByTransaction(
                transactional_id=each.transactional_id,
                topic_results=await _by_topic(each.topics, codes),
            )
            for each, codes in zip(request.transactions, results, strict=True)
        ]
    )


def _refusals(
    request: AddPartitionsToTxnRequest, access: Access
) -> list[AddPartitionsToTxnResponse.TopicResult] | None:
    """An error for every topic if the client's request is refused, None if it is allowed."""
    topics = request.v3_and_below_topics
    if not access.transaction(AclOperation.WRITE, request.v3_and_below_transactional_id):
        codes = [TRANSACTION_REFUSED] * len(topics)
    else:
        allowed = [access.topic(AclOperation.WRITE, topic.name) for topic in topics]
        if all(allowed):
            return None
        codes = [int(ErrorCode.OPERATION_NOT_ATTEMPTED) if each else TOPIC_REFUSED
                 for each in allowed]
    made = AddPartitionsToTxnResponse.TopicResult
    return [
        made(
            name=topic.name,
            results_by_partition=[
                made.ResultsByPartition(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic, code in zip(topics, codes, strict=True)
    ]


async def _by_topic(
    topics: list[AddPartitionsToTxnRequest.Topic], codes: dict[TopicIndex, ErrorCode]
) -> list[AddPartitionsToTxnResponse.TopicResult]:
    """Return the response entries in the order of the request. If the request was refused with one
    of the REFUSALS, each partition is listed only once."""
    made, slices = AddPartitionsToTxnResponse.TopicResult, Slices()
    if not REFUSALS.isdisjoint(codes.values()):
        topics = [
            AddPartitionsToTxnRequest.Topic(
                name=name, partitions=[index for topic, index in codes if topic == name]
            )
            for name in dict.fromkeys(topic for topic, _ in codes)
        ]
    return [
        made(
            name=topic.name,
            results_by_partition=[
                made.ResultsByPartition(
                    partition_index=index, partition_error_code=int(codes[topic.name, index])
                )
                async for index in slices.each(topic.partitions)
            ],
        )
        for topic in topics
    ]


async def _add(
    transactional_id: str,
    producer: Producer,
    partitions: list[TopicIndex],
    verify_only: bool,
    context: RequestContext,
) -> dict[TopicIndex, ErrorCode]:
    """Add or verify partitions; returns a code for each. If one partition does not exist, or a
    client names an internal topic, none is added."""
    topics, slices = context.broker.image.topics, Slices()
    unknown = [
        (name, index)
        async for name, index in slices.each(partitions)
        if name not in topics or not 0 <= index < len(topics[name].partitions)
    ]
    codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
    # Producers do not write to internal topics; for offsets there is AddOffsetsToTxn.
    names = set(map(itemgetter(0), partitions)) if context.version < BATCHED_FROM else ()
    internal = [each for each in partitions if is_internal(each[0])] if any(
        map(is_internal, names)) else []
    if unknown or internal:
        codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        codes.update(dict.fromkeys(internal, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return codes
    if verify_only:
        return await _verify(transactional_id, producer, partitions, context)
    version = 2 if context.version >= EPOCHS_FROM else 0
    try:
        await answer_of(
            context.broker.coordinators.transactions,
            transactional_id,
            lambda shard, result: shard.add_partitions(
                transactional_id, producer, frozenset(partitions), version, result
            ),
        )
        code = ErrorCode.NONE
    except ProtocolError as error:
        code = as_client_error(error, knows_fenced=context.version >= FENCED_FROM)
    return dict.fromkeys(partitions, code)


async def _verify(
    transactional_id: str, producer: Producer, partitions: list[TopicIndex], context: RequestContext
) -> dict[TopicIndex, ErrorCode]:
    """Verify that partitions are in the transaction; returns a code for each."""
    codes, slices = dict.fromkeys(partitions, ErrorCode.NONE), Slices()
    coordinator = context.broker.coordinators.transactions
    try:
        async for part in slices.each(in_parts(partitions, VERIFIED_AT_ONCE)):
            refusals = await coordinator.verify(transactional_id, producer, part)
            for each, error in refusals.items():
                codes[each] = as_client_error(error, knows_fenced=True)
    except ProtocolError as error:
        return dict.fromkeys(partitions, as_client_error(error, knows_fenced=True))
    return codes


def may_add_offsets(request: AddOffsetsToTxnRequest, access: Access) -> None:
    """Require WRITE on the transactional id and READ on the group."""
    access.need_transaction(AclOperation.WRITE, request.transactional_id)
    access.need_group(AclOperation.READ, request.group_id)


@handles(ApiKey.ADD_OFFSETS_TO_TXN, access=may_add_offsets)
async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add the partition of a group's offsets to a transaction."""
    if OFFSETS_TOPIC not in context.broker.image.topics:
        await create_missing(context.broker, [OFFSETS_TOPIC])
    groups = context.broker.coordinators.groups.runtime
    partition = (OFFSETS_TOPIC, groups.partition_of(request.group_id))
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        await answer_of(
            context.broker.coordinators.transactions,
            request.transactional_id,
            lambda shard, result: shard.add_partitions(
                request.transactional_id, producer, frozenset((partition,)), 0, result
            ),
        )
    except ProtocolError as error:
        code = as_client_error(error, knows_fenced=context.version >= FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=int(code))
    return AddOffsetsToTxnResponse(error_code=0)


@handles(ApiKey.END_TXN, access=on_transaction(AclOperation.WRITE))
async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Commit or abort a transaction; answers once each marker is committed or has failed."""
    end = End(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        2 if context.version >= EPOCHS_FROM else 0,
    )
    try:
        value = await with_new_producer_id(
            context,
            request.transactional_id,
            lambda shard, answer, result, new_id: shard.end(end, answer, result, new_id),
        )
    except ProtocolError as error:
        code = as_client_error(error, knows_fenced=context.version >= FENCED_FROM)
        return EndTxnResponse(error_code=int(code))
    if context.version < EPOCHS_FROM:
        return EndTxnResponse(error_code=0)
    return EndTxnResponse(
        error_code=0, producer_id=value.producer_id, producer_epoch=value.epoch
    )
