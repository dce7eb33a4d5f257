"""A broker that does not lead a partition names the one that does, and its address (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DeleteRecordsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, produce_request

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path_factory.mktemp("leaders"), 3, broker_rack="r") as running:
        assert create(running, 1, "copied", 3, 3) == 0
        assert create(running, 1, "single", 3, 1) == 0
        for server in running.servers.values():
            running.until(
                lambda s=server: {"copied", "single"} <= s.metadata_log.image.topics.keys(),
                "the topics are seen",
            )
        yield running


def topic_of(cluster: RunningCluster, name: str) -> Any:
    return cluster.servers[1].metadata_log.image.topics[name]


def elsewhere(cluster: RunningCluster, name: str, index: int) -> tuple[int, int]:
    """The leader of a partition, and a broker that does not lead it."""
    leader = topic_of(cluster, name).partitions[index].leader
    return leader, leader % 3 + 1


def endpoints(cluster: RunningCluster, answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(e.node_id, e.host, e.port, e.rack) for e in answer.node_endpoints]


@pytest.mark.parametrize("topic", ["copied", "single"])
@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_produce_names_the_leader(cluster: RunningCluster, topic: str, version: int) -> None:
    leader, other = elsewhere(cluster, topic, 1)
    name = topic_of(cluster, topic).topic_id if version >= 13 else topic
    with cluster.client(other) as client:
        answer = client.call(produce_request(name, batch(b"v"), partition=1), version)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == NOT_LEADER
        if version < 10:
            return
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, 0)
        assert endpoints(cluster, answer) == [(leader, "127.0.0.1", cluster.ports[leader], "r")]
    with cluster.client(leader) as client:
        answer = client.call(produce_request(name, batch(b"v"), partition=1), version)
        (part,) = answer.responses[0].partition_responses
        assert (part.error_code, part.current_leader.leader_id) == (0, -1)
        assert answer.node_endpoints == []


def fetched(
    cluster: RunningCluster, node_id: int, topic: str, indexes: tuple[int, ...], version: int,
    epoch: int = -1,
) -> Any:
    made = FetchRequest.Topic
    item = made(**({"topic_id": topic_of(cluster, topic).topic_id} if version >= 13
                   else {"topic": topic}))
    item.partitions = [
        made.Partition(
            partition=index, fetch_offset=0, current_leader_epoch=epoch,
            partition_max_bytes=1 << 20, last_fetched_epoch=-1,
        ) for index in indexes
    ]
    with cluster.client(node_id) as client:
        return client.call(
            FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[item]), version
        )


@pytest.mark.parametrize("topic", ["copied", "single"])
@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_fetch_names_the_leaders_of_all_partitions(
    cluster: RunningCluster, topic: str, version: int
) -> None:
    answer = fetched(cluster, 1, topic, (0, 1, 2), version)
    leaders = [state.leader for state in topic_of(cluster, topic).partitions]
    found = {part.partition_index: part for part in answer.responses[0].partitions}
    for index, leader in enumerate(leaders):
        part = found[index]
        assert part.error_code == (0 if leader == 1 else NOT_LEADER)
        named = leader if leader != 1 and version >= 16 else -1
        assert part.current_leader.leader_id == named
    expected = [
        (n, "127.0.0.1", cluster.ports[n], "r") for n in dict.fromkeys(leaders) if n != 1
    ]
    assert sorted(endpoints(cluster, answer)) == (sorted(expected) if version >= 16 else [])


def test_a_fenced_epoch_is_answered_with_the_current_one(cluster: RunningCluster) -> None:
    node_id = next(n for n in cluster.servers if n != cluster.controller)
    cluster.stop(node_id)
    cluster.start(node_id)
    states = topic_of(cluster, "copied").partitions
    index = next(n for n, state in enumerate(states) if state.leader_epoch > 0)
    leader = states[index].leader
    cluster.until(
        lambda: cluster.servers[leader].replicas.partition("copied", index).leader_epoch
        == states[index].leader_epoch, "the leader knows its epoch",
    )
    answer = fetched(cluster, leader, "copied", (index,), 17, epoch=0)
    (part,) = answer.responses[0].partitions
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part.current_leader.leader_id == leader
    assert part.current_leader.leader_epoch == states[index].leader_epoch
    assert [each.node_id for each in answer.node_endpoints] == [leader]


def test_every_api_refuses_where_there_is_no_replica_so_that_clients_ask_for_metadata(
    cluster: RunningCluster,
) -> None:
    _, other = elsewhere(cluster, "single", 0)
    lists, epochs = ListOffsetsRequest, OffsetForLeaderEpochRequest
    deletes = DeleteRecordsRequest
    with cluster.client(other) as client:
        asked = lists.Topic(name="single", partitions=[
            lists.Topic.Partition(partition_index=0, timestamp=-1)
        ])
        (topic,) = client.call(lists(replica_id=-1, topics=[asked]), 5).topics
        assert topic.partitions[0].error_code == NOT_LEADER
        asked = epochs.Topic(topic="single", partitions=[
            epochs.Topic.Partition(partition=0, leader_epoch=0)
        ])
        (topic,) = client.call(epochs(replica_id=-1, topics=[asked]), 4).topics
        assert topic.partitions[0].error_code == NOT_LEADER
        asked = deletes.Topic(name="single", partitions=[
            deletes.Topic.Partition(partition_index=0, offset=0)
        ])
        (topic,) = client.call(deletes(topics=[asked], timeout_ms=1000), 2).topics
        assert topic.partitions[0].error_code == NOT_LEADER


def test_an_internal_topic_is_refused_by_its_id_wherever_its_first_partition_is(
    tmp_path: Path
) -> None:
    with RunningCluster(
        tmp_path, 3, offsets_topic_replication_factor=1, offsets_topic_num_partitions=3
    ) as cluster:
        with cluster.client(1) as client:
            client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
        topic = topic_of(cluster, "__consumer_offsets")
        for index, state in enumerate(topic.partitions):
            server = cluster.servers[state.leader]
            cluster.until(
                lambda s=server: "__consumer_offsets" in s.metadata_log.image.topics, "it is seen"
            )
            with cluster.client(state.leader) as client:
                asked = produce_request(topic.topic_id, batch(b"v"), partition=index)
                (part,) = client.call(asked, 13).responses[0].partition_responses
                assert part.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
