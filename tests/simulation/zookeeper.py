"""ZooKeeper in memory: implements `ottla.replication.coordination` in one process.

The server has nodes, versions, transaction ids and sessions. A session ends when its client stops
or when a test or a simulation calls `expire`, not when a connection breaks. A test or a simulation
decides when messages arrive: requests go through `send`, answers and watches through `later`, each
in order. Between `cut` and `join` nothing arrives. By default everything arrives at the next turn
of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from ottla.replication.coordination import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Latencies,
    Listener,
    NodeExists,
    NoNode,
    NotConnected,
    NotEmpty,
    Operation,
    PendingAnswer,
    SessionState,
    Set,
    Stat,
    Watch,
)

Later = Callable[[Callable[[], None]], None]


@dataclass
class Node:
    """A node. `children` are the names of its children, which are nodes of their own."""

    data: bytes
    stat: Stat
    children: set[str] = field(default_factory=set)


Backup = tuple[dict[str, Node], int]


def parent_of(path: str) -> str:
    """The path of the parent: `/a` for `/a/b`."""
    return path.rpartition("/")[0] or "/"


class ZooKeeperServer:
    """The ensemble: one server that loses nothing. Tests may read `nodes`."""

    def __init__(self) -> None:
        self.zxid = 0
        self.on_change: Callable[[], object] = lambda: None
        """Called after each change of nodes, before any watch is triggered."""
        self.nodes: dict[str, Node] = {"/": Node(b"", Stat(0, 0, 0, 0))}
        self.sessions: dict[int, MemoryCoordination] = {}
        self.numbers = count(1)
        self.data_watches: dict[str, dict[tuple[int, Watch], None]] = {}
        self.child_watches: dict[str, dict[tuple[int, Watch], None]] = {}

    def connect(self, client: MemoryCoordination) -> int:
        """Begin a session."""
        session = next(self.numbers)
        self.sessions[session] = client
        return session

    def expire(self, session: int) -> None:
        """End a session, as a server does if it receives nothing during the session timeout."""
        client = self.sessions.pop(session, None)
        if client is None:
            return
        self.forget_watches(session, client)
        gone = [path for path, node in self.nodes.items() if node.stat.owner == session]
        if gone:
            self.multi(session, [Delete(path) for path in gone])
        client.session_ended(session)

    def backup(self) -> Backup:
        """A copy of all nodes except ephemeral ones."""
        owned = {path for path, node in self.nodes.items() if node.stat.owner}
        nodes = {
            path: replace(node, children=node.children - {
                child for child in node.children if f"{path.rstrip('/')}/{child}" in owned
            })
            for path, node in self.nodes.items() if path not in owned
        }
        return nodes, self.zxid

    def restore(self, backup: Backup) -> None:
        """Begin anew with the nodes of a backup. All sessions are gone; no client is notified."""
        nodes, self.zxid = backup
        self.nodes = {path: replace(node) for path, node in nodes.items()}
        self.sessions.clear()
        self.data_watches.clear()
        self.child_watches.clear()

    def forget_watches(self, session: int, client: MemoryCoordination) -> None:
        """Drop a client's watches. The client calls each of them when it is connected again."""
        for known in (*self.data_watches.values(), *self.child_watches.values()):
            for key in [key for key in known if key[0] == session]:
                del known[key]
                client.missed[key[1]] = None

    def get(self, session: int, path: str) -> tuple[bytes, Stat]:
        """A node's data."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node.data, node.stat

    def exists(self, session: int, path: str, watch: Watch | None) -> Stat | None:
        """A node's Stat; also sets a watch on the node."""
        if watch is not None:
            self.data_watches.setdefault(path, {})[session, watch] = None
        node = self.nodes.get(path)
        return None if node is None else node.stat

    def children(self, session: int, path: str, watch: Watch | None) -> list[str]:
        """A node's children; also sets a watch on them."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        if watch is not None:
            self.child_watches.setdefault(path, {})[session, watch] = None
        return sorted(node.children)

    def multi(self, session: int, operations: Sequence[Operation]) -> None:
        """Execute all operations or none, with one transaction id."""
        before = dict(self.nodes)
        self.zxid += 1
        changed: dict[str, None] = {}
        parents: dict[str, None] = {}
        try:
            for each in operations:
                self._apply(session, each)
                if not isinstance(each, Check):
                    changed[each.path] = None
                    if not isinstance(each, Set):
                        parents[parent_of(each.path)] = None
        except Exception:
            self.nodes = before
            raise
        self.on_change()
        for path in changed:
            self._fire(self.data_watches, path)
            if path not in self.nodes:
                self._fire(self.child_watches, path)
        for path in parents:
            self._fire(self.child_watches, path)

    def _fire(self, watches: dict[str, dict[tuple[int, Watch], None]], path: str) -> None:
        for session, watch in watches.pop(path, {}):
            self.sessions[session].deliver(session, watch)

    def _apply(self, session: int, each: Operation) -> None:
        node = self.nodes.get(each.path)
        if isinstance(each, Create):
            self._create(session, each, node)
            return
        if node is None:
            raise NoNode(each.path)
        if each.version not in (-1, node.stat.version):
            raise BadVersion(f"{each.path} has version {node.stat.version}, not {each.version}")
        if isinstance(each, Set):
            stat = replace(node.stat, mzxid=self.zxid, version=node.stat.version + 1)
            self.nodes[each.path] = Node(each.data, stat, node.children)
        elif isinstance(each, Delete):
            if node.children:
                raise NotEmpty(each.path)
            parent = self.nodes[parent_of(each.path)]
            name = each.path.rpartition("/")[2]
            self.nodes[parent_of(each.path)] = replace(parent, children=parent.children - {name})
            del self.nodes[each.path]

    def _create(self, session: int, each: Create, node: Node | None) -> None:
        if node is not None:
            raise NodeExists(each.path)
        parent = self.nodes.get(parent_of(each.path))
        if parent is None:
            raise NoNode(parent_of(each.path))
        assert not parent.stat.owner, "ephemeral nodes have no children"
        name = each.path.rpartition("/")[2]
        self.nodes[parent_of(each.path)] = replace(parent, children=parent.children | {name})
        owner = session if each.ephemeral else 0
        self.nodes[each.path] = Node(each.data, Stat(self.zxid, self.zxid, 0, owner))


class MemoryCoordination:
    """A client's session with a ZooKeeperServer.

    `lose_answers` is how many of the next requests are executed without an answer to the client.
    Instead of the answer, the client's connection breaks, and stays broken until `join`. If the
    client has not noticed the break yet, `join` breaks the connection and then reconnects.
    `lose_writes` is how many of the next writes are lost in the same way before they are executed.
    `looks` counts the client's calls of `exists` that set no watch.
    """

    def __init__(
        self, server: ZooKeeperServer, later: Later | None = None, send: Later | None = None
    ) -> None:
        """`send` delivers requests to the server; `later` delivers answers and watches to the
        client."""
        self.server = server
        self.later: Later = later or (lambda call: _soon(call))
        self.send: Later = send or self.later
        self.state = SessionState.LOST
        self.session_id = 0
        self.session_timeout_ms = 9000
        self.latencies = Latencies()
        self.listeners: list[Listener] = []
        self.waiting: dict[asyncio.Future[Any], None] = {}
        self.missed: dict[Watch, None] = {}
        self.connection = 0
        """The number of the connection, which rises at each break. Messages of an earlier
        connection never arrive."""
        self.lose_answers = self.lose_writes = self.looks = 0
        self.breaking = False
        """Whether a message was lost on this connection, and the client does not know this yet."""

    async def start(self) -> None:
        """Begin a session."""
        self.session_id = self.server.connect(self)
        self.state = SessionState.CONNECTED

    async def make_root(self) -> None:
        """Do nothing: there is no chroot."""

    async def stop(self) -> None:
        """End the session."""
        self.connection += 1
        self.state = SessionState.LOST
        self.server.expire(self.session_id)

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every new state of the connection."""
        self.listeners.append(listener)

    def get(self, path: str) -> PendingAnswer[tuple[bytes, Stat]]:
        """A node's data."""
        return self._ask(lambda session: self.server.get(session, path))

    def exists(self, path: str, watch: Watch | None = None) -> PendingAnswer[Stat | None]:
        """A node's Stat, or None if it does not exist; also sets a watch on the node."""
        self.looks += watch is None
        return self._ask(lambda session: self.server.exists(session, path, watch))

    def children(self, path: str, watch: Watch | None = None) -> PendingAnswer[list[str]]:
        """A node's children."""
        return self._ask(lambda session: self.server.children(session, path, watch))

    def multi(self, operations: Sequence[Operation]) -> PendingAnswer[None]:
        """Execute all operations or none."""
        asked = list(operations)
        return self._ask(lambda session: self.server.multi(session, asked), writes=True)

    def sync(self) -> PendingAnswer[None]:
        """Do nothing: there is one server, which is always current."""
        return self._ask(lambda session: None)

    def _ask(self, request: Callable[[int], Any], writes: bool = False) -> Any:
        loop = asyncio.get_running_loop()
        future, sent_at = loop.create_future(), loop.time()
        if self.state is not SessionState.CONNECTED:
            future.set_exception(NotConnected("not connected"))
            return future
        self.waiting[future] = None
        connection = self.connection

        def arrives() -> None:
            if connection != self.connection or self.session_id not in self.server.sessions:
                return                  # after a session's end, its client is notified soon
            if writes and self.lose_writes:
                self.lose_writes -= 1
                self.breaking = True
                self.later(breaks)
                return
            try:
                answer = request(self.session_id)
                error = None
            except Exception as caught:
                answer, error = None, caught
            if self.lose_answers:
                self.lose_answers -= 1
                self.breaking = True
                self.later(breaks)
                return
            self.later(lambda: answered(answer, error))

        def breaks() -> None:
            if connection == self.connection:
                self.cut()

        def answered(answer: Any, error: Exception | None) -> None:
            if connection != self.connection or future.done():
                return
            self.waiting.pop(future, None)
            self.latencies.took(loop.time() - sent_at)
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        self.send(arrives)
        return future

    def deliver(self, session: int, watch: Watch) -> None:
        """Send the client a watch that the server has triggered."""
        connection = self.connection

        def arrives() -> None:
            if session == self.session_id and connection == self.connection:
                watch()
            else:
                self.missed[watch] = None

        self.later(arrives)

    def cut(self) -> None:
        """Break the connection. The session stays until the server ends it."""
        if self.state is not SessionState.CONNECTED:
            return
        self.connection += 1
        self.breaking = False
        self.server.forget_watches(self.session_id, self)
        self._enter(SessionState.SUSPENDED)

    def join(self) -> None:
        """Reconnect; with a new session if the old one has ended meanwhile."""
        if self.breaking:
            self.cut()
        if self.state is SessionState.CONNECTED:
            return
        if self.session_id not in self.server.sessions:
            if self.state is not SessionState.LOST:
                self._enter(SessionState.LOST)
            self.session_id = self.server.connect(self)
        self._enter(SessionState.CONNECTED)

    def session_ended(self, session: int) -> None:
        """Notify the client, if it is connected, that the server has ended the session. The client
        then begins another one."""
        if session == self.session_id and self.state is SessionState.CONNECTED:
            self.later(self._begin_again)

    def _begin_again(self) -> None:
        if self.state is SessionState.CONNECTED:
            self.cut()
            self.join()

    def _enter(self, state: SessionState) -> None:
        self.state = state
        waiting, self.waiting = self.waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLost("the connection broke"))
        for listener in self.listeners:
            listener(state)
        if state is SessionState.CONNECTED:
            missed, self.missed = self.missed, {}
            for watch in missed:
                watch()


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)
