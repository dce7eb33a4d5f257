"""The internal topics are created only with as many replicas as their settings say: with fewer, the
loss of a single machine could lose their records (KIP-115)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.topic_creation import create_missing
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FindCoordinatorRequest, Message
from tests.broker.cluster.running_cluster import RunningCluster, clustered

SETTINGS = {
    "offsets_topic_replication_factor": 3, "offsets_topic_num_partitions": 2,
    "transaction_state_log_replication_factor": 3, "transaction_state_log_num_partitions": 2,
}
TOPICS = ("__consumer_offsets", "__transaction_state")
"""The index is the key type of the topic's coordinators."""


def found(cluster: RunningCluster, node_id: int, kind: int) -> int:
    """Ask a broker for a coordinator; returns the error code."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
    with cluster.client(node_id) as client:
        answer = client.call(request, 4).coordinators[0]
    lacking = "needs 3 brokers (offsets.topic.replication.factor), and 2 are registered; retry"
    if kind == 0 and len(cluster.servers) == 2:
        assert answer.error_message.endswith(lacking), answer
    return int(answer.error_code)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "ottla.topics"]


def test_internal_topics_wait_for_brokers_for_all_their_replicas(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningCluster(tmp_path, 2, **SETTINGS) as cluster:
        for _ in range(3):
            for node_id in cluster.servers:
                for kind in range(len(TOPICS)):
                    code = found(cluster, node_id, kind)
                    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "which clients retry"
        assert not {*TOPICS} & {*cluster.servers[1].metadata_log.image.topics}
        told = said(caplog)
        assert len(told) == len(TOPICS) * len(cluster.servers), "once, however often it is asked"
        assert "only 2 broker(s) are registered (offsets.topic.replication.factor)" in told[0]
        cluster.leap(61)
        assert found(cluster, 1, 0) and said(caplog) == [*told, told[0]], "as it is so still"
        cluster.start(3)
        for kind, topic in enumerate(TOPICS):
            found(cluster, 3, kind)
            image = cluster.servers[1].metadata_log
            cluster.until(lambda t=topic, i=image: t in i.image.topics, "it is created")
            assert {len(each.replicas) for each in image.image.topics[topic].partitions} == {3}


def test_all_who_wait_for_an_internal_topic_ask_the_controller_once(tmp_path: Path) -> None:
    """Such requests share a lane with changes of in-sync sets, so there must be few. A call that
    comes after a refusal asks again."""
    with RunningCluster(tmp_path, 2, **SETTINGS) as cluster:
        server = next(each for n, each in cluster.servers.items() if n != cluster.controller)
        role = clustered(server)
        asked: list[Message] = []

        async def counted(request: Message, *arguments: Any) -> Any:
            asked.append(request)
            return await role.forwarding.ask(request, *arguments)

        async def together() -> None:
            role.ask = counted                                      # type: ignore
            await asyncio.gather(*(create_missing(server.broker, TOPICS[:1]) for _ in range(100)))
            assert len(asked) == 1
            await create_missing(server.broker, TOPICS[:1])
            assert len(asked) == 2, "whoever comes later asks again"

        cluster.run(together())
        cluster.start(3)
        cluster.until(lambda: 3 in server.metadata_log.image.brokers, "it is there")
        cluster.run(create_missing(server.broker, TOPICS[:1]))
        assert TOPICS[0] in server.metadata_log.image.topics, "usable as soon as that returns"
