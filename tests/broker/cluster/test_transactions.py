"""Transactions over several brokers are verified with the coordinator, and ended by its markers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordination.transaction_verifier import TransactionVerifier
from ottla.groups.records import Producer
from ottla.groups.routing import TRANSACTION_TOPIC, partition_for
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import lead_alone
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    OffsetFetchRequest,
)
from ottla.wire.records import ControlType, build_marker
from tests.broker import transactions
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders
from tests.broker.transactions import OK, READ_COMMITTED
from tests.fakes import FakeClock

AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS,
)
IDS = ("x", "y", "z")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with RunningCluster(
        tmp_path_factory.mktemp("cluster"), transaction_state_log_num_partitions=3,
        offsets_topic_num_partitions=3,
    ) as running:
        yield running


def until(cluster: RunningCluster, ask: Any, *arguments: Any, **fields: Any) -> Any:
    """Retry while the coordinator is not available yet, as stock clients do."""
    answer = None
    for _ in range(200):
        answer = ask(*arguments, **fields)
        if answer not in AGAIN:
            return answer
        cluster.run(pause(cluster))
    raise AssertionError(f"{ask.__name__}: {answer!r}")


async def pause(cluster: RunningCluster) -> None:
    turn = cluster.loop.create_future()
    cluster.loop.call_later(0.02, turn.set_result, None)
    await turn


def coordinator_of(cluster: RunningCluster, key: str) -> int:
    server = cluster.servers[1]
    cluster.until(
        lambda: "__transaction_state" in server.metadata_log.image.topics, "the internal topic"
    )
    return leaders(server, "__transaction_state")[partition_for(key, 3)]


@pytest.mark.parametrize("produce", [7, 9, 11, 12])
@pytest.mark.parametrize("key", IDS)
def test_a_transaction_over_partitions_of_all_brokers(
    cluster: RunningCluster, key: str, produce: int
) -> None:
    topic = f"t-{key}-{produce}"
    assert create(cluster, 1, topic, 3, 1) == 0
    with cluster.client(1) as client:
        transactions.find(client, key)
    at = coordinator_of(cluster, key)
    led = leaders(cluster.servers[1], topic)
    assert sorted(led) == [1, 2, 3]
    version = 4 if produce < 12 else 5
    clients = {node_id: cluster.client(node_id) for node_id in cluster.servers}
    producer = until(cluster, transactions.init, clients[at], key, 4)
    assert isinstance(producer, Producer)
    for commit in (True, False):
        ends = [
            transactions.end_offset(clients[leader], topic, READ_COMMITTED, index) + 2
            for index, leader in enumerate(led)
        ]
        sequence = 0 if commit or version == 5 else 1
        for index, leader in enumerate(led):
            batch = clients[leader], key, producer, topic, b"v"
            where = {"sequence": sequence, "partition": index, "version": produce}
            if produce < 12:
                if index == 0:
                    # A batch outside a transaction is refused by every partition leader.
                    assert until(cluster, transactions.write, *batch, **where) is not OK
                assert until(cluster, add_one, clients[at], key, producer, topic, index) is OK
            assert until(cluster, transactions.write, *batch, **where) is OK
        producer = until(cluster, transactions.end, clients[at], key, producer, commit, version)
        assert isinstance(producer, Producer)
        for index, leader in enumerate(led):
            partition = cluster.servers[leader].replicas.partition(topic, index)
            assert partition is not None
            cluster.until(partial(is_stable, partition, ends[index]), f"a marker in {partition!r}")
    for each in clients.values():
        each.close()


def add_one(*asked: Any) -> ErrorCode:
    return transactions.add(*asked)[0]


def is_stable(partition: Partition, end: int) -> bool:
    return partition.last_stable_offset() == end


def test_offsets_of_a_group_that_another_broker_coordinates(cluster: RunningCluster) -> None:
    assert create(cluster, 1, "offsets-of", 1, 1) == 0
    with cluster.client(1) as client:
        transactions.find(client, "x")
        transactions.find(client, "g0", key_type=0)
    server = cluster.servers[1]
    cluster.until(
        lambda: "__consumer_offsets" in server.metadata_log.image.topics, "the internal topic"
    )
    at = coordinator_of(cluster, "x")
    groups = leaders(server, "__consumer_offsets")
    group = next(f"g{n}" for n in range(100) if groups[partition_for(f"g{n}", 3)] != at)
    node_id = groups[partition_for(group, 3)]
    with cluster.client(at) as client, cluster.client(node_id) as there:
        producer = until(cluster, transactions.init, client, "x", 4)
        for version, epochs in ((3, 4), (5, 5)):
            if version < 5:
                added = until(cluster, transactions.add_offsets, client, "x", producer, group, 3)
                assert added is OK
            committed = until(
                cluster, transactions.commit_offset, there, "x", producer, group, "offsets-of",
                7 + version, version,
            )
            assert committed is OK
            producer = until(cluster, transactions.end, client, "x", producer, True, epochs)
            assert isinstance(producer, Producer)
            until(cluster, is_committed, cluster, node_id, group, 7 + version)


def is_committed(cluster: RunningCluster, node_id: int, group: str, offset: int) -> ErrorCode:
    found = committed_offset(cluster, node_id, group)
    return OK if found == offset else ErrorCode.NOT_COORDINATOR


def committed_offset(cluster: RunningCluster, node_id: int, group: str) -> int:
    topic = OffsetFetchRequest.Topic(name="offsets-of", partition_indexes=[0])
    with cluster.client(node_id) as client:
        answer = client.call(OffsetFetchRequest(group_id=group, topics=[topic]), 5)
    return int(answer.topics[0].partitions[0].committed_offset)


def make_partition(path: Path, index: int = 0) -> Partition:
    log = PartitionLog.open(Disk(), FakeClock(), str(path / f"t-{index}"), LogConfig())
    partition = Partition("t", index, b"\7" * 16, log, False)
    lead_alone(partition, 1, 3, True)
    return partition


def marker(producer: Producer) -> bytes:
    return build_marker(
        ControlType.ABORT, producer_id=producer.producer_id, producer_epoch=producer.epoch,
        coordinator_epoch=1, timestamp=1,
    )


def make_verifier(coordinator_epoch: int) -> TransactionVerifier:
    """The verifier of a broker whose metadata have this coordinator epoch."""
    image = SimpleNamespace(
        topics={TRANSACTION_TOPIC: SimpleNamespace(partitions=[None])},
        leader_epoch=lambda topic, state: coordinator_epoch,
    )
    metadata: Any = SimpleNamespace(image=image)
    unused: Any = None
    return TransactionVerifier(1, metadata, unused, unused)


def test_a_coordinator_is_not_believed_after_the_marker_of_a_later_one(tmp_path: Path) -> None:
    before, after = make_verifier(coordinator_epoch=0), make_verifier(coordinator_epoch=1)
    partition, producer = make_partition(tmp_path), Producer(9, 0)
    partition.append_bytes(marker(producer))
    with pytest.raises(ProtocolError) as refused:
        before.require(before.guards("x", producer, [partition]), partition, producer)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    after.require(after.guards("x", producer, [partition]), partition, producer)


def test_a_verdict_of_a_coordinator_that_was_replaced_meanwhile_does_not_count(
    tmp_path: Path,
) -> None:
    before, after = make_verifier(coordinator_epoch=0), make_verifier(coordinator_epoch=1)
    partition, producer = make_partition(tmp_path), Producer(9, 0)
    verdicts = before.guards("x", producer, [partition])
    with pytest.raises(ProtocolError) as refused:
        after.require(verdicts, partition, producer)
    assert refused.value.retriable


def test_a_verdict_counts_only_while_nothing_has_happened(tmp_path: Path) -> None:
    verifier = make_verifier(coordinator_epoch=1)
    partition, producer = make_partition(tmp_path), Producer(9, 0)
    verdicts = verifier.guards("x", producer, [partition])
    verifier.require(verdicts, partition, producer)
    with pytest.raises(ProtocolError):
        verifier.require(verdicts, partition, Producer(9, 1))
    partition.append_bytes(marker(Producer(8, 0)))          # of another producer
    verifier.require(verdicts, partition, producer)
    partition.append_bytes(marker(producer))                # as if it overtook the answer
    with pytest.raises(ProtocolError) as refused:
        verifier.require(verdicts, partition, producer)
    assert refused.value.retriable
    verdicts = verifier.guards("x", producer, [partition])
    lead_alone(partition, 1, 4, True)
    with pytest.raises(ProtocolError):
        verifier.require(verdicts, partition, producer)


def test_a_marker_that_comes_before_the_coordinators_answer_makes_the_answer_worthless(
    tmp_path: Path,
) -> None:
    """The coordinator has permitted a batch, and ended the transaction before its answer came."""
    made = AddPartitionsToTxnResponse
    partition, producer = make_partition(tmp_path), Producer(9, 0)
    verifier = make_verifier(coordinator_epoch=1)

    async def ask(node_id: int, request: AddPartitionsToTxnRequest, *_: Any) -> Any:
        partition.append_bytes(marker(producer))
        return made(results_by_transaction=[made.ResultsByTransaction(
            transactional_id="x",
            topic_results=[made.TopicResult(name="t", results_by_partition=[
                made.TopicResult.ResultsByPartition(partition_index=0)
            ])],
        )])

    async def verdicts() -> Any:
        verifier.peers = SimpleNamespace(      # type: ignore[assignment]
            ask=ask, loop=asyncio.get_running_loop()
        )
        return await verifier.ask(2, "x", producer, [partition], 9)

    with pytest.raises(ProtocolError) as refused:
        verifier.require(asyncio.run(verdicts()), partition, producer)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS, "the producer sends it again"


@pytest.mark.parametrize("version", [9, 12])
def test_a_topic_of_which_the_coordinator_has_not_heard_fails_no_transaction(
    tmp_path: Path, version: int
) -> None:
    """The batch for the known topic must be retriable as well, or the producer would give up."""
    made = AddPartitionsToTxnResponse
    new, known = make_partition(tmp_path / "new"), make_partition(tmp_path / "known", 1)

    async def ask(node_id: int, request: AddPartitionsToTxnRequest, *_: Any) -> Any:
        codes = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return made(results_by_transaction=[made.ResultsByTransaction(
            transactional_id="x",
            topic_results=[made.TopicResult(name="t", results_by_partition=[
                made.TopicResult.ResultsByPartition(
                    partition_index=index, partition_error_code=int(code)
                ) for index, code in enumerate(codes)
            ])],
        )])

    async def verdicts() -> Any:
        verifier = make_verifier(coordinator_epoch=0)
        verifier.peers = SimpleNamespace(      # type: ignore[assignment]
            ask=ask, loop=asyncio.get_running_loop()
        )
        return await verifier.ask(2, "x", Producer(9, 0), [new, known], version)

    refused = asyncio.run(verdicts())
    assert {each.code for each in refused.values()} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    assert set(refused) == {new, known}
