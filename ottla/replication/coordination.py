"""What a cluster needs of ZooKeeper: a port, so that a simulated one can take its place.

Every call begins at once and returns an awaitable, so that several may be under way. There is one
implementation over kazoo (`zookeeper`) and one in memory for tests and the simulator.

What an implementation promises:

- Requests reach the server in the order of the calls, and their answers come in that order.
- A request that is made while the session is not connected raises NotConnected: it never leaves.
- When the connection breaks, what is under way ends with ConnectionLost. A write then has an
  unknown outcome; nothing is ever sent twice.
- A watch is called once: when what it watches has changed, or after a reconnect, when it may have.
  Watches coalesce, so the callee has to read again.
- Watches and listeners are called on the event loop, each after the answers that came before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

Watch = Callable[[], None]


class SessionState(Enum):
    """How it stands with the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is broken; the session may live on or have ended."""
    LOST = "lost"
    """The session has ended, and its ephemeral nodes with it. CONNECTED means a new one then."""


Listener = Callable[[SessionState], None]


class CoordinationError(Exception):
    """A request to ZooKeeper that did not succeed."""


class Refused(CoordinationError):
    """The server has refused the request: nothing of it was done."""


class NoNode(Refused):
    """The node does not exist."""


class NodeExists(Refused):
    """There is a node of this path already."""


class BadVersion(Refused):
    """The node has another version than the one that was expected."""


class NotEmpty(Refused):
    """The node has children."""


class NotConnected(CoordinationError):
    """There is no connection; the request was not sent."""


class ConnectionLost(CoordinationError):
    """The connection broke before the answer came: the request was done, or not."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper knows of a node, by its own names.

    `czxid` and `mzxid` are the transactions that created and last changed it; `owner` is the
    session of an ephemeral node, 0 for others.
    """

    czxid: int
    mzxid: int
    version: int
    owner: int


@dataclass(frozen=True, slots=True)
class Check:
    """The node exists; with a version from 0 on, in that version."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node, whose parent exists; an ephemeral one ends with the session."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Give a node other data, if it has this version; -1 stands for any."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children, if it has this version; -1 stands for any."""

    path: str
    version: int = -1


Operation = Check | Create | Set | Delete


class Coordination(Protocol):
    """A session with ZooKeeper. Paths are absolute, below the chroot."""

    @property
    def state(self) -> SessionState:
        """How it stands with the session, as far as is known here."""
        ...

    @property
    def session_id(self) -> int:
        """The session, as in `Stat.owner`; another number after LOST."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """After how long without a sign of life the server ends the session."""
        ...

    async def start(self) -> None:
        """Connect. Raises ConnectionLost where that takes too long."""
        ...

    async def stop(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call with each further state of the session."""
        ...

    def get(self, path: str) -> Awaitable[tuple[bytes, Stat]]:
        """A node's data. Raises NoNode."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        """A node, None if there is none; `watch` is called when it comes, changes or goes."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        """The names of a node's children, sorted; `watch` is called when one comes or goes.

        Raises NoNode, and sets no watch then.
        """
        ...

    def multi(self, operations: Sequence[Operation]) -> Awaitable[None]:
        """Do all of these, or nothing of them.

        Raises what the first one that fails deserves: NoNode, NodeExists, BadVersion, NotEmpty.
        """
        ...

    def sync(self) -> Awaitable[None]:
        """What is read afterwards contains everything that was written before, by anybody."""
        ...


async def make(coordination: Coordination, path: str, data: bytes = b"") -> bool:
    """Create a node that stays, where there is none; whether it was made now."""
    try:
        await coordination.multi([Create(path, data)])
    except NodeExists:
        return False
    return True
