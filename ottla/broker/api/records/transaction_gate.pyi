import asyncio
from collections.abc import Callable

from ottla.broker.context import BrokerContext
from ottla.broker.coordination.transaction_verifier import TransactionVerifier
from ottla.groups.records import Producer
from ottla.groups.transactions.records import TopicIndex
from ottla.wire.errors import ProtocolError

CheckBatch = Callable[[str, Producer, TopicIndex, int], None]
AddBatches = Callable[
    [str, Producer, frozenset[TopicIndex]], asyncio.Future[ProtocolError | None]
]

class TransactionGate:
    def __init__(
        self,
        broker: BrokerContext,
        check_batch: CheckBatch,
        add_batches: AddBatches,
        verifier: TransactionVerifier | None = None,
    ) -> None: ...
