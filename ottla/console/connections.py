"""A user's connections to the cluster, for worker threads.

A `ClusterClient` blocks and serves one thread at a time, so each request takes an idle client, or a
new one if none is idle. If a browser abandons a request, the thread still completes it; only then
is the client free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError
from ottla.client.transport import Security

AT_ONCE = 4
"""The most requests of one user that run at a time; further requests wait."""
REQUEST_SECONDS = 20.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Target:
    """The cluster that the console shows, as the command line names it."""

    bootstrap: str
    properties: Mapping[str, str]
    seconds: float = 5.0

    @property
    def protocol(self) -> str:
        """The security protocol of the brokers' listener."""
        return self.properties.get("security.protocol", "PLAINTEXT").strip().upper()

    @property
    def asks_login(self) -> bool:
        """Whether users have to log in."""
        return self.protocol.startswith("SASL")

    @property
    def own_user(self) -> bool:
        """Whether the properties name the console's own user, who records the history."""
        return bool({"sasl.username", "sasl.jaas.config"} & self.properties.keys())

    def properties_of(self, user: str, password: str, mechanism: str) -> dict[str, str]:
        """The client properties of a user."""
        found = {name: value for name, value in self.properties.items()
                 if name not in ("sasl.jaas.config", "sasl.mechanisms")}
        return found | {
            "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password,
        }

    def cluster(self, properties: Mapping[str, str]) -> ClusterClient:
        """A client with these properties, not connected yet. Raises ClientError."""
        return ClusterClient(
            self.bootstrap,
            client_id="ottla-console",
            connect_seconds=self.seconds,
            request_seconds=REQUEST_SECONDS,
            patience_seconds=self.seconds,
            security=Security.from_properties(properties),
            retry_refused=False,
        )


def check_target(target: Target) -> None:
    """Raises ClientError for properties with which no client can be created."""
    user = target.properties
    if target.asks_login and not target.own_user:
        user = target.properties_of("user", "", "PLAIN")
    target.cluster(user).close()


class Connections:
    """The clients of one user. A client is used by one thread at a time."""

    def __init__(
        self, target: Target, properties: Mapping[str, str], threads: Executor
    ) -> None:
        self.target, self.properties, self.threads = target, properties, threads
        self.idle: list[ClusterClient] = []
        self.places = asyncio.Semaphore(AT_ONCE)
        self.closed = False

    async def run(
        self,
        function: Callable[Concatenate[ClusterClient, Given], Result],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Calls the function in a thread with a client of this user; returns its result."""
        await self.places.acquire()

        def work() -> Result:
            cluster = self.idle.pop() if self.idle else self.target.cluster(self.properties)
            try:
                return function(cluster, *arguments, **named)
            finally:
                self._give_back(cluster)

        running = asyncio.get_running_loop().run_in_executor(self.threads, work)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def _ended(self, running: asyncio.Future[Result]) -> None:
        self.places.release()
        if not running.cancelled():
            running.exception()     # otherwise asyncio logs the error if no caller waits any more

    def _give_back(self, cluster: ClusterClient) -> None:
        if self.closed:
            cluster.close()
        else:
            self.idle.append(cluster)

    def close(self) -> None:
        """Close the idle clients; a client in use is closed once its request has ended."""
        self.closed = True
        while self.idle:
            self.idle.pop().close()


__all__ = ["MECHANISMS", "ClientError", "Connections", "Target", "check_target"]
