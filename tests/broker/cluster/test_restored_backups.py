"""A cluster goes on with a ZooKeeper that was restored from a backup, even repeatedly. No producer
id and no leader epoch in its logs is given a second time, and nothing is served before that is
certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.cluster import held_by_logs
from ottla.broker.server import Server
from ottla.log.files.disk import Disk
from ottla.replication.controller.producer_ids import PRODUCER_IDS_PER_BLOCK, take_producer_ids
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    ElectLeadersRequest,
    InitProducerIdRequest,
    UnregisterBrokerRequest,
)
from tests.broker.cluster.backups import Backup, accept_backup, in_sync, new_producer_id, states
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, produce

ALL = (1, 2, 3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        assert create(running, 1, "t", 3, 3) == 0
        yield running


def stop_all(cluster: RunningCluster) -> None:
    for node in list(cluster.servers):
        cluster.stop(node)


def restored(cluster: RunningCluster, backup: Backup, nodes: Sequence[int] = ALL) -> None:
    """Stop all brokers, restore ZooKeeper, accept the backup, and start the brokers `nodes`."""
    stop_all(cluster)
    backup.restore(cluster, [])
    accept_backup([cluster.directory / f"broker-{node}" for node in cluster.ports])
    for node in nodes:
        cluster.start(node)


def write_as_a_new_producer(cluster: RunningCluster) -> int:
    """Write a new producer's first batch to each partition, and check that no partition takes it
    for a duplicate; returns the producer id."""
    producer_id = new_producer_id(cluster)
    data = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    for index, state in enumerate(states(cluster)):
        partition = cluster.servers[state.leader].replicas.partition("t", index)
        assert partition is not None
        end = partition.log.log_end_offset
        with cluster.client(state.leader) as client:
            answer = produce(client, "t", data, partition=index)
        assert (answer.error_code, answer.base_offset) == (0, end)
    return producer_id


async def use_up(cluster: RunningCluster) -> None:
    """Take all producer ids that brokers had at the time of the backup."""
    for server in cluster.servers.values():
        for _ in range(2 * PRODUCER_IDS_PER_BLOCK):
            await server.broker.producer_ids.take()


def epochs(cluster: RunningCluster) -> list[int]:
    return [state.leader_epoch for state in states(cluster)]


def refused_id(cluster: RunningCluster, node: int) -> ErrorCode:
    with cluster.client(node) as client:
        return ErrorCode(client.call(InitProducerIdRequest(transactional_id=None), 4).error_code)


async def a_turn() -> None:
    """Wait for a turn of the brokers' loop."""


