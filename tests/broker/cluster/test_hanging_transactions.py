"""An unclean election loses a transaction's marker, or its start, in one partition. What is left of
the transaction stays open, and holds up readers of committed records, until the producer or an
operator ends it there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.client.cluster import ClusterClient
from ottla.groups.records import Producer
from ottla.replication.metadata import PartitionState
from ottla.replication.partition import Partition
from ottla.tools.admin import transactions as admin
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest, ElectLeadersRequest
from tests.broker import transactions
from tests.broker.cluster.running_cluster import RunningCluster
from tests.broker.produce_fetch import fetch, values

FIRST, OTHER, SOUND = 2, 3, 1
"""The leader whose last records an election loses, the replica that is elected, and the leader of
the topic WHOLE, which loses nothing."""
LOSSY, WHOLE = "lossy", "whole"
OK, KEY, READ_COMMITTED = ErrorCode.NONE, "x", 1
AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
)
VERSIONS = pytest.mark.parametrize("version", [11, 12], ids=["first protocol", "second protocol"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(
        tmp_path, 3, transaction_state_log_num_partitions=1, auto_leader_rebalance_enable="false",
    ) as running:
        made = CreateTopicsRequest.Topic
        topics = [
            made(name=name, num_partitions=-1, replication_factor=-1, configs=[],
                 assignments=[made.Assignment(partition_index=0, broker_ids=nodes)])
            for name, nodes in ((LOSSY, [FIRST, OTHER]), (WHOLE, [SOUND]))
        ]
        with running.client(SOUND) as client:
            answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
            assert [each.error_code for each in answer.topics] == [0, 0]
            transactions.find(client, KEY)
        running.until(lambda: all(
            {LOSSY, WHOLE, "__transaction_state"} <= server.metadata_log.image.topics.keys()
            for server in running.servers.values()
        ), "the topics are seen")
        yield running


def state(cluster: RunningCluster, topic: str = LOSSY) -> PartitionState:
    found = cluster.servers[SOUND].metadata_log.image.topics[topic].partitions[0]
    assert isinstance(found, PartitionState)
    return found


def replica(cluster: RunningCluster, node_id: int) -> Partition:
    found = cluster.servers[node_id].replicas.partition(LOSSY, 0)
    assert found is not None
    return found


class Client:
    """A transactional producer that uses one version of the transaction protocol."""

    def __init__(self, cluster: RunningCluster, version: int) -> None:
        self.cluster, self.version = cluster, version
        self.sequence: dict[str, int] = {}

    def ask(self, node_id: int, request: Any, *arguments: Any, **fields: Any) -> Any:
        """Retry a request at a broker, as clients do; returns the last answer."""
        for _ in range(300):
            with self.cluster.client(node_id) as client:
                answer = request(client, *arguments, **fields)
            if answer not in AGAIN:
                return answer
            self.cluster.run(self.pause())
        raise AssertionError(f"{request.__name__}: {answer!r}")

    async def pause(self) -> None:
        turn = self.cluster.loop.create_future()
        self.cluster.loop.call_later(0.02, turn.set_result, None)
        await turn

    @property
    def coordinator(self) -> int:
        self.cluster.until(
            lambda: state(self.cluster, "__transaction_state").leader in self.cluster.servers,
            "a coordinator",
        )
        return state(self.cluster, "__transaction_state").leader

    def begin(self) -> None:
        found = self.ask(self.coordinator, transactions.init, KEY, 5)
        assert isinstance(found, Producer)
        self.producer, self.sequence = found, {}

    def write(self, topic: str, value: bytes) -> ErrorCode:
        if self.version < 12:
            added = partial(self.ask, self.coordinator, lambda *asked: transactions.add(*asked)[0])
            assert added(KEY, self.producer, topic, 0) is OK
        sequence = self.sequence.get(topic, 0)
        code = self.ask(
            state(self.cluster, topic).leader, transactions.write, KEY, self.producer, topic, value,
            sequence=sequence, version=self.version,
        )
        if code is OK:
            self.sequence[topic] = sequence + 1
        assert isinstance(code, ErrorCode)
        return code

    def end(self, commit: bool) -> None:
        found = self.ask(
            self.coordinator, transactions.end, KEY, self.producer, commit,
            5 if self.version >= 12 else 3,
        )
        assert isinstance(found, Producer), found
        if found != self.producer:
            self.producer, self.sequence = found, {}


def leave_behind(cluster: RunningCluster) -> None:
    """Stop the other replica, and wait until it is out of sync."""
    cluster.until(
        lambda: replica(cluster, OTHER).log.log_end_offset
        == replica(cluster, FIRST).log.log_end_offset, "the follower has it",
    )
    cluster.stop(OTHER)
    cluster.until(lambda: state(cluster).isr == (FIRST,), "one is in sync")


def elect_uncleanly(cluster: RunningCluster) -> None:
    """Stop the leader, and elect the replica that lacks the last records."""
    cluster.stop(FIRST)
    cluster.start(OTHER)
    made = ElectLeadersRequest.TopicPartition
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=[made(topic=LOSSY, partitions=[0])], timeout_ms=10_000)

    def led() -> bool:
        return cluster.servers[OTHER].replicas.partition(LOSSY, 0) is not None and all(
            each.metadata_log.image.topics[LOSSY].partitions[0].leader == OTHER
            for each in cluster.servers.values()
        ) and replica(cluster, OTHER).led_here

    cluster.until(lambda: len(cluster.servers[SOUND].metadata_log.image.brokers) == 2, "it is back")
    cluster.until(lambda: any(s.metadata_log.is_controller for s in cluster.servers.values()),
                  "a controller")
    with cluster.client(cluster.controller) as client:
        client.call(request, 2)
    cluster.until(led, "the other one leads")


def committed(cluster: RunningCluster, topic: str = LOSSY) -> list[bytes]:
    """The values that readers of committed records see. In these tests, the transactions in an
    answer are either all committed or all aborted."""
    with cluster.client(state(cluster, topic).leader) as client:
        part = fetch(client, topic, isolation_level=READ_COMMITTED)
    assert part.error_code == OK
    aborted = bool(part.aborted_transactions)
    return [] if aborted else [each for each in values(part) if len(each) > 6]


def hanging(cluster: RunningCluster) -> list[admin.Hanging]:
    with ClusterClient(f"127.0.0.1:{cluster.ports[SOUND]}") as client:
        return admin.hanging(client, [(LOSSY, 0), (WHOLE, 0)], 0)


def with_a_lost_marker(cluster: RunningCluster, version: int) -> Client:
    """Commit a transaction over two partitions, one of which then loses the marker; returns its
    producer."""
    client = Client(cluster, version)
    client.begin()
    assert client.write(LOSSY, b"in the one") is OK and client.write(WHOLE, b"in the other") is OK
    leave_behind(cluster)
    client.end(True)
    cluster.until(lambda: replica(cluster, FIRST).last_stable_offset() == 2, "the marker")
    elect_uncleanly(cluster)
    led = replica(cluster, OTHER)
    assert (led.log.log_end_offset, led.last_stable_offset()) == (1, 0)
    assert committed(cluster) == [] and committed(cluster, WHOLE) == [b"in the other"]
    return client


@VERSIONS
def test_a_transaction_whose_marker_is_lost_is_found_and_ended_by_an_operator(
    cluster: RunningCluster, version: int
) -> None:
    with_a_lost_marker(cluster, version)
    with ClusterClient(f"127.0.0.1:{cluster.ports[SOUND]}") as client:
        (listed,) = admin.list_transactions(client)
        assert (listed.id, listed.state) == (KEY, "CompleteCommit"), "over, for its coordinator"
        (producer,) = admin.producers(client, [(LOSSY, 0)])[LOSSY, 0]
        assert producer.current_txn_start_offset == 0
    (found,) = hanging(cluster)
    assert found.place == (LOSSY, 0) and found.producer.producer_id == producer.producer_id
    with ClusterClient(f"127.0.0.1:{cluster.ports[SOUND]}") as client:
        admin.abort(
            client, found.place, producer.producer_id, producer.producer_epoch,
            producer.coordinator_epoch,
        )
        (producer,) = admin.producers(client, [(LOSSY, 0)])[LOSSY, 0]
        assert producer.current_txn_start_offset == -1
    assert replica(cluster, OTHER).last_stable_offset() == 2
    assert hanging(cluster) == [] and committed(cluster) == []
    cluster.start(FIRST)
    cluster.until(lambda: set(state(cluster).isr) == {FIRST, OTHER}, "both are in sync")
    logs = [bytes(replica(cluster, node).log.read_bytes(0, 1 << 20)) for node in (FIRST, OTHER)]
    assert logs[0] == logs[1], "the marker that was given up is cut off"


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_next_transaction_of_its_producer_there_ends_it_too(
    cluster: RunningCluster, version: int, commit: bool
) -> None:
    client = with_a_lost_marker(cluster, version)
    assert client.write(LOSSY, b"the next one") is OK
    assert hanging(cluster) == [], "its coordinator has a transaction there that is open"
    client.end(commit)
    led = replica(cluster, OTHER)
    cluster.until(lambda: led.last_stable_offset() == 3, "the marker")
    assert committed(cluster) == ([b"in the one", b"the next one"] if commit else [])


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_whose_start_is_lost_ends_and_holds_nobody_up(
    cluster: RunningCluster, version: int, commit: bool
) -> None:
    client = Client(cluster, version)
    client.begin()
    leave_behind(cluster)
    assert client.write(LOSSY, b"lost, all of it") is OK
    assert client.write(WHOLE, b"in the other") is OK
    elect_uncleanly(cluster)
    led = replica(cluster, OTHER)
    assert led.log.log_end_offset == 0
    # As in Apache Kafka, a partition without state of the producer accepts any sequence number.
    assert client.write(LOSSY, b"more of it") is OK and led.last_stable_offset() == 0
    assert hanging(cluster) == [], "its coordinator has it open there"
    client.end(commit)
    cluster.until(lambda: led.last_stable_offset() == 2, "the marker")
    assert hanging(cluster) == []
    assert committed(cluster) == ([b"more of it"] if commit else [])
    assert committed(cluster, WHOLE) == ([b"in the other"] if commit else [])


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_marker_for_records_that_are_lost_holds_nobody_up(
    cluster: RunningCluster, version: int, commit: bool
) -> None:
    client = Client(cluster, version)
    client.begin()
    leave_behind(cluster)
    assert client.write(LOSSY, b"lost, all of it") is OK
    elect_uncleanly(cluster)
    client.end(commit)
    led = replica(cluster, OTHER)
    cluster.until(lambda: led.log.log_end_offset == 1 == led.last_stable_offset(), "the marker")
    client.begin()
    assert client.write(LOSSY, b"the next one") is OK
    client.end(True)
    cluster.until(lambda: led.last_stable_offset() == 3, "the marker")
    assert committed(cluster) == [b"the next one"] and hanging(cluster) == []
