"""Tasks and futures that continue although their callers may have stopped waiting."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """For `add_done_callback`: marks an error as retrieved, so that the loop does not report it."""
    if not future.cancelled():
        future.exception()
