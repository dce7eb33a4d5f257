"""A broker that no longer answers: its machine has failed, or is suspended."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.api import controller as controller_api
from ottla.broker.api import quorum as quorum_api
from ottla.broker.peers.peers import PeerUnavailable
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ListOffsetsRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, clustered, create


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


def test_the_quorum_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent voter's offset is not known; a silent controller is not shown as the leader."""
    monkeypatch.setattr(quorum_api, "ASK_SECONDS", 0.3)
    with RunningCluster(tmp_path, 3) as cluster:
        silent, asked, deciding = sorted((1, 2, 3), key=lambda node: node == cluster.controller)
        topic = DescribeQuorumRequest.Topic
        request = DescribeQuorumRequest(topics=[topic(
            topic_name="__cluster_metadata", partitions=[topic.Partition(partition_index=0)])])

        def described() -> DescribeQuorumResponse.Topic.Partition:
            with cluster.client(asked) as client:
                (part,) = client.call(request, 2).topics[0].partitions
            return part

        def offsets() -> dict[int, int]:
            return {each.replica_id: each.log_end_offset for each in described().current_voters}

        async def fall_silent(node: int) -> None:
            for connection in cluster.servers[node].listeners[0].connections:
                connection.pause()

        assert min(offsets().values()) > 0
        cluster.run(fall_silent(silent))
        found = offsets()
        assert found[silent] == -1 and found[asked] > 0 and found[deciding] > 0
        assert any(offsets()[silent] > 0 for _ in range(20)), "a new connection is served"
        cluster.run(fall_silent(deciding))
        part = described()
        assert (part.error_code, part.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, 0), part
        assert part.error_message == (
            f"Broker {deciding}, the last controller that broker {asked} knows, does not answer.")


def test_a_broker_that_has_left_the_cluster_is_waited_for_no_more(tmp_path: Path) -> None:
    """Requests such as transaction markers can then go to the new leaders."""
    with RunningCluster(tmp_path, 3) as cluster:
        silent, other = (node for node in (1, 2, 3) if node != cluster.controller)
        session, peers = cluster.sessions[silent], clustered(cluster.servers[other]).peers
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
