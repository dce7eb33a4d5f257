"""The connection to ZooKeeper with kazoo; the only file that uses that library.

kazoo has threads of its own. Its completions, watches and state listeners only pass their result to
the event loop. kazoo's blocking methods are called only in `stop`, in an executor's thread.

Some of kazoo's behaviour does not fit what `coordination` promises, and is corrected here. While
kazoo is disconnected, it queues requests, and sends them later. When the connection breaks, kazoo
forgets all watches, and calls each with an event without a type. It waits longer and longer between
attempts to connect, and an attempt without an answer lasts for the whole session timeout. It does
not report which session timeout the server has granted. It logs each attempt to connect.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from ottla.replication.coordination import (
    BadVersion,
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Forbidden,
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

log = logging.getLogger("ottla.zookeeper")

REFUSALS: dict[type[Exception], type[CoordinationError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
}
STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
RECONNECT_DELAY_SECONDS_MAX = 1.0
SILENT_SECONDS = 2.0
"""A start that waits longer than this for the first connection logs what it waits for."""
ANSWER_SHARE = 1 / 3
"""The part of the session timeout that one attempt to connect may take, so that there is time for
three attempts."""
SAID_AGAIN_SECONDS = 60.0
Contexts = Callable[[], ssl.SSLContext]
"""Returns the TLS context of the next connection: a certificate may have been renewed meanwhile."""


class Log(logging.LoggerAdapter[logging.Logger]):
    """Filters kazoo's log, since kazoo tries to connect every second and logs each attempt twice.
    The reason of a failure is logged once, and again after a minute. The rest goes to debug level,
    since the cluster member logs the state of the session."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self.said: dict[str, float] = {}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Called for each message, of any level."""
        if not self.logger.isEnabledFor(level):
            return                          # most messages end here; each request logs several
        text = str(msg) % args if args else str(msg)
        if logging.INFO <= level < logging.ERROR:
            now = time.monotonic()
            often = now - self.said.get(text, -SAID_AGAIN_SECONDS) < SAID_AGAIN_SECONDS
            if level == logging.INFO or often or msg == "Transition to CONNECTING":
                level = logging.DEBUG
            else:
                self.said = {each: at for each, at in self.said.items()
                             if now - at < SAID_AGAIN_SECONDS} | {text: now}
                text = f"ZooKeeper: {text}"
        self.logger.log(level, "%s", text, **kwargs)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with two changes to their connections.

    TLS uses the given contexts: kazoo's own would also trust the system's authorities.
    An attempt to connect ends after `answer_seconds` if the server accepts the connection but never
    answers, instead of lasting for the whole session timeout. A ZooKeeper that is just starting may
    accept a connection and never answer it.
    """

    def __init__(self, context: Contexts | None, answer_seconds: float) -> None:
        super().__init__()
        self.context = context
        self.answer_seconds = answer_seconds
        self.unanswered: socket.socket | None = None
        """The latest connection, until its first answer."""
        self.refused = ""
        """The cause of the last failed TLS handshake, to append to a message; "" if none failed."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **of_kazoo: object
    ) -> socket.socket:
        """Connect to one server. Raises OSError."""
        plain = socket.create_connection(address, min(timeout, self.answer_seconds))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.unanswered = self._secured(plain, hostname)
        except OSError:
            plain.close()
            raise
        return self.unanswered

    def _secured(self, plain: socket.socket, hostname: str) -> socket.socket:
        if self.context is None:
            return plain
        try:
            return self.context().wrap_socket(plain, server_hostname=hostname)
        except OSError as error:
            reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
            self.refused = f"; the TLS handshake with {hostname} failed: {reason}"
            raise

    def select(
        self, read: list[Any], write: list[Any], failed: list[Any], timeout: float | None = None
    ) -> Any:
        """Return which of these sockets are ready, as `select.select` does."""
        first = self.unanswered is not None and self.unanswered in read
        if first and timeout is not None:
            timeout = min(timeout, self.answer_seconds)
        ready = super().select(read, write, failed, timeout)
        if first and ready[0]:
            self.unanswered = None
        return ready


class ZooKeeperConnection(ConnectionHandler):  # type: ignore[misc]
    """A connection of kazoo that calls `granted` with the session timeout that the server has
    granted, in milliseconds. The server's tickTime limits the timeout that a client requests; kazoo
    only logs the result."""

    granted: Callable[[int], None]

    def _invoke(self, *arguments: Any, **named: Any) -> Any:
        """Send one of the first requests of a connection; returns the answer."""
        answer = super()._invoke(*arguments, **named)
        # Only the answer to a connect request has `time_out`.
        first = answer[0] if isinstance(answer, tuple) else None
        self.granted(max(0, getattr(first, "time_out", 0)))
        return answer


