"""A broker that says nothing any more: its machine has failed, or stands still."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.api import controller as controller_api
from ottla.broker.peers.peers import PeerUnavailable
from ottla.wire.messages import ListOffsetsRequest
from tests.broker.cluster.running_cluster import RunningCluster, create


def test_what_was_forwarded_to_it_is_asked_of_the_next_one_as_soon_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningCluster(tmp_path, 3) as cluster, ThreadPoolExecutor(1) as thread:
        former = cluster.controller
        arrived, serve = threading.Event(), controller_api.serve_inside

        async def silent(context: Any, data: bytes) -> Any:
            if context.broker.node_id != former:
                return await serve(context, data)
            arrived.set()
            return await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(controller_api, "serve_inside", silent)
        asked = thread.submit(create, cluster, former % 3 + 1, "t", 1, 1)
        assert arrived.wait(20)
        session = cluster.sessions[former]

        async def gone() -> None:
            session.cut()
            cluster.zookeeper.expire(session.session_id)

        cluster.run(gone())
        assert asked.result(10) == 0, "before the request itself times out"
        cluster.run(_joined(session))
        cluster.until(lambda: all(
            "t" in server.metadata_log.image.topics and former in server.metadata_log.image.brokers
            for server in cluster.servers.values()), "all know it")


def test_a_broker_that_has_left_the_cluster_is_waited_for_no_more(tmp_path: Path) -> None:
    """Markers of transactions, for instance, go to the new leaders then."""
    with RunningCluster(tmp_path, 3) as cluster:
        silent, other = (node for node in (1, 2, 3) if node != cluster.controller)
        session, peers = cluster.sessions[silent], cluster.servers[other].broker.peers
        assert peers is not None
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[])

        async def asked() -> PeerUnavailable:
            await peers.ask(silent, request, 1)
            for connection in cluster.servers[silent].listeners[0].connections:
                connection.pause()
            session.cut()
            cluster.zookeeper.expire(session.session_id)
            with pytest.raises(PeerUnavailable) as raised:
                async with asyncio.timeout(10):
                    await peers.ask(silent, request, 1)
            return raised.value

        assert cluster.run(asked()).sent, "whether it was served is not known"
        cluster.run(_joined(session))
        cluster.until(
            lambda: silent in cluster.servers[other].metadata_log.image.brokers, "it is back")
        assert cluster.run(peers.ask(silent, request, 1)).topics == []


async def _joined(session: Any) -> None:
    session.join()
