from typing import Any

from ottla.broker.api.records.transaction_gate import TransactionGate
from ottla.broker.context import BrokerContext

INTERNAL_TOPICS: frozenset[str]
TURN_SECONDS: float

def produce(request: Any, context: Any) -> Any: ...

class ProduceHandler:
    turn_seconds: float
    def __init__(self, broker: BrokerContext, gate: TransactionGate) -> None: ...
