"""InitProducerId (key 22): the id and epoch that identify a producer (KIP-98)."""

from __future__ import annotations

from ottla.broker.api.transactions import as_client_error, with_new_producer_id
from ottla.broker.audit import Act
from ottla.broker.dispatch import handles
from ottla.broker.history.transaction_memory import Producing
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import Access
from ottla.groups.records import Producer
from ottla.groups.result import Answer, Result
from ottla.groups.transactions.errors import ConcurrentTransactions
from ottla.groups.transactions.records import TransactionState, TransactionValue
from ottla.groups.transactions.shard import Initialise, TransactionShard
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import ApiKey
from ottla.wire.errors import InvalidRequest, ProtocolError
from ottla.wire.messages import InitProducerIdRequest, InitProducerIdResponse

PLACES_MAX, EVENTS_MAX = 10, 1000
"""Limits for an aborted transaction: how many of its partitions the audit log names, and how many
get an event."""
FENCED_FROM = 4
"""First version whose clients know PRODUCER_FENCED."""


def may_produce(request: InitProducerIdRequest, access: Access) -> None:
    """Require WRITE on the transactional id. A request without one requires WRITE on at least one
    topic, or IDEMPOTENT_WRITE on the cluster."""
    if request.transactional_id is not None:
        access.need_transaction(Operation.WRITE, request.transactional_id)
    elif not access.may_with_any(Operation.WRITE, Resource.TOPIC):
        access.need_cluster(Operation.IDEMPOTENT_WRITE)


@handles(ApiKey.INIT_PRODUCER_ID, access=may_produce)
async def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Assign a producer id and epoch: a new id and epoch 0 if there is no transactional id."""
    try:
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise InvalidRequest("producer id and producer epoch must be set together")
        if request.transactional_id is None:
            producer_id = await context.broker.producer_ids.take()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        value = await _initialise(request, request.transactional_id, context)
    except ProtocolError as error:
        code = as_client_error(error, knows_fenced=context.version >= FENCED_FROM)
        return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=value.producer_id, producer_epoch=value.epoch)


async def _initialise(
    request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> TransactionValue:
    initialise = Initialise(
        transactional_id,
        request.transaction_timeout_ms,
        Producer(request.producer_id, request.producer_epoch),
    )
    aborted: list[TransactionValue] = []

    def operation(
        shard: TransactionShard, answer: Answer, result: Result, new_id: int | None
    ) -> None:
        before = shard.transactions.get(transactional_id)
        shard.initialise(initialise, answer, result, new_id)
        if before is not None and before.state is TransactionState.ONGOING:
            aborted.append(before)

    try:
        value = await with_new_producer_id(context, transactional_id, operation)
        client = context.client
        context.broker.histories.producing.note(
            transactional_id, Producing(client.principal, client.client_id, client.host))
        return value
    except ConcurrentTransactions:          # also raised if this request aborted a transaction
        if aborted:
            _tell_of_abort(request, context, aborted[0])
        raise


def _tell_of_abort(
    request: InitProducerIdRequest, context: RequestContext, before: TransactionValue
) -> None:
    """Log that a request has aborted an open transaction, and add an event to the histories of at
    most EVENTS_MAX of the transaction's partitions."""
    broker, client = context.broker, context.client
    places = sorted(before.partitions)
    open_ms = max(0, broker.clock.now_ms() - before.started_ms)
    more = ", …" if len(places) > PLACES_MAX else ""
    where = ", ".join(f"{topic}-{index}" for topic, index in places[:PLACES_MAX])
    Act(request, context).noticed(
        f"transactional_id={request.transactional_id} aborted its open transaction"
        f" producer_id={before.producer_id} producer_epoch={before.epoch} open_ms={open_ms}"
        f" partitions={where}{more}")
    fields = {
        "transactional_id": request.transactional_id, "producer_id": before.producer_id,
        "producer_epoch": before.epoch, "open_ms": open_ms, "user": client.principal,
        "client": client.client_id, "host": client.host,
    }
    for topic, index in places[:EVENTS_MAX]:
        partition = broker.replicas.partition(topic, index)
        if partition is not None:
            broker.histories.partitions.aborted((partition.topic_id, index), fields)
