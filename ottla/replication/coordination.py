"""The interface through which a cluster uses ZooKeeper.

Each request starts at once and returns a `PendingAnswer`, so several requests can be in flight.
There is one implementation over kazoo (`zookeeper`) and one in memory for tests and the simulator.

An implementation promises:

- Requests reach the server in the order of the calls, and their answers arrive in that order.
- A request made while the session is not connected raises NotConnected: it is never sent.
- When the connection breaks, requests in flight fail with ConnectionLost. The outcome of a write is
  then unknown; no request is ever sent twice.
- A watch is called once: when the watched node changes, or after a reconnect. By then the node may
  be unchanged, or may have changed several times, so the watch has to read it.
- Watches and listeners are called on the event loop. Answers that arrived before the event of a
  watch or listener are delivered before it is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

Watch = Callable[[], None]
Answer = TypeVar("Answer", covariant=True)


class SessionState(Enum):
    """The state of the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is broken. It is not known whether the session still exists."""
    LOST = "lost"
    """The session has ended and its ephemeral nodes are deleted. A later CONNECTED means a new
    session."""


Listener = Callable[[SessionState], None]


class CoordinationError(Exception):
    """A request to ZooKeeper has failed."""


class CoordinationRefused(CoordinationError):
    """The server has refused the request: no part of it was executed."""


class NoNode(CoordinationRefused):
    """The node does not exist."""


class NodeExists(CoordinationRefused):
    """The path has a node already."""


class BadVersion(CoordinationRefused):
    """The node does not have the expected version."""


class NotEmpty(CoordinationRefused):
    """The node has children."""


class Forbidden(CoordinationError):
    """ZooKeeper's ACLs do not allow the request: no part of it was executed. Unlike
    CoordinationRefused, this error does not occur in normal operation."""


class NotConnected(CoordinationError):
    """There is no connection, so the request was not sent."""


class ConnectionLost(CoordinationError):
    """The connection broke before the answer arrived: the request may have been executed."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper reports about a node, under its own names.

    `czxid` and `mzxid` are the transactions that created and last changed it; `owner` is the
    session of an ephemeral node, 0 for a persistent node.
    """

    czxid: int
    mzxid: int
    version: int
    owner: int


@dataclass(frozen=True, slots=True)
class Check:
    """Require that the node exists, and has this version; -1 matches any version."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node below an existing parent; an ephemeral node is deleted when the session
    ends."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Set a node's data, if the node has this version; -1 matches any version."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children, if it has this version; -1 matches any version."""

    path: str
    version: int = -1


Operation = Check | Create | Set | Delete


class Latencies:
    """Counts durations: `buckets[n]` counts durations from 2^(n-1) to less than 2^n microseconds;
    the last bucket counts all longer durations as well."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        self.buckets = [0] * 32

    def took(self, seconds: float) -> None:
        """Count one duration."""
        self.buckets[min(int(seconds * 1e6).bit_length(), len(self.buckets) - 1)] += 1


class PendingAnswer(Awaitable[Answer], Protocol[Answer]):
    """The answer to a request in flight: the part of asyncio.Future's interface that is used."""

    def cancel(self) -> bool:
        """Stop waiting for an answer that has not arrived."""
        ...

    def cancelled(self) -> bool:
        """Whether waiting was stopped."""
        ...

    def exception(self) -> BaseException | None:
        """The error with which the request failed; None if it succeeded."""
        ...


class Coordination(Protocol):
    """A session with ZooKeeper. Paths are absolute, below the chroot."""

    @property
    def state(self) -> SessionState:
        """The state of the session, as last observed."""
        ...

    @property
    def session_id(self) -> int:
        """The session's number, as in `Stat.owner`; a session after LOST has another number."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout as agreed with the server."""
        ...

    @property
    def latencies(self) -> Latencies:
        """How long requests waited for their answers."""
        ...

    async def start(self) -> None:
        """Connect. Raises ConnectionLost if that takes too long."""
        ...

    async def make_root(self) -> None:
        """Create the chroot if it is missing."""
        ...

    async def stop(self) -> None:
        """End the session: its ephemeral nodes are deleted at once."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each new state of the session from now on."""
        ...

    def get(self, path: str) -> PendingAnswer[tuple[bytes, Stat]]:
        """A node's data. Raises NoNode."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> PendingAnswer[Stat | None]:
        """The `Stat` of a node, None if it does not exist; `watch` is called when the node is
        created, changed or deleted."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> PendingAnswer[list[str]]:
        """The sorted names of a node's children; `watch` is called when a child is created or
        deleted.

        Raises NoNode, in which case no watch is set.
        """
        ...

    def multi(self, operations: Sequence[Operation]) -> PendingAnswer[None]:
        """Execute all of these operations or none.

        Raises the error of the first operation that fails: NoNode, NodeExists, BadVersion,
        NotEmpty.
        """
        ...

    def sync(self) -> PendingAnswer[None]:
        """Later reads return everything that was written before this call, by any client."""
        ...


async def make(coordination: Coordination, path: str, data: bytes = b"") -> bool:
    """Create a persistent node unless it exists; returns whether it was created."""
    try:
        await coordination.multi([Create(path, data)])
    except NodeExists:
        return False
    return True


async def each(requests: Iterable[PendingAnswer[Any]]) -> list[Any]:
    """Wait for all answers, and return them in order. If a request failed, its error is returned in
    place of its answer.

    If the wait is cancelled, the remaining requests are cancelled too: asyncio would otherwise
    report that their errors were never retrieved.
    """
    asked = list(requests)
    answers: list[Any] = []
    try:
        for request in asked:
            try:
                answers.append(await request)
            except CoordinationError as error:
                answers.append(error)
    finally:
        for request in asked[len(answers):]:
            if not request.cancel() and not request.cancelled():
                request.exception()
    return answers
