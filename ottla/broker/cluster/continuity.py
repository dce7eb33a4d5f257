"""Work that has to go on for as long as a broker runs, or a controller's term lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("ottla.controller")

AGAIN_SECONDS = 5.0


async def lasting(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it returns or is cancelled. After an unexpected error, start it again. If
    the work stayed ended, no leaders would be elected until the next controller's term, or lagging
    followers would hold up writes until this broker is restarted."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception("%r failed; it starts again in %g s", work, AGAIN_SECONDS)
        await asyncio.sleep(AGAIN_SECONDS)
