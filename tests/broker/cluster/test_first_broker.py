"""A standalone broker becomes the first broker of a cluster (`ottla cluster create`). Its data are
served and continued, and are copied to brokers that join."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.groups.records import Producer
from ottla.log.files.checkpoints import HIGH_WATERMARKS
from ottla.log.files.disk import Disk
from ottla.log.storage import member_marks
from ottla.tools.cli.cluster_create import Creation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.broker import topics, transactions
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.transactions import OK, READ_COMMITTED
from tests.simulation.zookeeper import MemoryCoordination
from tests.tools.kafka_directory import NODE as KAFKAS_NODE
from tests.tools.kafka_directory import write_kafka
from tests.tools.logs import run

FIRST = 0
"""The default node.id of a standalone broker."""
AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
INTERNAL = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}


class Before:
    """The state of a standalone broker with data, before it becomes the first of a cluster."""

    def __init__(self, directory: Path) -> None:
        with RunningBroker(directory, None, node_id=FIRST, **INTERNAL) as broker:
            client = WireClient(broker.address)
            for topic in ("plain", "open"):
                topics.create(client, topic)
            self.idempotent = producer_id(client)
            assert sent(client, self.idempotent, 0) == (0, 0)
            transactions.find(client, "x")
            self.producer: Producer = transactions.init(client, "x")
            assert transactions.add(client, "x", self.producer, "open", 0) == [OK]
            assert transactions.write(client, "x", self.producer, "open", b"in doubt") == OK
            committed(client, 5)
            server = broker.server
            self.epochs = {repr(p): p.leader_epoch for p in server.replicas}
            self.cluster_id = server.storage.cluster_id
            client.close()


def producer_id(client: WireClient) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = client.call(request, 4)
    assert answer.error_code == 0
    return int(answer.producer_id)


def sent(client: WireClient, producer: int, sequence: int) -> tuple[int, int]:
    """Produce an idempotent batch of one record; returns its error code and offset."""
    records = batch(b"v%d" % sequence, producer_id=producer, producer_epoch=0,
                    base_sequence=sequence)
    answer = produce(client, "plain", records)
    return answer.error_code, answer.base_offset


def committed(client: WireClient, offset: int | None = None) -> int:
    """Commit an offset for the group `g`, or read the committed one if `offset` is None."""
    transactions.find(client, "g", 0)
    if offset is None:
        made = OffsetFetchRequest.Topic
        request = OffsetFetchRequest(group_id="g", topics=[
            made(name="plain", partition_indexes=[0])
        ])
        answer = client.call(request, 5)
        assert answer.error_code == 0
        return int(answer.topics[0].partitions[0].committed_offset)
    commit = OffsetCommitRequest.Topic
    row = commit.Partition(partition_index=0, committed_offset=offset, committed_metadata="")
    answer = client.call(
        OffsetCommitRequest(group_id="g", topics=[commit(name="plain", partitions=[row])]), 5)
    assert answer.topics[0].partitions[0].error_code == 0
    return offset


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 0, None, **INTERNAL) as running:
        yield running


def become_first(cluster: RunningCluster, node_id: int = FIRST) -> None:
    config, disk = cluster.config(node_id), Disk()
    directories = member_marks.open_stopped(disk, [str(p) for p in config.log_directories()])
    creation = Creation(config, disk, directories)

    async def all_of_it() -> None:
        session = MemoryCoordination(cluster.zookeeper)
        await session.start()
        await creation.run(session, lambda: True)
        await session.stop()

    cluster.run(all_of_it())
    member_marks.close_all(directories)


def until_ok(cluster: RunningCluster, ask: Any, *arguments: Any, node_id: int = FIRST) -> Any:
    """Retry a request at a broker, as clients do; returns the last answer."""
    answers: list[Any] = []

    def answered() -> bool:
        with cluster.client(node_id) as client:
            answers.append(ask(client, *arguments))
        return answers[-1] not in AGAIN

    for _ in range(200):
        if answered():
            break
        cluster.run(pause(cluster))
    return answers[-1]


async def pause(cluster: RunningCluster) -> None:
    turn = cluster.loop.create_future()
    cluster.loop.call_later(0.02, turn.set_result, None)
    await turn


def test_it_goes_on_with_everything_that_it_had(cluster: RunningCluster, tmp_path: Path) -> None:
    before = Before(tmp_path / "broker-0")
    become_first(cluster)
    (tmp_path / "broker-0" / HIGH_WATERMARKS).unlink()
    server = cluster.start(FIRST)
    assert server.storage.cluster_id == before.cluster_id
    for partition in server.replicas:
        assert partition.led_here and partition.high_watermark == partition.log.log_end_offset
        if repr(partition) in before.epochs:
            assert partition.leader_epoch > before.epochs[repr(partition)]
    with cluster.client(FIRST) as client:
        assert values(fetch(client, "plain")) == [b"v0"]
        assert sent(client, before.idempotent, 0) == (0, 0), "a retry is known as one"
        assert sent(client, before.idempotent, 1) == (0, 1)
        assert transactions.end_offset(client, "open", READ_COMMITTED) == 0, "it is still open"
        assert producer_id(client) > max(before.idempotent, before.producer.producer_id)
    assert until_ok(cluster, lambda client: committed(client)) == 5
    ended = until_ok(cluster, transactions.end, "x", before.producer, True)
    assert isinstance(ended, Producer)
    with cluster.client(FIRST) as client:
        cluster.until(
            lambda: server.replicas.partition("open", 0).last_stable_offset() == 2, "it has ended")
        assert values(fetch(client, "open", isolation_level=1))[0] == b"in doubt"
    cluster.stop(FIRST)
    again = cluster.start(FIRST)
    assert again.session is not None and not again.session.adopts
    assert (tmp_path / "broker-0" / member_marks.ASIDE).is_dir(), "kept, and no partition's"
    assert not list((tmp_path / "broker-0").glob("*-stray"))


def test_it_has_a_new_leader_epoch_and_is_trusted_though_others_were_first(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """A new broker may start first. It becomes the controller, and the partitions have no leader
    until the broker with their logs starts."""
    before = Before(tmp_path / "broker-0")
    become_first(cluster)
    cluster.start(1)
    image = cluster.servers[1].metadata_log.image
    assert image.topics["plain"].partitions[0].leader == -1
    assert create(cluster, 1, "new", 1, 1) == 0
    server = cluster.start(FIRST)
    state = server.metadata_log.image.topics["plain"].partitions[0]
    assert (state.leader, state.isr, state.extra) == (FIRST, (FIRST,), None)
    assert state.leader_epoch > before.epochs["plain-0"]
    assert server.metadata_log.image.cluster_id == before.cluster_id


def test_directories_of_apache_kafka_come_into_a_cluster_by_way_of_an_import(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    source = write_kafka(tmp_path / "kafka")
    assert run("import", source, "--data-dir", tmp_path / f"broker-{KAFKAS_NODE}") == 0
    become_first(cluster, KAFKAS_NODE)
    server = cluster.start(KAFKAS_NODE)
    assert {repr(each) for each in server.replicas} == {"t-0", "t-1", "table-0"}
    for partition in server.replicas:
        assert partition.led_here and partition.high_watermark == partition.log.log_end_offset > 0
        assert partition.leader_epoch > 4, "of Kafka's"


def test_replicas_on_brokers_that_join_have_everything(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    before = Before(tmp_path / "broker-0")
    become_first(cluster)
    for node_id in (FIRST, 1, 2):
        cluster.start(node_id)
    image = cluster.servers[FIRST].metadata_log.image
    everything = {
        name: len(topic.partitions) for name, topic in image.topics.items()
    }
    assert {"__consumer_offsets", "__transaction_state", "plain", "open"} == {*everything}
    made = AlterPartitionReassignmentsRequest
    request = made(timeout_ms=10_000, topics=[
        made.Topic(name=name, partitions=[
            made.Topic.Partition(partition_index=index, replicas=[FIRST, 1, 2])
            for index in range(count)
        ]) for name, count in everything.items()
    ])
    with cluster.client(1) as client:
        for topic in client.call(request, 0).responses:
            assert [part.error_code for part in topic.partitions] == [0] * len(topic.partitions)

    def in_sync() -> bool:
        image = cluster.servers[1].metadata_log.image
        return all(
            sorted(state.isr) == [FIRST, 1, 2]
            for topic in image.topics.values() for state in topic.partitions
        )

    cluster.until(in_sync, "three replicas are in sync")
    cluster.stop(FIRST)
    leader = cluster.servers[1].metadata_log.image.topics["plain"].partitions[0].leader
    with cluster.client(leader) as client:
        assert values(fetch(client, "plain")) == [b"v0"]
        assert sent(client, before.idempotent, 0) == (0, 0), "its producers are known there, too"
    image = cluster.servers[1].metadata_log.image
    assert all(state.leader in (1, 2) for t in image.topics.values() for state in t.partitions)
    (tmp_path / "broker-0" / HIGH_WATERMARKS).unlink()
    server = cluster.start(FIRST)
    cluster.until(in_sync, "the first broker is in sync again")
    cluster.until(
        lambda: all(p.high_watermark == p.log.log_end_offset for p in server.replicas),
        "without a checkpoint of high watermarks everything is readable, too",
    )
