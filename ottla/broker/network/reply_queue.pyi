"""The replies of one connection: those that may be sent, and those that wait."""

import asyncio

from ottla.broker.network.counts import Counts
from ottla.broker.network.reply import Reply
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.security.client import Client
from ottla.log.files.clock import Clock

class ReplyQueue:
    """Keeps replies in the order of their requests."""

    def __init__(
        self, out: Reply, loop: asyncio.AbstractEventLoop, clock: Clock, counts: Counts,
        quotas: Quotas, client: Client, connection: object,
    ) -> None: ...
    def due(self) -> None: ...
