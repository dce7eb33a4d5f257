"""A cluster as a client sees it: bootstrap, leaders, coordinators, the controller.

Connections are made when needed and kept until a broker closes them. For up to `patience_seconds`,
`with_retries` repeats a request that was sent to the wrong broker or too early. Too early means
that the coordinator is still loading, or that the leader is being elected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from types import TracebackType
from typing import Any, Self

from ottla.client.addresses import Address, parse_addresses, show_address
from ottla.client.command_line import INT32_MOST
from ottla.client.connection import CLIENT_ID, Connection
from ottla.client.errors import (
    ClientError,
    NoBroker,
    NotConnected,
    NotSupported,
    Refused,
    TimedOut,
    Unreachable,
    check,
)
from ottla.client.frames import http_server_at
from ottla.client.transport import HTTP_SECONDS, UNPROTECTED, Security, speaks_http
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Kinds of coordinators, FindCoordinator's key_type."""

BACKOFF_SECONDS = 0.1
SILENT_SECONDS = 1.0
"""How long a client waits for its first broker before it reports that it waits."""
HURRY_SECONDS = 1.0
"""If an address does not answer, the client checks whether an HTTP server listens there. A client
that has less time than this to connect, as in a shell's completion, skips the check."""
MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,      # a disk failed: another broker becomes the leader
}
EARLY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,     # a new leader's high watermark is behind (KIP-207)
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class ClusterClient:
    """Connections to the brokers of one cluster."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str | None = CLIENT_ID,
        connect_seconds: float = 5.0,
        request_seconds: float = 30.0,
        patience_seconds: float | None = None,
        security: Security = UNPROTECTED,
        retry_refused: bool = True,
        refused_seconds: float | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        """If no broker has answered yet and all addresses refuse connections, the client gives up
        after `refused_seconds` (by default `connect_seconds`). If brokers have refused connections
        for a second, the client calls `waiting` with the reason, and does so only once."""
        self.bootstrap = parse_addresses(bootstrap)
        self.client_id = client_id
        self.connect_seconds = connect_seconds
        self.request_seconds = request_seconds
        self.patience_seconds = request_seconds if patience_seconds is None else patience_seconds
        self.security = security
        self.retry_refused = retry_refused
        self.refused_seconds = connect_seconds if refused_seconds is None else min(
            refused_seconds, connect_seconds)
        self.waiting = waiting
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._first: Connection | None = None
        self._connections: dict[int, Connection] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def any(self) -> Connection:
        """A connection to any broker: the first bootstrap address, or other known address, that
        answers."""
        if self._first is None or not self._first.usable:
            if self._first is not None:
                self._first.retire()
            self._first = self._bootstrap()
            self.waiting = None
        at = self._first.address
        known = (node_id for node_id, address in self.brokers.items() if address == at)
        return self._ready(self._first, next(known, -1))

    def _ready(self, connection: Connection, node_id: int) -> Connection:
        """Sets how long to wait for an answer, and the broker's name in messages."""
        connection.wait_at_most(self.request_seconds)
        connection.who = ""
        if node_id >= 0 and len(self.brokers) > 1:
            role = ", the controller" if node_id == self.controller_id else ""
            connection.who = f"broker {node_id}{role}"
        return connection

    def _bootstrap(self) -> Connection:
        begun = time.monotonic()
        deadline = begun + self.connect_seconds
        # If the bootstrap addresses do not answer, other known brokers are tried.
        heard = [known for known in self.brokers.values() if known not in self.bootstrap]
        addresses = [*self.bootstrap, *heard]
        while True:
            failures: list[Exception] = []
            for place, address in enumerate(addresses):
                # A host that is down does not answer at all: leave time for the other addresses.
                share = (deadline - time.monotonic()) / (len(addresses) - place)
                try:
                    return self._connect(address, max(share, 0.2), wait=False)
                except (Unreachable, TimedOut) as failed:
                    failures.append(failed)
            # A broker that refuses connections may be starting, and will listen soon.
            refused = [isinstance(one.__cause__, ConnectionRefusedError) for one in failures]
            until = deadline
            if all(refused) and self._first is None:        # no broker has answered yet
                until = begun + self.refused_seconds
            late = time.monotonic() + BACKOFF_SECONDS >= until
            final = late or not any(refused) or not self.retry_refused
            if final and self._first is None and self.connect_seconds >= HURRY_SECONDS:
                self._look_for_http(addresses, failures)
            said = f"cannot reach a broker at {'; '.join(map(str, failures))}"
            if final:
                raise NoBroker(said, refused=all(refused)) from failures[-1]
            if time.monotonic() - begun >= SILENT_SECONDS and self.waiting is not None:
                self.waiting(said)
                self.waiting = None
            time.sleep(BACKOFF_SECONDS)

    def _look_for_http(self, addresses: list[Address], failures: list[Exception]) -> None:
        """If an HTTP server listens at the first address that did not answer, says so."""
        silent = [place for place, one in enumerate(failures) if isinstance(one, TimedOut)]
        for place in silent[:1]:
            if speaks_http(addresses[place], self.security, HTTP_SECONDS):
                failures[place] = TimedOut(http_server_at(show_address(addresses[place])))

    def _connect(self, address: Address, seconds: float, *, wait: bool) -> Connection:
        connection = Connection(
            address,
            client_id=self.client_id,
            connect_seconds=seconds,
            request_seconds=seconds,  # until the broker has answered ApiVersions
            security=self.security,
            retry_refused=self.retry_refused and wait,
        )
        try:
            connection.negotiate()
        except BaseException:
            connection.close()
            raise
        connection.wait_at_most(self.request_seconds)
        return connection

    def refresh(self) -> None:
        """Fetches the brokers and the controller."""
        response = self.any().call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        check(response.error_code)
        self.learn(response)

    def learn(self, metadata: Any) -> None:
        """Stores a Metadata response's brokers and controller."""
        self.brokers = {item.node_id: (item.host, item.port) for item in metadata.brokers}
        self.racks = {item.node_id: item.rack for item in metadata.brokers}
        self.controller_id, self.cluster_id = metadata.controller_id, metadata.cluster_id

    def live(self) -> list[int]:
        """The ids of the brokers that the cluster considers alive. Metadata may still list brokers
        that have stopped."""
        self.refresh()
        if not self.supports(DescribeClusterRequest.API_KEY):
            return sorted(self.brokers)
        response = self.any().call(DescribeClusterRequest())
        check(response.error_code, response.error_message)
        return sorted(broker.broker_id for broker in response.brokers)

    def metadata(
        self, topics: Iterable[str] | None = None, create: bool = False, **fields: Any
    ) -> Any:
        """Metadata of the topics with these names; None means all topics. With `create`, the broker
        may create missing topics."""
        wanted = None
        if topics is not None:
            wanted = [MetadataRequest.Topic(name=name) for name in topics]
        asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=create, **fields)
        response = self.any().call(asked)
        check(response.error_code)
        self.learn(response)
        return response

    def node(
        self, node_id: int, *, wait: bool = True, seconds: float | None = None
    ) -> Connection:
        """A connection to the broker with this id. Raises Unreachable or TimedOut if none can be
        made within `seconds` (by default `connect_seconds`). With `wait`, a broker that refuses
        connections gets time to start."""
        known = self._connections.get(node_id)
        if known is not None and known.usable:
            return self._ready(known, node_id)
        if known is not None:
            known.retire()
        if node_id not in self.brokers:
            self.refresh()
        if node_id not in self.brokers:
            others = ", ".join(map(str, sorted(self.brokers)))
            raise NotConnected(
                f"the cluster has no broker {node_id}; known brokers: {others or 'none'}")
        address = self.brokers[node_id]
        first = self._first
        if first is not None and first.address == address and first.usable:
            self._connections[node_id] = first
        else:
            self._connections[node_id] = self._advertised(
                node_id, address, wait, self.connect_seconds if seconds is None else seconds)
        return self._ready(self._connections[node_id], node_id)

    def _advertised(
        self, node_id: int, address: Address, wait: bool, seconds: float
    ) -> Connection:
        try:
            return self._connect(address, seconds, wait=wait)
        except (Unreachable, TimedOut) as failed:
            at = ", ".join(show_address(known) for known in self.bootstrap)
            if len(self.brokers) < 2:
                self.refresh()
            # Callers retry after NotConnected, which helps only if there are other brokers.
            kind: type[ClientError] = NotConnected
            if len(self.brokers) < 2:
                kind = NoBroker if isinstance(failed, Unreachable) else TimedOut
                told = (f"{at} advertises broker {node_id} at an address that cannot be reached:"
                        f" {failed}")
            else:
                where = show_address(address)
                reason = str(failed).removeprefix(f"{where}: ")
                told = (f"broker {node_id} is not reachable at {where}: {reason}; the broker may"
                        " be down, or advertise a wrong address")
            raise kind(told) from failed

    def controller(self, *, itself: bool = False) -> Connection:
        """A connection to the controller, for changes of the cluster.

        If the controller cannot be reached, returns a connection to any broker, which forwards the
        changes to the next controller. Use `itself` for data that only the controller has. With
        `itself`, raises NotConnected if the controller is unknown or unreachable; `with_retries`
        then finds the next controller. If a cluster's only broker cannot be reached, raises
        NoBroker or TimedOut.
        """
        if self.controller_id < 0:
            self.refresh()
        if self.controller_id not in self.brokers:
            if itself:
                raise NotConnected("the brokers know no controller at the moment")
            return self.any()
        alone = len(self.brokers) == 1
        # A controller that hangs must leave time for the broker that forwards the request.
        begun, share = time.monotonic(), self.connect_seconds / (1 if alone or itself else 2)
        try:
            return self.node(self.controller_id, wait=alone, seconds=share)
        except NotConnected as failed:
            if itself:
                raise NotConnected(f"the controller cannot be reached: {failed}") from failed
            other = self.any()
            passed = time.monotonic() - begun
            other.wait_at_most(max(self.request_seconds - passed, self.request_seconds / 2))
            if other.who:
                other.who += f", which forwards it to the controller, broker {self.controller_id}"
            return other

    def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        """A connection to the coordinator of a group or of a transactional id; waits until the
        coordinator is available."""
        return self.node(self.coordinator_id(key, kind))

    def coordinator_id(self, key: str, kind: int = GROUP) -> int:
        """The broker id of the coordinator of a group or of a transactional id."""
        if (kind, key) not in self._coordinators:
            self._coordinators[kind, key] = self.with_retries(
                lambda: self._find(key, kind), again=True
            )
        return self._coordinators[kind, key]

    def _find(self, key: str, kind: int) -> int:
        connection = self.any()
        version = connection.version_of(FindCoordinatorRequest.API_KEY)
        if version < 4:
            answer = connection.call(FindCoordinatorRequest(key=key, key_type=kind), version)
        else:
            asked = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            [answer] = connection.call(asked, version).coordinators
        about = "transactional id" if kind == TRANSACTION else "group"
        check(answer.error_code, answer.error_message, f"{about} {key!r}")
        self.brokers.setdefault(answer.node_id, (answer.host, answer.port))
        return int(answer.node_id)

    def with_retries(
        self, ask: Callable[[], Any], also: Container[ErrorCode] = (), *, again: bool = False
    ) -> Any:
        """Calls `ask`, and retries while it raises NotConnected, or Refused with a code in MOVED,
        EARLY or `also`.

        With `again`, also retries after a broken connection or a timeout, although the broker may
        already have executed the request. NoBroker is raised without a retry.
        """
        deadline = time.monotonic() + self.patience_seconds
        moved = False
        while True:
            try:
                if moved:
                    self._coordinators.clear()
                    self.refresh()
                    moved = False
                return ask()
            except Refused as refused:
                passes = refused.code in MOVED | EARLY or refused.code in also
                if not passes or time.monotonic() > deadline:
                    raise
                moved = refused.code in MOVED
            except NoBroker:
                raise
            except (Unreachable, TimedOut) as lost:
                repeatable = again or moved or isinstance(lost, NotConnected)
                if not repeatable or time.monotonic() > deadline:
                    raise
                moved = True
            time.sleep(BACKOFF_SECONDS)

    def timeout_ms(self, asked: Connection) -> int:
        """The `timeout_ms` of a request on this connection: how long the broker should wait for the
        controller. The broker's answer about a failure should arrive while this client waits."""
        seconds = min(self.patience_seconds, 0.8 * asked.request_seconds)
        return min(int(seconds * 1000), INT32_MOST)

    def supports(self, key: int, version: int = 0) -> bool:
        """Whether the broker of `any` supports an API, in this version or a newer one."""
        try:
            return self.any().version_of(key) >= version
        except NotSupported:
            return False

    def close(self) -> None:
        """Closes all connections."""
        for connection in [*self._connections.values(), *([self._first] if self._first else [])]:
            connection.close()
        self._connections.clear()
        self._first = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Refused):
            own = self.security.principal
            # "" if a command has two clients with different users: either may have been refused
            error.user = own if error.user in (None, own) else ""
            from ottla.client.similar_names import add_similar_names

            add_similar_names(self, error)
        self.close()
