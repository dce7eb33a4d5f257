"""Sends requests to the other brokers of the cluster, and keeps the connections for them.

There is one connection for each node and lane (kind of request), so that a slow request delays only
requests of its kind. A connection is made when it is first needed; `keep` makes connections at
once, and renews them when they end. A connection begins with an ApiVersions request that names the
cluster and the node (KIP-1242). If another broker answers at the address, the connection is not
used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.network.transport import Transport
from ottla.broker.peers.network import Network
from ottla.broker.peers.peer_connection import PeerConnection as PeerConnection
from ottla.broker.peers.peer_connection import PeerUnavailable as PeerUnavailable
from ottla.broker.security.decisions import client_id_of
from ottla.replication.metadata import Endpoint, MetadataImage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.structs import Message

log = logging.getLogger("ottla.peers")

SOFTWARE_NAME = "ottla-broker"
HELLO_VERSION = 5
CONTROL, FORWARD, MARKERS, STATUS = "control", "forward", "markers", "status"
"""Lanes: short requests between brokers, clients' requests for the controller, transaction
markers, and requests that serve a client's query about the cluster."""
REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.05, 1.0
REFUSED_AGAIN_SECONDS = 0.1
LOOKS_MAX = 5
KEPT_AGAIN_SECONDS = 1.0
NOTED_AGAIN_SECONDS = 60.0


class Line:
    """One node in one lane: its connection, or the attempt to make one."""

    def __init__(self, node_id: int, lane: str) -> None:
        self.node_id, self.lane = node_id, lane
        self.endpoint: Endpoint | None = None
        self.connection: PeerConnection | None = None
        self.opening: asyncio.Task[PeerConnection] | None = None
        self.failures = 0
        self.not_before = 0.0


