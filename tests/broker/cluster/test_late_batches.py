"""A batch of the first protocol arrives after its transaction has ended. Neither the partition's
leader nor the coordinator that the leader asks has heard of the new coordinator, which ended it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.groups.records import Producer
from ottla.wire.compression import Codec
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ElectLeadersRequest,
)
from tests.broker import transactions
from tests.broker.cluster.running_cluster import RunningCluster, leaders
from tests.broker.held_workers import held_workers
from tests.waiting import until

KEY, GROUP, TOPIC, OK = "x", "g", "t", ErrorCode.NONE
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
CONTROLLER, FORMER, LEADER = 1, 2, 3
LATER = (
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR
)
"""After these codes, every client sends the same request again."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Three brokers, and a topic in which broker 2 leads partition 2, and broker 3 partition 3.
    Broker 1 is the controller."""
    with RunningCluster(
        tmp_path, 3, transaction_state_log_num_partitions=1,
        transaction_state_log_replication_factor=3, transaction_state_log_min_isr=1,
        offsets_topic_num_partitions=1, offsets_topic_replication_factor=3,
    ) as running:
        assert running.controller == CONTROLLER
        made = CreateTopicsRequest
        replicas = [[1, 2, 3], [1, 2, 3], [2, 3, 1], [3, 1, 2]]
        topic = made.Topic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, configs=[],
            assignments=[
                made.Topic.Assignment(partition_index=index, broker_ids=each)
                for index, each in enumerate(replicas)
            ],
        )
        with running.client(1) as client:
            answer = client.call(made(topics=[topic], timeout_ms=10_000), 5)
            assert answer.topics[0].error_code == 0
            transactions.find(client, KEY)
            transactions.find(client, GROUP, key_type=0)
        try:
            yield running
        finally:
            joined(running)                     # a stop without ZooKeeper takes long


def led_by(cluster: RunningCluster, topic: str, node_id: int) -> None:
    """Make a broker the preferred replica and leader of partition 0, as an operator does."""
    others = [each for each in (1, 2, 3) if each != node_id]
    reassign(cluster, topic, [node_id, *others])
    wanted = ElectLeadersRequest.TopicPartition(topic=topic, partitions=[0])

    def elected() -> bool:
        with cluster.client(CONTROLLER) as client:
            client.call(ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=10_000), 2)
        return all(
            topic in server.metadata_log.image.topics and leaders(server, topic)[0] == node_id
            for server in cluster.servers.values()
        )

    until(elected, lambda: [leaders(each, topic) for each in cluster.servers.values()])


def reassign(cluster: RunningCluster, topic: str, replicas: list[int]) -> None:
    made = AlterPartitionReassignmentsRequest
    moved = made.Topic.Partition(partition_index=0, replicas=replicas)
    request = made(timeout_ms=10_000, topics=[made.Topic(name=topic, partitions=[moved])])
    with cluster.client(CONTROLLER) as client:
        answer = client.call(request, 0)
    assert answer.responses[0].partitions[0].error_code == 0


def ask(cluster: RunningCluster, node_id: int, request: Any, *arguments: Any) -> Any:
    """Retry a request at a broker, as clients do; returns the last answer."""
    answers: list[Any] = []

    def answered() -> bool:
        with cluster.client(node_id) as client:
            answers.append(request(client, KEY, *arguments))
        return answers[-1] not in (
            *LATER, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )

    until(answered, lambda: answers[-1])
    return answers[-1]


def replaced(cluster: RunningCluster) -> None:
    """Move the coordinator's partition to broker 1, while the others are cut off from ZooKeeper."""

    async def cut() -> None:
        for each in (FORMER, LEADER):
            cluster.sessions[each].cut()

    cluster.run(cut())
    reassign(cluster, STATE, [CONTROLLER])
    image = cluster.servers[CONTROLLER].metadata_log
    cluster.until(lambda: image.image.topics[STATE].partitions[0].leader == CONTROLLER, "replaced")
    assert leaders(cluster.servers[LEADER], STATE) == [FORMER], "it knows nothing of that"


