"""One connection to another broker: it sends requests and receives replies in the same order."""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.network.transport import Transport
from ottla.broker.peers.peer_link import PeerLink
from ottla.wire.structs import Message

class PeerUnavailable(ConnectionError):
    sent: bool
    def __init__(self, text: str, sent: bool) -> None: ...

class PeerConnection(PeerLink):
    name: str
    def __init__(
        self,
        loop: BrokerLoop,
        transport: Transport,
        client_id: str,
        name: str,
        on_close: Callable[[Exception], None] | None,
    ) -> None: ...
    def ask(self, request: Message, version: int) -> asyncio.Future[Any]: ...
    def retire(self) -> None: ...
    def close(self, error: Exception) -> None: ...
    def hand_over(self) -> Transport: ...