class Peers:
    """Requests to other brokers. `image` returns the current metadata, with all addresses."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        listener: str,
        network: Network,
        loop: BrokerLoop,
        on_refused: Callable[[int], None] = lambda node_id: None,
    ) -> None:
        self.node_id, self.image, self.listener = node_id, image, listener
        self.network, self.loop = network, loop
        self.client_id = client_id_of(node_id)
        self.lines: dict[tuple[int, str], Line] = {}
        self.on_refused = on_refused
        """Called with the id of a node that refused two connections after its kept connection
        broke: its process has ended."""
        self.kept: dict[int, asyncio.Task[None]] = {}
        self.noted: dict[int, tuple[str, float]] = {}
        self.left: set[int] = set()
        """Nodes that the newest image no longer has; `image` may still return the previous
        image."""
        self.closed = False

    # Requests

    async def ask(
        self,
        node_id: int,
        request: Message,
        version: int,
        timeout_seconds: float = REQUEST_SECONDS,
        lane: str = CONTROL,
    ) -> Any:
        """Returns the other broker's response. Raises PeerUnavailable, whose `sent` is False if the
        request was certainly not served."""
        deadline = self.loop.time() + timeout_seconds
        line = self._line(node_id, lane)
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connected(line)
        except TimeoutError:
            raise PeerUnavailable(
                f"broker {node_id} was not reached within {timeout_seconds:g} s", sent=False
            ) from None
        began = self.loop.time()
        future = connection.ask(request, version)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            if connection.heard_at <= began:
                # The machine may have failed silently: use a new connection next time.
                connection.close(TimeoutError("the other broker sent nothing in time"))
            raise PeerUnavailable(
                f"broker {node_id} did not answer {type(request).__name__} within"
                f" {timeout_seconds:g} s", sent=True,
            ) from None

    async def metadata_offset(self, node_id: int, timeout_seconds: float) -> int:
        """How many metadata records another broker has applied; its ApiVersions response has this
        number as `finalized_features_epoch`. Raises PeerUnavailable."""
        answer: ApiVersionsResponse = await self.ask(
            node_id, self._hello(node_id), HELLO_VERSION, timeout_seconds, STATUS)
        return answer.finalized_features_epoch

    def _hello(self, node_id: int) -> ApiVersionsRequest:
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version="1",
            cluster_id=self.image().cluster_id or None, node_id=node_id,
        )

    async def open_transport(self, node_id: int) -> Transport:
        """Open a connection on which the caller sends requests by itself, and verify the identity
        of the other broker. Raises PeerUnavailable."""
        connection = await self._open(node_id, self._endpoint(node_id), None)
        return connection.hand_over()

    # Connections

    def _line(self, node_id: int, lane: str) -> Line:
        line = self.lines.get((node_id, lane))
        if line is None:
            line = self.lines[node_id, lane] = Line(node_id, lane)
        return line

    def _endpoint(self, node_id: int) -> Endpoint:
        broker = None if node_id in self.left else self.image().brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(self.listener)
        if endpoint is None or self.closed:
            raise PeerUnavailable(
                f"broker {node_id} has no address on listener {self.listener}", sent=False
            )
        return endpoint

    async def _connected(self, line: Line) -> PeerConnection:
        """The line's connection, made now if there is none; all callers wait for the same one."""
        endpoint = self._endpoint(line.node_id)
        if line.endpoint != endpoint:
            self._hang_up(line, ConnectionError("the other broker's address has changed"))
            line.endpoint, line.failures, line.not_before = endpoint, 0, 0.0
        connection = line.connection
        if connection is not None and 0 < connection.expires_at <= self.loop.time():
            connection.retire()             # a new one logs in; this one still receives its replies
            connection = line.connection = None
        if connection is not None and connection.error is None:
            return connection
        if line.opening is None:
            opening = line.opening = self.loop.create_task(self._reopen(line, endpoint))
            opening.add_done_callback(lambda task: self._opened(line, task))
        opening = line.opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if not opening.cancelled():
                raise
            raise PeerUnavailable(
                f"broker {line.node_id} has another address now, or has left the cluster",
                sent=False,
            ) from None

    async def _reopen(self, line: Line, endpoint: Endpoint) -> PeerConnection:
        await asyncio.sleep(max(0.0, line.not_before - self.loop.time()))
        return await self._open(
            line.node_id, endpoint, lambda error: self._broke(line, error)
        )

    def _opened(self, line: Line, task: asyncio.Task[PeerConnection]) -> None:
        if line.opening is task:
            line.opening = None
        if task.cancelled():
            return
        if task.exception() is None:
            line.connection, line.failures = task.result(), 0
            return
        line.failures += 1
        pause = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** min(line.failures, 10))
        line.not_before = self.loop.time() + pause

    async def _open(
        self,
        node_id: int,
        endpoint: Endpoint,
        on_close: Callable[[Exception], None] | None,
    ) -> PeerConnection:
        """Connect and verify the other broker's identity."""
        where = f"broker {node_id} at {endpoint.host}:{endpoint.port}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                transport = await self.network.connect(
                    endpoint.host, endpoint.port, endpoint.listener
                )
                connection = PeerConnection(self.loop, transport, self.client_id, where, on_close)
                try:
                    await self._greet(connection, node_id)
                except BaseException as error:
                    connection.close(ConnectionError(str(error)))
                    raise
        except PeerUnavailable as error:
            self._note(node_id, str(error))
            raise PeerUnavailable(str(error), sent=False) from error
        except (OSError, TimeoutError) as error:
            text = f"{where}: {error or 'no answer'}"
            if not isinstance(error, ConnectionRefusedError):
                self._note(node_id, text)
            raise PeerUnavailable(text, sent=False) from error
        self.noted.pop(node_id, None)
        return connection

    def _note(self, node_id: int, text: str) -> None:
        """Log why a broker cannot be reached; refused connections are not logged. The same reason
        is logged again only after a minute."""
        before, noted_at = self.noted.get(node_id, ("", 0.0))
        now = self.loop.time()
        if text != before or now - noted_at >= NOTED_AGAIN_SECONDS:
            self.noted[node_id] = text, now
            log.warning("cannot connect to %s", text)

    async def _greet(self, connection: PeerConnection, node_id: int) -> None:
        """Raise PeerUnavailable unless the intended broker has answered (KIP-1242)."""
        answer = await connection.ask(self._hello(node_id), HELLO_VERSION)
        if answer.error_code != 0:
            code = ErrorCode(answer.error_code).name
            raise PeerUnavailable(
                f"{connection.name}: the broker at this address has another node.id, or belongs to"
                f" another cluster ({code})",
                sent=False,
            )

    def _broke(self, line: Line, error: Exception) -> None:
        line.connection = None
        log.info("the %s connection to broker %d has ended: %s", line.lane, line.node_id, error)
        watching = self.kept.get(line.node_id)
        if line.lane == CONTROL and watching is not None:
            watching.cancel()
            self.kept[line.node_id] = self.loop.create_task(self._look_again(line.node_id))

    def _hang_up(self, line: Line, error: Exception) -> None:
        if line.opening is not None:
            line.opening.cancel()
            line.opening = None
        if line.connection is not None:
            line.connection.close(error)
            line.connection = None

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """End the connections to brokers that have left. Otherwise, if their machines have failed
        silently, requests would wait until they time out."""
        if new.brokers is old.brokers:
            return
        self.left = set(old.brokers.keys() - new.brokers.keys())
        for line in [each for each in self.lines.values() if each.node_id in self.left]:
            self._hang_up(line, ConnectionError("the other broker has left the cluster"))

    # Connections that are kept

    def keep(self, nodes: Collection[int]) -> None:
        """Keep connections to exactly these nodes, so that a failure of one of them is noticed."""
        for node_id in [node_id for node_id in self.kept if node_id not in nodes]:
            self.kept.pop(node_id).cancel()
        for node_id in sorted(nodes):
            if node_id not in self.kept and node_id != self.node_id and not self.closed:
                self.kept[node_id] = self.loop.create_task(self._hold(node_id))

    async def _hold(self, node_id: int) -> None:
        """Connect, however long it takes; `_broke` takes over when the connection ends."""
        while True:
            try:
                await self._connected(self._line(node_id, CONTROL))
                return
            except PeerUnavailable:
                await asyncio.sleep(KEPT_AGAIN_SECONDS)

    async def _look_again(self, node_id: int) -> None:
        """A node's kept connection broke: find out whether the node's process has ended. It has
        ended if two new connections are refused. Up to LOOKS_MAX connections are tried, since a
        process that is ending may still accept a connection, which is then reset."""
        refused = 0
        for look in range(LOOKS_MAX):
            await asyncio.sleep(REFUSED_AGAIN_SECONDS if look else 0.0)
            try:
                await self._connected(self._line(node_id, CONTROL))
                return
            except PeerUnavailable as error:
                if isinstance(error.__cause__, TimeoutError):
                    break           # the machine is silent: its ZooKeeper session will end
                refused += isinstance(error.__cause__, ConnectionRefusedError)
            if refused == 2:
                self.on_refused(node_id)
                break
        await self._hold(node_id)

    def close(self) -> None:
        """End every connection; pending requests fail with an unknown outcome."""
        self.closed = True
        self.keep(())
        for line in self.lines.values():
            self._hang_up(line, ConnectionError("this broker is stopping"))
        self.lines.clear()
