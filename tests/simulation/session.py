"""A client's connection that reconnects: calls with a deadline, new links after broken ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.simulation.network import Broken, Link
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

PATIENCE_SECONDS = 120.0


class Session:
    """One client; `call` raises Broken if the outcome of its request is unknown."""

    def __init__(self, world: World, client_id: str) -> None:
        self.world, self.client_id = world, client_id
        self.link: Link | None = None

    async def connected(self) -> Link:
        while self.link is None or self.link.broken:
            self.link = self.world.connect(self.client_id)
            if self.link is None:
                await asyncio.sleep(0.05)
        return self.link

    async def call(self, request: Any, version: int, link: Link | None = None) -> Any:
        """Send a request. Broken: there was no answer; Violation: a serving broker did not
        answer."""
        link = link or await self.connected()
        future = link.ask(request, version)
        try:
            return await asyncio.wait_for(future, PATIENCE_SECONDS)
        except TimeoutError:
            if link.broken or link.deaf_until > self.world.now - PATIENCE_SECONDS:
                raise Broken from None
            raise Violation(
                f"{type(request).__name__} v{version} of {self.client_id} was not answered within"
                f" {PATIENCE_SECONDS:g} s: {request}"
            ) from None
