"""Decisions that do not fit into one entry of the metadata log take several entries. If they cannot
be divided, each item of the request fails."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from ottla.broker.api import partitions
from ottla.broker.cluster import isr_changes
from ottla.replication import entries
from ottla.replication.controller import brokers, configs
from ottla.replication.metadata import (
    Decision,
    MetadataImage,
    PartitionExtra,
    PartitionsChanged,
    PartitionState,
)
from ottla.replication.registration import Registration, register
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    UnregisterBrokerRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.simulation.zookeeper import MemoryCoordination


@pytest.mark.parametrize("forwarded", [False, True])
def test_each_item_of_a_request_that_fits_into_no_entry_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forwarded: bool
) -> None:
    names = [sha256(b"%d" % number).hexdigest() for number in range(50)]
    topic = CreateTopicsRequest.Topic
    request = CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in names],
        timeout_ms=10_000,
    )
    with RunningCluster(tmp_path, 2) as cluster:
        monkeypatch.setattr(entries, "ENTRY_SIZE_MAX", 1000)
        node_id = cluster.controller
        with cluster.client(3 - node_id if forwarded else node_id) as client:
            answers = client.call(request, 5).topics
        assert [each.name for each in answers] == names
        assert {each.error_code for each in answers} == {ErrorCode.POLICY_VIOLATION}
        assert all("Split the change into several" in each.error_message for each in answers)
        assert create(cluster, node_id, "small", 1, 1) == 0


def test_a_change_of_min_isr_takes_several_entries_where_many_are_eligible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change removes the eligible replicas of all partitions, and no client can divide it."""
    settings: dict[str, object] = {"min.insync.replicas": 2}
    with RunningCluster(tmp_path, 2, **settings) as cluster:
        node_id = left_alone_with_many(cluster)
        log = cluster.servers[node_id].metadata_log
        cluster.until(lambda: sum(eligible(log.image)) == 600, "the other one is eligible")
        monkeypatch.setattr(brokers, "PARTITIONS_AT_A_TIME", 100)
        monkeypatch.setattr(configs, "PARTITIONS_AT_A_TIME", 100)
        monkeypatch.setattr(entries, "ENTRY_RAW_SIZE_MAX", 10_000)
        kind = IncrementalAlterConfigsRequest.Resource
        changes = [kind.Config(name="min.insync.replicas", config_operation=0, value="1")]
        asked = IncrementalAlterConfigsRequest(
            resources=[kind(resource_type=4, resource_name="", configs=changes)],
        )
        before = log.image.entry
        with cluster.client(node_id) as client:
            assert [r.error_code for r in client.call(asked, 1).responses] == [0]
        assert log.image.config_of("broker", "")["min.insync.replicas"] == "1"
        assert not any(eligible(log.image)) and log.image.entry >= before + 7
        changes[0].value = "-1"
        with cluster.client(node_id) as client:
            assert [r.error_code for r in client.call(asked, 1).responses] != [0]


def test_an_election_of_all_partitions_takes_several_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, object] = {"auto.leader.rebalance.enable": "false"}
    with RunningCluster(tmp_path, 2, **settings) as cluster:
        node_id = left_alone_with_many(cluster)
        cluster.start(3 - node_id)
        log = cluster.servers[node_id].metadata_log

        def states() -> list[PartitionState]:
            return [each for name in "tu" for each in log.image.topics[name].partitions]

        cluster.until(lambda: all(len(each.isr) == 2 for each in states()), "all are in sync")
        assert {each.leader for each in states()} == {node_id}
        monkeypatch.setattr(partitions, "PARTITIONS_AT_A_TIME", 50)
        monkeypatch.setattr(entries, "ENTRY_RAW_SIZE_MAX", 10_000)
        with cluster.client(node_id) as client:
            answer = client.call(ElectLeadersRequest(topic_partitions=None), 2)
            again = client.call(ElectLeadersRequest(topic_partitions=None), 2)
        assert answer.error_code == 0
        codes = [
            row.error_code for each in answer.replica_election_results
            for row in each.partition_result
        ]
        assert codes == [0] * 300
        assert all(each.leader == each.replicas[0] for each in states())
        assert not any(each.partition_result for each in again.replica_election_results)


