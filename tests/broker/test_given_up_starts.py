"""A start in a cluster that waits for a controller: a signal ends it, and what makes the broker
unusable meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import service
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.sources import Sources
from ottla.replication.registration import path_of
from tests.broker.cluster.running_cluster import RunningCluster
from tests.simulation.zookeeper import MemoryCoordination


class WaitingServer:
    """Nobody registers it, until `happens` ends the waiting."""

    happens: Callable[[WaitingServer], None]
    newest: WaitingServer

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.failure: asyncio.Future[str] | None = None
        self.given_up = False
        WaitingServer.newest = self

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.failure = loop.create_future()
        loop.call_soon(WaitingServer.happens, self)
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up = True


def signalled(server: WaitingServer) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def failed(server: WaitingServer) -> None:
    assert server.failure is not None
    server.failure.set_result("ZooKeeper has gone back")


@pytest.mark.parametrize(
    ("happens", "status", "said"),
    [(signalled, 0, ""), (failed, 1, "ottla: ZooKeeper has gone back\n")],
)
def test_a_start_that_waits_is_ended_by_a_signal_and_by_what_makes_the_broker_unusable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path,
    happens: Callable[[WaitingServer], None], status: int, said: str,
) -> None:
    monkeypatch.setattr(service, "Server", WaitingServer)
    monkeypatch.setattr(WaitingServer, "happens", staticmethod(happens), raising=False)
    settings = ["node.id=1", "zookeeper.connect=localhost:1", f"log.dirs={tmp_path}"]
    assert service.run(Sources(None, settings)) == status
    assert WaitingServer.newest.given_up
    assert capfd.readouterr().err.endswith(said)


def test_a_start_that_is_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither the locks of its directories nor a session: the next one begins at once."""
    with RunningCluster(tmp_path, 0) as cluster:
        config = cluster.config(1)

        async def give_up() -> None:
            session = MemoryCoordination(cluster.zookeeper)
            server = Server(config, clock=cluster.clock, coordination=session)
            ask, registered = session.get, asyncio.Event()

            def answered(_: object) -> None:
                if path_of(1) in cluster.zookeeper.nodes:
                    session.cut()               # before it can become the controller
                    registered.set()

            def get(path: str) -> Any:
                asked: Any = ask(path)
                asked.add_done_callback(answered)
                return asked

            session.get = get                   # type: ignore[method-assign]
            starting = asyncio.create_task(server.start())
            await registered.wait()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

        cluster.run(give_up())
        cluster.start(1)
        assert cluster.servers[1].metadata_log.image.is_registered(
            1, cluster.servers[1].member.incarnation)       # type: ignore[union-attr]
