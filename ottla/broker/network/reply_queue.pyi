"""The replies of one connection: those that may be sent, and those that wait."""

import asyncio

from ottla.broker.network.counts import Counts
from ottla.log.files.clock import Clock

class ReplyQueue:
    """Keeps replies in the order of their requests."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, counts: Counts, connection: object
    ) -> None: ...
    def due(self) -> None: ...
