"""Tasks and futures that go on although nobody may wait for them any more."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """For `add_done_callback`: an error that nobody asks for is not reported by the loop."""
    if not future.cancelled():
        future.exception()
