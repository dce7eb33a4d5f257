"""The audit of refusals by ACLs: a line of `ottla.audit` for each refused request.

A refusal that is repeated within WINDOW_SECONDS is only counted, and the count is logged at the end
of that time. So a client's retries do not fill the disk. Administrative requests are not logged
here: `audit` logs each of them with its outcome. Lines are written after the response, a few at a
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.threads.slices import in_slices
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import APIS, AUDITED, ApiKey

if TYPE_CHECKING:
    from ottla.broker.security.client import Client

log = logging.getLogger("ottla.audit")

WINDOW_SECONDS = 10.0
KEPT_MAX = 2000
"""How many different refusals are logged one by one in a window; of further refusals, only the
number is logged."""
NAME_SIZE_MAX = 250


class Denial(NamedTuple):
    """One refusal: the client, its request, and the operation and the resource that were
    refused."""

    principal: str
    host: str
    client_id: str | None
    api_key: int
    operation: int
    resource_type: int
    name: str

    def __str__(self) -> str:
        operation, kind = Operation(self.operation).name, Resource(self.resource_type).name.lower()
        return (
            f"{self.principal} from {self.host}, client {self.client_id!r}:"
            f" {APIS[ApiKey(self.api_key)].name}: refused, {operation} of {kind.replace('_', ' ')}"
            f" {self.name!r}"
        )


class Denials:
    """Counts and logs the refusals of one broker, until `close` is called. Used on the loop
    only."""

    def __init__(self) -> None:
        self.times: dict[Denial, int] = {}
        """How often each refusal was repeated in this window."""
        self.not_listed = 0
        self.count = 0
        """The number of refusals since the start."""
        self.unwritten: deque[tuple[Denial, str]] = deque()
        self.writer: asyncio.Task[None] | None = None
        self.end_of_window: asyncio.TimerHandle | None = None

    def note(
        self, client: Client, api_key: int, operation: int, resource_type: int, name: str
    ) -> None:
        """Log a refusal, or count it if it was logged a short time ago."""
        self.count += 1
        if api_key in AUDITED:
            return
        denial = Denial(
            client.principal, client.host, client.client_id and client.client_id[:NAME_SIZE_MAX],
            api_key, operation, resource_type, name[:NAME_SIZE_MAX],
        )
        if denial in self.times:
            self.times[denial] += 1
            return
        if len(self.times) >= KEPT_MAX:
            self.not_listed += 1
            return
        self.times[denial] = 0
        self.unwritten.append((denial, ""))
        self._write_soon()
        if self.end_of_window is None:
            loop = asyncio.get_running_loop()
            self.end_of_window = loop.call_later(WINDOW_SECONDS, self.begin_anew)

    def close(self) -> None:
        """Write all lines that are left."""
        if self.end_of_window is not None:
            self.end_of_window.cancel()
            self.begin_anew()
        for _ in self._lines():
            pass

    def begin_anew(self) -> None:
        """Log how often each refusal was repeated, and begin a new window."""
        self.end_of_window = None
        for denial, times in self.times.items():
            if times:
                self.unwritten.append((denial, f" ({times} more times)"))
        self.times = {}
        if self.not_listed:
            log.warning("ACLs refused %d more requests, which are not logged one by one",
                        self.not_listed)
            self.not_listed = 0
        self._write_soon()

    def _write_soon(self) -> None:
        if self.unwritten and (self.writer is None or self.writer.done()):
            self.writer = asyncio.get_running_loop().create_task(in_slices(self._lines()))

    def _lines(self) -> Iterator[None]:
        """Write one line at each step."""
        while self.unwritten:
            denial, again = self.unwritten.popleft()
            log.warning("%s%s", denial, again, extra={"fields": {
                "principal": denial.principal, "address": denial.host,
                "client_id": denial.client_id, "api": APIS[ApiKey(denial.api_key)].name,
                "what": denial.name, "outcome": f"refused{again}",
            }})  # fmt: skip
            yield
