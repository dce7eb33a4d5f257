"""A broker that does not lead a partition names the leader and its address (KIP-951)."""

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
    ProduceRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, clustered, create
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


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[RunningCluster]:
    """Three brokers with a replicated topic. Followers no longer fetch, so acks=all waits."""
    with RunningCluster(tmp_path, 3, broker_rack="r") as running:
        assert create(running, 1, "copied", 3, 3) == 0
        for server in running.servers.values():
            running.until(
                lambda s=server: "copied" in s.metadata_log.image.topics, "the topic is seen"
            )
        for server in running.servers.values():
            running.run(called(clustered(server).fetchers.close))
        yield running


async def called(function: Any) -> Any:
    """Call a function on the brokers' loop."""
    return function()


def declare_gone(cluster: RunningCluster, node_id: int) -> None:
    """Have the controller remove a broker that goes on running."""
    member = cluster.servers[cluster.controller].member
    assert member is not None
    cluster.run(called(lambda: member.controller.refused(node_id)))


def everywhere(topic: Any, version: int, indexes: tuple[int, ...]) -> ProduceRequest:
    """A produce with acks=all to several partitions of one topic."""
    made = ProduceRequest.TopicData
    named = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
    return ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[made(**named, partition_data=[
        made.PartitionData(index=index, records=batch(b"v")) for index in indexes
    ])])


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_produce_that_waits_names_the_new_leader_when_leadership_moves(
    waiting: RunningCluster, version: int
) -> None:
    cluster = waiting
    leader = next(n for n in cluster.servers if n != cluster.controller)
    topic = topic_of(cluster, "copied")
    indexes = (2, 0, 1)
    (led,) = (at for at in indexes if topic.partitions[at].leader == leader)
    partition = cluster.servers[leader].replicas.partition("copied", led)
    assert partition is not None
    with cluster.client(leader) as client:
        # Two partitions are refused at once; the third, between or after them, waits. The second
        # request on the connection has only the partition that waits.
        sent = [client.send(everywhere(topic, version, indexes), version)]
        cluster.until(lambda: partition.log.log_end_offset == 1, "it is appended")
        sent.append(client.send(everywhere(topic, version, (led,)), version))
        cluster.until(lambda: partition.log.log_end_offset == 2, "so is the second")
        declare_gone(cluster, leader)
        both, single = [client.answer(each) for each in sent]
    cluster.until(
        lambda: topic_of(cluster, "copied").partitions[led].leader not in (-1, leader), "it moves"
    )
    moved = topic_of(cluster, "copied").partitions[led]
    found = {part.index: part for part in both.responses[0].partition_responses}
    assert [part.error_code for part in found.values()] == [NOT_LEADER] * 3
    assert [found[at].base_offset for at in indexes] == [0 if at == led else -1 for at in indexes]
    (alone,) = single.responses[0].partition_responses
    assert (alone.error_code, alone.base_offset, alone.index) == (NOT_LEADER, 1, led)
    if version < 10:
        assert both.node_endpoints == single.node_endpoints == []
        return
    for part in (found[led], alone):
        assert part.current_leader.leader_id == moved.leader
        assert part.current_leader.leader_epoch == 1
    for index in set(indexes) - {led}:
        assert found[index].current_leader.leader_id == topic.partitions[index].leader
    named = {n: (n, "127.0.0.1", cluster.ports[n], "r") for n in cluster.servers}
    others = [topic.partitions[at].leader for at in indexes if at != led]
    assert sorted(endpoints(cluster, both)) == sorted(named[n] for n in {*others, moved.leader})
    assert endpoints(cluster, single) == [named[moved.leader]]


def test_a_produce_that_waits_too_long_names_nobody(waiting: RunningCluster) -> None:
    cluster = waiting
    topic = topic_of(cluster, "copied")
    request = everywhere(topic, 12, (0,))
    request.timeout_ms = 100
    with cluster.client(topic.partitions[0].leader) as client:
        answer = client.call(request, 12)
    (part,) = answer.responses[0].partition_responses
    assert (part.error_code, part.current_leader.leader_id) == (ErrorCode.REQUEST_TIMED_OUT, -1)
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


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_fetch_names_the_leaders_of_all_partitions(cluster: RunningCluster, version: int) -> None:
    answer = fetched(cluster, 1, "single", (0, 1, 2), version)
    leaders = [state.leader for state in topic_of(cluster, "single").partitions]
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
    follower = cluster.servers[leader % 3 + 1]
    cluster.until(
        lambda: follower.replicas.partition("copied", index).leader_epoch
        == states[index].leader_epoch, "a follower knows it, too",
    )
    for asked in (leader, leader % 3 + 1):
        answer = fetched(cluster, asked, "copied", (index,), 17, epoch=0)
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
