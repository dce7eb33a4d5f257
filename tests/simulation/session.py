"""A client's connection that reconnects: calls have a deadline, and a new link replaces a broken
one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.simulation.network import Broken, Link
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.loop import SimLoop
    from tests.simulation.world import World

PATIENCE_SECONDS = 120.0


async def within(seconds: float, future: asyncio.Future[Any], loop: SimLoop) -> Any:
    """Wait for a future as asyncio.wait_for does, in the same turns of the loop. It accepts only
    futures, and is faster: clients call it more often than any other function."""
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
    return future.result() if future.done() else await asyncio.wait_for(future, 0)


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
        """Send a request; returns the answer. Raises Broken if the link broke, or if there was no
        answer in time and the client had stopped reading meanwhile. Raises Violation if the broker
        did not answer in time for another reason."""
        link = link or await self.connected()
        future = link.ask(request, version)
        try:
            return await within(PATIENCE_SECONDS, future, self.world.clients)
        except TimeoutError:
            if link.broken or link.deaf_until > self.world.now - PATIENCE_SECONDS:
                raise Broken from None
            raise Violation(
                f"{type(request).__name__} v{version} of client {self.client_id!r} was not answered"
                f" within {PATIENCE_SECONDS:g} s: {request}"
            ) from None