def joined(cluster: RunningCluster) -> None:
    async def join() -> None:
        for each in (FORMER, LEADER):
            cluster.sessions[each].join()

    cluster.run(join())


def ended_by_the_new_one(
    cluster: RunningCluster, add: Callable[[Any, str, Producer], ErrorCode], commit: bool
) -> Producer:
    """A producer whose transaction the new coordinator has ended. For the former one
    it is still open."""
    producer = ask(cluster, FORMER, transactions.init)
    assert ask(cluster, FORMER, add, producer) is OK
    replaced(cluster)
    assert isinstance(ask(cluster, CONTROLLER, transactions.end, producer, commit, 3), Producer)
    return producer


@pytest.mark.parametrize("leader", [FORMER, LEADER], ids=["the coordinator", "another broker"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_late_batch_opens_no_transaction_that_nobody_ends(
    cluster: RunningCluster, leader: int, commit: bool
) -> None:
    led_by(cluster, STATE, FORMER)
    assert leaders(cluster.servers[1], TOPIC)[leader] == leader

    def add(client: Any, key: str, producer: Producer) -> ErrorCode:
        return transactions.add(client, key, producer, TOPIC, leader)[0]

    def write(client: Any, key: str, producer: Producer) -> ErrorCode:
        return transactions.write(client, key, producer, TOPIC, b"late", partition=leader)

    producer = ended_by_the_new_one(cluster, add, commit)
    with cluster.client(leader) as client:
        assert write(client, KEY, producer) in LATER
        open_at = transactions.end_offset(client, TOPIC, transactions.READ_COMMITTED, leader)
        assert open_at == transactions.end_offset(client, TOPIC, 0, leader), "nothing is open"
    joined(cluster)
    told = ask(cluster, leader, write, producer)
    assert told is ErrorCode.TRANSACTION_ABORTABLE, "once it hears of the coordinator in office"
    assert ask(cluster, CONTROLLER, add, producer) is OK
    assert ask(cluster, leader, write, producer) is OK


def test_a_batch_that_a_thread_prepares_meanwhile_is_as_late(cluster: RunningCluster) -> None:
    """The batch is permitted before the marker comes, and would be appended after it."""
    led_by(cluster, STATE, FORMER)

    def add(client: Any, key: str, producer: Producer) -> ErrorCode:
        return transactions.add(client, key, producer, TOPIC, FORMER)[0]

    def write(producer: Producer) -> ErrorCode:
        with cluster.client(FORMER) as client:
            return transactions.write(
                client, KEY, producer, TOPIC, b"late " * 150_000, partition=FORMER,
                codec=Codec.GZIP)

    producer = ask(cluster, FORMER, transactions.init)
    assert ask(cluster, FORMER, add, producer) is OK
    replaced(cluster)
    with held_workers(cluster.one(FORMER)) as held, ThreadPoolExecutor(1) as threads:
        told = threads.submit(write, producer)
        held.wait()
        assert isinstance(ask(cluster, CONTROLLER, transactions.end, producer, True, 3), Producer)
        held.let_go()
        assert told.result() in LATER
    with cluster.client(FORMER) as client:
        open_at = transactions.end_offset(client, TOPIC, transactions.READ_COMMITTED, FORMER)
        assert open_at == transactions.end_offset(client, TOPIC, 0, FORMER), "nothing is open"


def test_a_late_offset_opens_no_transaction_that_nobody_ends(cluster: RunningCluster) -> None:
    led_by(cluster, STATE, FORMER)
    led_by(cluster, OFFSETS, LEADER)

    def add(client: Any, key: str, producer: Producer) -> ErrorCode:
        return transactions.add_offsets(client, key, producer, GROUP, 3)

    def commit(client: Any, key: str, producer: Producer) -> ErrorCode:
        return transactions.commit_offset(client, key, producer, GROUP, TOPIC, 5, 3)

    producer = ended_by_the_new_one(cluster, add, True)
    with cluster.client(LEADER) as client:
        assert commit(client, KEY, producer) in LATER
    joined(cluster)
    assert ask(cluster, LEADER, commit, producer) not in (OK, *LATER)