def test_unregistering_a_broker_that_many_partitions_wait_for_takes_several_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        node_id = cluster.controller
        other = 3 - node_id
        assert create(cluster, node_id, "t", 300, 2) == 0
        cluster.stop(other)
        log = cluster.servers[node_id].metadata_log
        cluster.until(lambda: other not in log.image.brokers, "it is gone")
        monkeypatch.setattr(brokers, "PARTITIONS_AT_A_TIME", 50)

        def waiting(image: MetadataImage) -> Decision[None]:
            rows = tuple(
                (index, state._replace(extra=PartitionExtra(awaited=(other,))))
                for index, state in enumerate(image.topics["t"].partitions)
            )
            return Decision([PartitionsChanged("t", rows)], None)

        cluster.run(log.decide(waiting))
        monkeypatch.setattr(entries, "ENTRY_RAW_SIZE_MAX", 5_000)
        with cluster.client(node_id) as client:
            assert client.call(UnregisterBrokerRequest(broker_id=other), 0).error_code == 0
        assert not any(state.extra for state in log.image.topics["t"].partitions)
        assert not log.image.former[other].endpoints


def test_replicas_that_are_in_sync_again_at_once_join_in_several_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request for all of them would be refused, and sent again unchanged for ever."""
    settings: dict[str, object] = {"auto.leader.rebalance.enable": "false"}
    with RunningCluster(tmp_path, 2, **settings) as cluster:
        node_id = left_alone_with_many(cluster)
        log = cluster.servers[node_id].metadata_log

        def in_sync() -> set[int]:
            topics = log.image.topics.values()
            return {len(each.isr) for topic in topics for each in topic.partitions}

        cluster.until(lambda: in_sync() == {1}, "all are led by the other one, alone")
        with monkeypatch.context() as patched:
            patched.setattr(isr_changes, "PARTITIONS_MAX", 50)
            patched.setattr(entries, "ENTRY_SIZE_MAX", 600)
            cluster.start(3 - node_id)
            cluster.until(lambda: in_sync() == {2}, "all are in sync")


def test_a_new_process_is_registered_once_the_end_of_the_former_one_is_dealt_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the former process led many partitions, its end takes several decisions. If a partition
    kept its leader and leader epoch, followers would not notice that the log became shorter."""
    with RunningCluster(tmp_path, 2) as cluster:
        node_id = cluster.controller
        other = 3 - node_id
        assert create(cluster, node_id, "t", 200, 2) == 0
        deciding, session = cluster.servers[node_id].member, MemoryCoordination(cluster.zookeeper)
        assert deciding is not None
        log = deciding.session.metadata
        known, before = log.image.brokers[other], log.image.topics["t"].partitions
        registration = Registration(other, "the next", known.endpoints, known.directories)

        async def restarts() -> None:
            cluster.sessions[other].cut()
            deciding.controller.refused(other)
            await session.start()
            await register(session, registration)

        with monkeypatch.context() as patched:
            patched.setattr(brokers, "PARTITIONS_AT_A_TIME", 1)
            cluster.run(restarts())
            cluster.until(lambda: log.image.is_registered(other, "the next"), "it is registered")
        after = log.image.topics["t"].partitions
        led = [index for index, state in enumerate(before) if state.leader == other]
        assert len(led) == 100
        assert all(after[index].leader_epoch > before[index].leader_epoch for index in led)

        async def goes_on() -> None:
            await session.stop()
            cluster.sessions[other].join()

        cluster.run(goes_on())


def left_alone_with_many(cluster: RunningCluster) -> int:
    """Create topics with 600 partitions on both brokers, and stop the one that is not the
    controller; returns the controller."""
    node_id = cluster.controller
    for name in "tu":
        assert create(cluster, node_id, name, 300, 2) == 0
    cluster.stop(3 - node_id)
    return node_id


def eligible(image: MetadataImage) -> list[bool]:
    return [
        bool(state.extra and state.extra.elr)
        for topic in image.topics.values() for state in topic.partitions
    ]
