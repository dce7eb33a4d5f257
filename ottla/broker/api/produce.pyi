from typing import Any

from ottla.broker.context import BrokerContext

INTERNAL_TOPICS: frozenset[str]

def produce(request: Any, context: Any) -> Any: ...

class Producing:
    def __init__(self, broker: BrokerContext) -> None: ...
    @property
    def failed(self) -> bool: ...
