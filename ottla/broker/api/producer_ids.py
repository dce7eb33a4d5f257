"""InitProducerId (key 22): an id and an epoch under which a producer is recognised (KIP-98)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.dispatch import handles
from ottla.wire.apis import ApiKey
from ottla.wire.errors import CoordinatorNotAvailable, InvalidRequest, ProtocolError
from ottla.wire.messages import InitProducerIdRequest, InitProducerIdResponse


@handles(ApiKey.INIT_PRODUCER_ID, versions=range(0, 6))
async def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Give a producer an id; without a transactional id always a new one, at epoch 0 (KIP-360)."""
    try:
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise InvalidRequest("producer id and producer epoch come together")
        if request.transactional_id is not None:
            raise _no_transactions(request.transactional_id)
    except ProtocolError as error:
        return InitProducerIdResponse(
            error_code=int(error.code), producer_id=-1, producer_epoch=-1
        )
    producer_id = await context.broker.producer_ids.take()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _no_transactions(transactional_id: str) -> ProtocolError:
    if not transactional_id:
        return InvalidRequest("a transactional id may not be empty")
    return CoordinatorNotAvailable("no coordinator of transactions is here yet")