class Client(KazooClient):  # type: ignore[misc]
    """kazoo's client, with a ZooKeeperConnection in place of kazoo's connection."""

    def __init__(self, granted: Callable[[int], None], hosts: str, **settings: Any) -> None:
        super().__init__(hosts, **settings)
        self._connection = ZooKeeperConnection(self, self._conn_retry.copy(), logger=self.logger)
        self._connection.granted = granted


class ZooKeeper:
    """A session with an ensemble; `connect` is ZooKeeper's `host:port,host:port/chroot`."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        tls: Contexts | None = None,
    ) -> None:
        self.loop = loop
        self.hosts, slash, chroot = connect.partition("/")
        self.root = (slash + chroot).rstrip("/")
        self.session_timeout_ms = session_timeout_ms
        self.connection_timeout_ms = connection_timeout_ms
        self.state = SessionState.LOST
        self.connected: asyncio.Future[None] = loop.create_future()
        """Done once the first connection exists."""
        self.listeners: list[Listener] = []
        self.waiting: set[asyncio.Future[Any]] = set()
        self.latencies = Latencies()
        self.missed: list[Watch] = []
        """Watches that kazoo forgot: they are called once the connection is back."""
        self.watched: dict[Watch, Callable[[Any], None]] = {}
        """The function that kazoo calls for each watch, the same for all requests. kazoo keeps a
        set of functions for each path. With a new function for each request, the set would grow
        until the path changes."""
        answer_seconds = session_timeout_ms / 1000 * ANSWER_SHARE
        self.handler = Handler(tls, answer_seconds)
        self.client = Client(
            self._granted,
            self.hosts,
            timeout=session_timeout_ms / 1000,
            handler=self.handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.1, max_delay=RECONNECT_DELAY_SECONDS_MAX
            ),
            logger=Log(logging.getLogger("ottla.kazoo")),
        )
        self.client.add_listener(self._state_changed)

    @property
    def session_id(self) -> int:
        """The session's number, as in `Stat.owner`; 0 before the first connection."""
        client_id = self.client.client_id
        return int(client_id[0]) if client_id else 0

    def _granted(self, timeout_ms: int) -> None:        # in kazoo's thread
        if timeout_ms not in (0, self.session_timeout_ms):
            log.warning(
                "ZooKeeper grants a session timeout of %d ms instead of %d ms: its tickTime limits"
                " zookeeper.session.timeout.ms", timeout_ms, self.session_timeout_ms)
            self.session_timeout_ms = timeout_ms

    async def start(self) -> None:
        """Make the first connection; kazoo makes the later ones by itself. If this is cancelled,
        kazoo's threads have ended when it returns."""
        try:
            self.client.start_async()
            async with asyncio.timeout(self.connection_timeout_ms / 1000):
                await asyncio.wait([self.connected], timeout=SILENT_SECONDS)
                if not self.connected.done():
                    log.warning(
                        "zookeeper.connect=%s%s: no server has answered yet; the broker keeps"
                        " trying for at most %d ms (zookeeper.connection.timeout.ms)%s",
                        self.hosts, self.root, self.connection_timeout_ms, self.handler.refused)
                await self.connected
        except TimeoutError as error:
            await self.stop()
            raise ConnectionLost(
                f"zookeeper.connect={self.hosts}{self.root}: no server answered within"
                f" {self.connection_timeout_ms} ms (zookeeper.connection.timeout.ms)"
                f"{self.handler.refused}"
            ) from error
        except BaseException:
            await self.stop()
            raise

    async def make_root(self) -> None:
        """Create the chroot if it is missing."""
        path = ""
        for name in filter(None, self.root.split("/")):
            path += f"/{name}"
            # Check first: without permission to create children of the parent, a create is refused
            # even if the node exists.
            if await self._ask(self.client.exists_async, _stat, path) is None:
                with suppress(NodeExists):
                    await self._ask(self.client.create_async, lambda made: None, path, b"")

    async def stop(self) -> None:
        """End the session."""
        await self.loop.run_in_executor(None, self._stop)

    def _stop(self) -> None:
        with suppress(KazooException, OSError):
            self.client.stop()
            self.client.close()

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each further state, on the loop."""
        self.listeners.append(listener)

    def get(self, path: str) -> PendingAnswer[tuple[bytes, Stat]]:
        """A node's data."""
        return self._ask(self.client.get_async, _data, self.root + path)

    def exists(self, path: str, watch: Watch | None = None) -> PendingAnswer[Stat | None]:
        """The `Stat` of a node, None if it does not exist."""
        return self._ask(self.client.exists_async, _stat, self.root + path, self._watch(watch))

    def children(self, path: str, watch: Watch | None = None) -> PendingAnswer[list[str]]:
        """The names of a node's children, sorted."""
        return self._ask(
            self.client.get_children_async, sorted, self.root + path, self._watch(watch)
        )

    def multi(self, operations: Sequence[Operation]) -> PendingAnswer[None]:
        """Execute all of these operations or none."""
        transaction = self.client.transaction()
        for each in operations:
            path = self.root + each.path
            if isinstance(each, Check):
                transaction.check(path, each.version)
            elif isinstance(each, Create):
                transaction.create(path, each.data, ephemeral=each.ephemeral)
            elif isinstance(each, Set):
                transaction.set_data(path, each.data, each.version)
            else:
                transaction.delete(path, each.version)
        return self._ask(transaction.commit_async, _outcome)

    def sync(self) -> PendingAnswer[None]:
        """Later reads return everything that was written before this call."""
        return self._ask(self.client.sync_async, lambda path: None, self.root or "/")

    def _ask(
        self, method: Callable[..., Any], read: Callable[[Any], Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        if self.state is not SessionState.CONNECTED or not self.client.connected:
            # kazoo would queue the request, and send it after the caller has stopped waiting.
            future.set_exception(NotConnected(f"ZooKeeper at {self.hosts} is not connected"))
            return future
        self.waiting.add(future)
        sent_at = self.loop.time()

        def completed(result: Any) -> None:                 # in kazoo's thread
            self._call_on_loop(self._answer, future, read, result, sent_at)

        method(*arguments).rawlink(completed)
        return future

    def _answer(
        self, future: asyncio.Future[Any], read: Callable[[Any], Any], result: Any, sent_at: float
    ) -> None:
        self.waiting.discard(future)
        self.latencies.took(self.loop.time() - sent_at)
        if future.done():
            return                                          # it has failed already
        try:
            future.set_result(read(result.get_nowait()))
        except CoordinationError as error:
            future.set_exception(error)
        except NoAuthError:
            future.set_exception(Forbidden(
                f"ZooKeeper at {self.hosts} refuses access (NoAuth): every broker has to be allowed"
                f" to read, write, create and delete everything below {self.root or '/'}"
            ))
        except Exception as error:
            kind = REFUSALS.get(type(error), ConnectionLost)
            future.set_exception(kind(f"{type(error).__name__} {error}".rstrip()))

    def _watch(self, watch: Watch | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None
        return self.watched.setdefault(
            watch, lambda event: self._call_on_loop(self._watched, watch)
        )

    def _watched(self, watch: Watch) -> None:
        if self.state is SessionState.CONNECTED:
            watch()
        else:
            self.missed.append(watch)

    def _state_changed(self, state: str) -> None:           # in kazoo's thread
        if state != KazooState.CONNECTED:
            # When kazoo reconnects, it sends the id of the last transaction that it saw. A server
            # without that transaction, such as one restored from a backup, closes the connection
            # without an error. kazoo would then retry for ever, with no reason in the log. So the
            # id is reset; `sync` prevents reads of old data instead.
            self.client.last_zxid = 0
        self._call_on_loop(self._enter, STATES[state])

    def _enter(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.CONNECTED and not self.connected.done():
            self.connected.set_result(None)
        if state is not SessionState.CONNECTED:
            waiting, self.waiting = self.waiting, set()
            for future in waiting:
                if not future.done():
                    future.set_exception(
                        ConnectionLost(f"the connection to ZooKeeper at {self.hosts} broke")
                    )
        for listener in self.listeners:
            listener(state)
        if state is SessionState.CONNECTED:
            missed, self.missed = self.missed, []
            for watch in missed:
                watch()

    def _call_on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):            # the loop is closed: nothing waits for the call
            self.loop.call_soon_threadsafe(callback, *arguments)


def _stat(stat: Any) -> Stat | None:
    if stat is None:
        return None
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner)


def _data(answer: Any) -> tuple[bytes, Stat]:
    data, stat = answer
    parsed = _stat(stat)
    assert parsed is not None
    return data, parsed


def _outcome(results: list[Any]) -> None:
    """Raise the error of the operation that made a multi fail, if one did."""
    for result in results:
        if isinstance(result, Exception) and not isinstance(
            result, RolledBackError | RuntimeInconsistency
        ):
            raise result
