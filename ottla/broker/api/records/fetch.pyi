from collections.abc import Callable
from typing import Any

from ottla.broker.api.records.fetch_sessions import FetchSessionCache
from ottla.broker.context import BrokerContext

def fetch(request: Any, context: Any) -> Any: ...

class FetchHandler:
    def __init__(self, broker: BrokerContext, choose_session_id: Callable[[], int]) -> None: ...
    @property
    def sessions(self) -> FetchSessionCache: ...
