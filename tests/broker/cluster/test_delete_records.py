"""DeleteRecords (KIP-107) is answered once all live replicas have deleted the records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.frames import Sent
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import DeleteRecordsRequest, DeleteTopicsRequest
from tests.broker.cluster.running_cluster import RunningCluster, clustered, create
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import WireClient


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 3, replica_fetch_wait_max_ms=100) as running:
        assert create(running, 1, "t", 1, 3) == 0
        with running.client(leader_of(running)) as client:
            assert produce(client, "t", batch(b"a", b"b", b"c", b"d")).error_code == 0
        yield running


def leader_of(cluster: RunningCluster) -> int:
    return cluster.servers[min(cluster.servers)].metadata_log.image.topics["t"].partitions[0].leader


def starts(cluster: RunningCluster) -> dict[int, int]:
    found = {}
    for node_id, server in cluster.servers.items():
        partition = server.replicas.partition("t", 0)
        assert partition is not None
        found[node_id] = partition.log.log_start_offset
    return found


def delete(cluster: RunningCluster, offset: int, timeout_ms: int = 20_000) -> Any:
    made = DeleteRecordsRequest.Topic
    item = made(name="t", partitions=[made.Partition(partition_index=0, offset=offset)])
    with cluster.client(leader_of(cluster)) as client:
        answer = client.call(DeleteRecordsRequest(topics=[item], timeout_ms=timeout_ms), 2)
    (part,) = answer.topics[0].partitions
    return part


def test_all_replicas_have_deleted_when_it_is_answered(cluster: RunningCluster) -> None:
    part = delete(cluster, 2)
    assert (part.error_code, part.low_watermark) == (0, 2)
    assert starts(cluster) == {1: 2, 2: 2, 3: 2}
    part = delete(cluster, 1)
    assert (part.error_code, part.low_watermark) == (0, 2), "an offset below changes nothing"
    part = delete(cluster, -1)
    assert (part.error_code, part.low_watermark) == (0, 4)
    assert starts(cluster) == {1: 4, 2: 4, 3: 4}


def test_a_broker_that_is_away_is_not_waited_for_and_deletes_when_it_is_back(
    cluster: RunningCluster,
) -> None:
    away = leader_of(cluster) % 3 + 1
    cluster.stop(away)
    part = delete(cluster, 3)
    assert (part.error_code, part.low_watermark) == (0, 3)
    cluster.start(away)
    cluster.until(lambda: starts(cluster)[away] == 3, "it deletes, too")


def one_stops_fetching(cluster: RunningCluster) -> None:
    fetchers = clustered(cluster.servers[leader_of(cluster) % 3 + 1]).fetchers
    assert fetchers is not None

    async def close() -> None:
        fetchers.close()

    cluster.run(close())


def asked_in_vain(cluster: RunningCluster, client: WireClient) -> Sent:
    """Send the leader a request, which waits for a replica that does not fetch."""
    one_stops_fetching(cluster)
    partition = cluster.servers[leader_of(cluster)].replicas.partition("t", 0)
    assert partition is not None
    made = DeleteRecordsRequest.Topic
    item = made(name="t", partitions=[made.Partition(partition_index=0, offset=3)])
    sent = client.send(DeleteRecordsRequest(topics=[item], timeout_ms=20_000), 2)
    cluster.until(lambda: partition.start_watchers, "it waits")
    return sent


def test_a_replica_that_does_not_fetch_lets_the_time_run_out(cluster: RunningCluster) -> None:
    one_stops_fetching(cluster)
    part = delete(cluster, 3, timeout_ms=300)
    assert (part.error_code, part.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    part = delete(cluster, 3, timeout_ms=-1)
    assert (part.error_code, part.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    partition = cluster.servers[leader_of(cluster)].replicas.partition("t", 0)
    assert partition is not None and partition.start_watchers == {}


def test_who_waits_is_told_when_another_broker_leads(cluster: RunningCluster) -> None:
    leader = leader_of(cluster)
    with cluster.client(leader) as client:
        sent = asked_in_vain(cluster, client)

        async def refused() -> None:
            member = cluster.servers[cluster.controller].member
            assert member is not None
            if cluster.controller == leader:
                cluster.zookeeper.expire(cluster.sessions[leader].session_id)
            else:
                member.controller.refused(leader)

        cluster.run(refused())
        (part,) = client.answer(sent).topics[0].partitions
    assert (part.error_code, part.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def remove_topic(client: WireClient) -> None:
    made = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=10_000)
    assert client.call(made, 6).responses[0].error_code == 0


def test_who_waits_is_told_when_the_topic_is_deleted(cluster: RunningCluster) -> None:
    leader = leader_of(cluster)
    with cluster.client(leader) as client, cluster.client(cluster.controller) as other:
        sent = asked_in_vain(cluster, client)
        remove_topic(other)
        (part,) = client.answer(sent).topics[0].partitions
    assert (part.error_code, part.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_deleted_while_the_log_start_is_made_durable_is_not_waited_for_by_its_name(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    leader = leader_of(cluster)
    broker = cluster.servers[leader].broker
    held: list[asyncio.Future[None]] = []

    async def slowly(keys: object) -> set[object]:
        held.append(cluster.loop.create_future())
        await held[0]
        return set()

    monkeypatch.setattr(broker.checkpoints, "log_starts", slowly)
    made = DeleteRecordsRequest.Topic
    item = made(name="t", partitions=[made.Partition(partition_index=0, offset=3)])
    with cluster.client(leader) as client, cluster.client(cluster.controller) as other:
        sent = client.send(DeleteRecordsRequest(topics=[item], timeout_ms=300), 2)
        cluster.until(lambda: held, "the log start is being written")
        remove_topic(other)
        cluster.until(lambda: "t" not in broker.image.topics, "it is gone")
        if again:
            assert create(cluster, 1, "t", 1, 3) == 0
            cluster.until(lambda: broker.replicas.partition("t", 0) is not None, "a new one")
        cluster.loop.call_soon_threadsafe(held[0].set_result, None)
        (part,) = client.answer(sent).topics[0].partitions
    assert (part.error_code, part.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
