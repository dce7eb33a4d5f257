"""InitProducerId (key 22): the id and epoch that identify a producer (KIP-98)."""

from __future__ import annotations

from ottla.broker.api.transactions import as_client_error, with_new_producer_id
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import Access
from ottla.groups.records import Producer
from ottla.groups.transactions.records import TransactionValue
from ottla.groups.transactions.shard import Initialise
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import ApiKey
from ottla.wire.errors import InvalidRequest, ProtocolError
from ottla.wire.messages import InitProducerIdRequest, InitProducerIdResponse

FENCED_FROM = 4
"""First version whose clients know PRODUCER_FENCED."""


def may_produce(request: InitProducerIdRequest, access: Access) -> None:
    """Require WRITE on the transactional id; without one, WRITE on any topic, or IDEMPOTENT_WRITE
    on the cluster."""
    if request.transactional_id is not None:
        access.need_transaction(Operation.WRITE, request.transactional_id)
    elif not access.may_with_any(Operation.WRITE, Resource.TOPIC):
        access.need_cluster(Operation.IDEMPOTENT_WRITE)


@handles(ApiKey.INIT_PRODUCER_ID, access=may_produce)
async def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Assign a producer id; without a transactional id, always a new id with epoch 0 (KIP-360)."""
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
    return await with_new_producer_id(
        context,
        transactional_id,
        lambda shard, answer, result, new_id: shard.initialise(
            initialise, answer, result, new_id
        ),
    )
