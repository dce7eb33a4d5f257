"""Measures how long a coroutine handler runs on the loop, for quotas of request time."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.log.files.clock import Clock


class TimedContext(Protocol):
    """The request that the coroutine serves."""

    seconds: float


class TimedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that adds the duration of each `send` to `context.seconds`."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], context: TimedContext, clock: Clock
    ) -> None:
        self.coroutine, self.context, self.clock = coroutine, context, clock

    def send(self, value: Any) -> Any:
        """Run to the next await."""
        began = self.clock.monotonic()
        try:
            return self.coroutine.send(value)
        finally:
            self.context.seconds += self.clock.monotonic() - began

    def throw(self, *error: Any) -> Any:
        """Continue with the exception that the await raised."""
        return self.coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine early."""
        self.coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.coroutine.__await__()
