"""Several whole brokers inside the test process, with a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.broker.cluster.clustered_start import Clustered
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.log.files.disk import Disk
from ottla.replication.coordination import Operation
from ottla.wire.messages import (
    CreateTopicsRequest,
)
from tests.broker.running import TIMEOUT_SECONDS, WireClient, end_loop
from tests.fakes import LeapingClock
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer


def clustered(server: Server) -> Clustered:
    """The role of a broker in its cluster."""
    role = server.broker.role
    assert isinstance(role, Clustered)
    return role


class RunningCluster:
    """Brokers on one loop in a thread, each on a free port. A broker that is stopped and started
    again keeps its port and its directory."""

    def __init__(
        self, directory: Path, brokers: int = 3, disks: dict[int, Disk] | None = None,
        **overrides: object,
    ) -> None:
        self.directory = directory
        factor = min(brokers, 3) or 1
        self.overrides = {
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            **{name.replace("_", "."): value for name, value in overrides.items()},
        }
        self.clock = LeapingClock()
        self.loop = BrokerLoop(self.clock)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.zookeeper = ZooKeeperServer()
        self.servers: dict[int, Server] = {}
        self.sessions: dict[int, MemoryCoordination] = {}
        self.ports: dict[int, int] = {}
        self.disks = disks or {}
        for node_id in range(1, brokers + 1):
            self.start(node_id)

    def config(self, node_id: int, **overrides: object) -> BrokerConfig:
        """A broker's settings."""
        settings = {
            "node.id": node_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports.get(node_id, 0)}",
            "log.dirs": self.directory / f"broker-{node_id}",
            "zookeeper.connect": "in-memory:1",
            **self.overrides,
            **{name.replace("_", "."): value for name, value in overrides.items()},
        }
        return BrokerConfig.load(None, [f"{name}={value}" for name, value in settings.items()])

    def run(self, coroutine: Any) -> Any:
        """Run something on the brokers' loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_SECONDS)

    def one(self, node_id: int) -> OneOfThem:
        """One broker, for helpers that are made for a standalone broker."""
        return OneOfThem(self, self.servers[node_id])

    def start(
        self, node_id: int, begun: list[Server] | None = None, **overrides: object
    ) -> Server:
        """Start a broker. The server is added to `begun` before it starts. Raises what its start
        raises."""
        config = self.config(node_id, **overrides)

        async def started() -> Server:
            session = MemoryCoordination(self.zookeeper)
            server = Server(config, self.disks.get(node_id), self.clock, coordination=session)
            if begun is not None:
                begun.append(server)
            await server.start()
            self.sessions[node_id] = session
            # The placement of replicas depends on the number of earlier metadata records, so the
            # record of the producer ids must be among them.
            if (keeping := server.broker.producer_ids.keeping) is not None:
                await asyncio.wait([keeping], timeout=1)
            return server

        server = self.servers[node_id] = self.run(started())
        self.ports[node_id] = server.listeners[0].port
        return server

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly."""
        self.run(self.servers.pop(node_id).stop())
        del self.sessions[node_id]

    def expire(self, node_id: int) -> None:
        """ZooKeeper ends a broker's session; the broker keeps running."""

        async def expired() -> None:
            self.zookeeper.expire(self.sessions[node_id].session_id)

        self.run(expired())

    def until(self, true: Any, what: str) -> None:
        """Wait, on the brokers' loop, until a condition is true."""

        async def waited() -> None:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not true():
                    turn = self.loop.create_future()
                    self.loop.call_later(0.01, turn.set_result, None)
                    await turn

        try:
            self.run(waited())
        except TimeoutError:
            raise AssertionError(f"not in time: {what}") from None

    def leap(self, seconds: float) -> None:
        """Advance the clock of all brokers; ZooKeeper's sessions have no timeouts."""
        self.clock.passed_seconds += seconds

    def client(self, node_id: int) -> WireClient:
        """A connection to one broker."""
        return WireClient(("127.0.0.1", self.ports[node_id]))

    @property
    def controller(self) -> int:
        """The broker that is the controller."""
        (found,) = [n for n, s in self.servers.items() if s.metadata_log.is_controller]
        return found

    def close(self) -> None:
        """Stop everything."""
        for node_id in list(self.servers):
            self.stop(node_id)
        end_loop(self.loop, self.thread)

    def __enter__(self) -> RunningCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class OneOfThem:
    """A broker of a cluster, with what helpers use of a standalone broker."""

    cluster: RunningCluster
    server: Server

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something on the brokers' loop and return its result."""

        async def called() -> Any:
            return function(*arguments)

        return self.cluster.run(called())


def create(cluster: RunningCluster, node_id: int, name: str, partitions: int, factor: int) -> int:
    """Create a topic through one broker; returns the error code."""
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.Topic(
                name=name, num_partitions=partitions, replication_factor=factor, assignments=[],
                configs=[],
            )
        ],
        timeout_ms=10_000,
    )
    with cluster.client(node_id) as client:
        return int(client.call(request, 5).topics[0].error_code)


def leaders(server: Server, topic: str) -> list[int]:
    return [state.leader for state in server.metadata_log.image.topics[topic].partitions]


def lose_next_write(cluster: RunningCluster, session: MemoryCoordination) -> None:
    """Break the connection before the next write arrives at ZooKeeper; the session lasts."""
    send = session.multi

    def never_arrives(operations: Sequence[Operation]) -> Awaitable[None]:
        session.multi = send                    # type: ignore[method-assign]
        asked = send(operations)
        session.cut()
        cluster.loop.call_later(0.05, session.join)
        return asked

    session.multi = never_arrives               # type: ignore[method-assign]
