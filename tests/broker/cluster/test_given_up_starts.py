"""Brokers that have to end during a start, while they wait for ZooKeeper or for a controller."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cluster.registrar import Registrar
from ottla.broker.server import Server
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.cluster_store import ClusterStore
from ottla.replication.controller.adoption import PRODUCER_IDS_SKIPPED
from ottla.replication.coordination import Create
from ottla.replication.metadata import MetadataImage
from ottla.replication.registration import path_of
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.running import TIMEOUT_SECONDS
from tests.simulation.zookeeper import MemoryCoordination


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        yield running


@pytest.mark.parametrize("reason", ["is not readable", "stopped before it served"])
def test_a_start_that_waits_for_a_controller_ends_where_the_broker_has_to(
    cluster: RunningCluster, reason: str
) -> None:
    entry = max(path for path in cluster.zookeeper.nodes if path.startswith("/metadata/log/"))
    number = int(entry.rpartition("/")[2]) + 1

    async def away() -> None:
        for session in cluster.sessions.values():
            session.cut()

    async def back() -> None:
        for session in cluster.sessions.values():
            session.join()

    async def end() -> None:
        if reason == "stopped before it served":
            started[-1].give_up_start()
        else:
            cluster.zookeeper.multi(0, [Create(f"/metadata/log/{number:013d}", b"garbage")])

    cluster.run(away())
    started: list[Server] = []
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(cluster.start, 4, started)
        cluster.until(lambda: path_of(4) in cluster.zookeeper.nodes, "it has written who it is")
        cluster.run(end())
        with pytest.raises(StorageRefused, match=reason):
            starting.result()
    assert path_of(4) not in cluster.zookeeper.nodes
    cluster.run(back())
    cluster.until(
        lambda: any(server.metadata_log.is_controller for server in cluster.servers.values())
        or all(server.failure.done() for server in cluster.servers.values()),
        "the others go on, or end as well",
    )
    if reason == "stopped before it served":
        cluster.start(4)                # locks and session of the former start are gone


def test_a_new_broker_whose_first_start_was_killed_raises_no_leader_epochs(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directories belong to the cluster already, but do not say how far the broker has read the
    metadata. The same holds after an accepted backup, when logs may be later than the metadata.
    This broker has no logs."""
    assert create(cluster, 1, "t", 3, 3) == 0
    log, at = cluster.servers[1].metadata_log, cluster.directory / "broker-4"

    async def killed(*_: object) -> None:
        shutil.copytree(at, tmp_path / "left")
        raise StorageRefused("it is killed")

    with monkeypatch.context() as patched:
        patched.setattr(Registrar, "register", killed)
        with pytest.raises(StorageRefused, match="killed"):
            cluster.start(4)
    shutil.rmtree(at)
    (tmp_path / "left").rename(at)
    topic, next_id = log.image.topics["t"], log.image.next_producer_id
    cluster.start(4)
    cluster.until(lambda: 4 in log.image.brokers, "it is known")
    assert log.image.topics["t"] == topic
    assert log.image.next_producer_id - next_id < PRODUCER_IDS_SKIPPED, "no more than blocks"


def test_a_start_whose_connection_breaks_registers_over_the_next_one(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_first(registrar: Registrar, *arguments: Any) -> None:
        session = registrar.coordination
        assert isinstance(session, MemoryCoordination)
        session.cut()
        cluster.loop.call_soon(session.join)        # runs once a registration has failed
        await registered(registrar, *arguments)

    registered = Registrar.register
    monkeypatch.setattr("ottla.broker.cluster.registrar.REGISTER_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(Registrar, "register", cut_first)
    cluster.start(4)
    assert path_of(4) in cluster.zookeeper.nodes


def test_a_start_whose_connection_breaks_reads_the_metadata_over_the_next_one(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by seed 16 of the simulation, with three brokers."""
    async def cut_first(store: ClusterStore, cluster_id: str) -> MetadataImage:
        session = store.coordination
        assert isinstance(session, MemoryCoordination)
        monkeypatch.setattr(ClusterStore, "load", load)
        session.cut()
        cluster.loop.call_soon(session.join)
        return await load(store, cluster_id)

    load = ClusterStore.load
    monkeypatch.setattr("ottla.broker.cluster.cluster_session.AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(ClusterStore, "load", cut_first)
    cluster.start(4)
    assert path_of(4) in cluster.zookeeper.nodes and ClusterStore.load is load


def test_a_start_that_does_not_reach_zookeeper_ends_when_it_is_asked_to_stop(
    cluster: RunningCluster,
) -> None:
    events: list[str] = []

    async def start() -> None:
        connecting = asyncio.Event()

        class Unreachable(MemoryCoordination):
            async def start(self) -> None:
                connecting.set()
                try:
                    await cluster.loop.create_future()
                finally:
                    events.append("given up")

        session = Unreachable(cluster.zookeeper)
        server = Server(cluster.config(4), None, cluster.clock, coordination=session)
        starting = asyncio.ensure_future(server.start())
        await connecting.wait()
        server.give_up_start()
        with pytest.raises(StorageRefused, match="the broker was stopped before"):
            async with asyncio.timeout(TIMEOUT_SECONDS / 2):
                await starting
        assert events == ["given up"], "nothing goes on in the background"

    cluster.run(start())
    cluster.start(4)
