"""Reports on standard error when no broker answers any more, and when one answers again."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, NoBroker, is_running_there
from ottla.client.frames import BadResponse

if TYPE_CHECKING:
    from ottla.console.connections import Target


class Contact:
    """Whether requests reach a broker."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.answered: bool | None = None
        """Whether the last request reached a broker; None before the first one."""

    def note(self, failed: ClientError | None) -> None:
        """Notes that a request failed or, with None, that a broker answered it."""
        if isinstance(failed, NoBroker | BadResponse):     # BadResponse: another server
            if self.answered is not False:
                refused = isinstance(failed, NoBroker) and failed.refused
                step = f"; {is_running_there()}" if refused else ""
                say(f"{failed}; pages show this error until a broker answers{step}")
            self.answered = False
        elif failed is None:
            if self.answered is False:
                say(f"connected to {self.target.bootstrap}")
            self.answered = True

    async def look(self) -> None:
        """Connects to a broker without logging in, unless a broker answered the last request. So
        the console notices that a broker answers again, even if no user makes a request."""
        if not self.answered:
            try:
                await asyncio.to_thread(self._connect)
            except ClientError as failed:
                self.note(failed)
            else:
                self.note(None)

    def _connect(self) -> None:
        protocol = self.target.protocol.removeprefix("SASL_")
        with self.target.cluster(
            {**self.target.properties, "security.protocol": protocol}
        ) as cluster:
            cluster.any()


def say(text: str) -> None:
    """Prints a line on standard error, in the form of the console's other lines."""
    print(f"ottla console: {text}", file=sys.stderr, flush=True)