def test_a_broker_serves_while_it_reads_the_headers_of_its_logs(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be terabytes of logs. Meanwhile the loop must serve ZooKeeper and clients."""
    backup, read = Backup(cluster), held_by_logs.producer_ids
    directories: list[str] = []

    def reading(disk: Disk, directory: str, transactions: bool) -> Iterator[int]:
        cluster.run(a_turn())
        directories.append(directory)
        return read(disk, directory, transactions)

    monkeypatch.setattr(held_by_logs, "producer_ids", reading)
    restored(cluster, backup)
    in_sync(cluster)
    assert len(directories) == 9


def test_the_same_backup_restored_again_gives_nothing_twice(cluster: RunningCluster) -> None:
    """Elections raise the epochs after each restore, so no constant above the backup is enough."""
    backup = Backup(cluster)
    cluster.run(use_up(cluster))
    used, led = [write_as_a_new_producer(cluster)], [max(epochs(cluster))]
    for _ in range(2):
        restored(cluster, backup)
        in_sync(cluster)
        assert min(epochs(cluster)) > led[-1]
        for node in ALL:
            cluster.stop(node)
            cluster.start(node)
            in_sync(cluster)
        used.append(write_as_a_new_producer(cluster))
        led.append(max(epochs(cluster)))
        assert used == sorted(set(used))


def test_a_restore_after_which_nobody_writes_gives_nothing_twice_either(
    cluster: RunningCluster,
) -> None:
    """Clients may know epochs and ids that are in no log."""
    backup, used, led = Backup(cluster), list[int](), max(epochs(cluster))
    for _ in range(3):
        restored(cluster, backup)
        in_sync(cluster)
        assert min(epochs(cluster)) > led
        used.append(new_producer_id(cluster))
        led = max(epochs(cluster))
    assert used == sorted(set(used))


def test_a_lone_broker_gives_no_id_before_it_knows_those_of_its_logs(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 1) as cluster:
        assert create(cluster, 1, "t", 1, 1) == 0
        backup = Backup(cluster)
        cluster.run(use_up(cluster))
        used = write_as_a_new_producer(cluster)
        stop_all(cluster)
        backup.restore(cluster, [])
        accept_backup([cluster.directory / "broker-1"])
        begun: list[Server] = []
        given: list[int] = []

        async def ask_at_every_turn() -> None:
            while not given:
                session = begun[0].session if begun else None
                if session is not None and session.metadata.is_controller:
                    with suppress(ProtocolError):
                        given.append((await session.metadata.decide(take_producer_ids)).start)
                turn = cluster.loop.create_future()
                cluster.loop.call_soon(turn.set_result, None)
                await turn

        asking = asyncio.run_coroutine_threadsafe(ask_at_every_turn(), cluster.loop)
        cluster.start(1, begun)
        asking.result(60)
        assert given[0] > used
        cluster.until(lambda: states(cluster)[0].leader == 1, "it leads")
        assert write_as_a_new_producer(cluster) > used


@pytest.mark.parametrize("comes", ["back", "never"])
def test_nothing_is_served_before_a_broker_that_is_away_is_back_or_given_up(
    cluster: RunningCluster, comes: str
) -> None:
    """That broker may have the latest epochs: here it led alone after the others had stopped."""
    backup = Backup(cluster)
    for node in (1, 2):
        cluster.stop(node)
    log = cluster.servers[3].metadata_log
    cluster.until(
        lambda: all(s.leader == 3 for s in log.image.topics["t"].partitions), "broker 3 leads"
    )
    alone = [state.leader_epoch for state in log.image.topics["t"].partitions]
    restored(cluster, backup, (1, 2))
    assert {state.leader for state in states(cluster)} == {-1}
    assert {refused_id(cluster, node) for node in (1, 2)} == {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    }
    if comes == "back":
        cluster.start(3)
        in_sync(cluster)
        assert min(epochs(cluster)) > max(alone)
    else:
        with cluster.client(1) as client:
            assert client.call(UnregisterBrokerRequest(broker_id=3), 0).error_code == 0
        gave_up = [server.metadata_log for server in cluster.servers.values()]
        cluster.until(lambda: not any(m.image.adopting for m in gave_up), "it is given up")
        # Broker 3 is in sync in the backup, so the others lead only after an unclean election.
        with cluster.client(cluster.controller) as client:
            elect = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=10_000)
            assert client.call(elect, 2).error_code == 0
        cluster.until(lambda: all(s.leader > 0 for s in states(cluster)), "the others lead")
    write_as_a_new_producer(cluster)


def test_a_second_restore_with_a_broker_missing_is_adopted_once_it_is_back(
    cluster: RunningCluster,
) -> None:
    backup = Backup(cluster)
    restored(cluster, backup)
    in_sync(cluster)
    used, led = write_as_a_new_producer(cluster), max(epochs(cluster))
    restored(cluster, backup, (1, 2))
    assert {state.leader for state in states(cluster)} == {-1}
    cluster.start(3)
    in_sync(cluster)
    assert min(epochs(cluster)) > led
    assert write_as_a_new_producer(cluster) > used


def test_the_adoption_goes_on_under_another_controller(cluster: RunningCluster) -> None:
    backup = Backup(cluster)
    used = write_as_a_new_producer(cluster)
    restored(cluster, backup, (1, 2))
    former = cluster.controller
    cluster.expire(former)
    cluster.until(
        lambda: sum(s.metadata_log.is_controller for s in cluster.servers.values()) == 1,
        "there is a controller",
    )
    cluster.start(3)
    in_sync(cluster)
    assert write_as_a_new_producer(cluster) > used
