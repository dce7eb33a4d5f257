"""Topics whose first partition has no replica on the broker that leads another partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest
from tests.broker import transactions
from tests.broker.cluster.running_cluster import RunningCluster, leaders
from tests.broker.produce_fetch import batch, produce_request
from tests.broker.transactions import OK
from tests.waiting import until

TOPIC, KEY = "t", "x"
SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS", "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1, "log_flush_scheduler_interval_ms": 100,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Three brokers, and a topic with one partition on each: partition 0 is on broker 1, and so on.
    """
    with RunningCluster(tmp_path, 3, **SETTINGS) as running:
        made = CreateTopicsRequest
        topic = made.Topic(
            name=TOPIC, num_partitions=-1, replication_factor=-1,
            configs=[made.Topic.Config(name="flush.ms", value="1000")],
            assignments=[
                made.Topic.Assignment(partition_index=index, broker_ids=[index + 1])
                for index in range(3)
            ],
        )
        with running.client(1) as client:
            answer = client.call(made(topics=[topic], timeout_ms=10_000), 5)
            assert answer.topics[0].error_code == 0
            transactions.find(client, KEY)
        yield running


def ask(cluster: RunningCluster, node_id: int, request: Any, *arguments: Any, **fields: Any) -> Any:
    """Retry a request at a broker, as clients do; returns the last answer."""
    answers: list[Any] = []

    def answered() -> bool:
        with cluster.client(node_id) as client:
            answers.append(request(client, KEY, *arguments, **fields))
        return answers[-1] not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )

    until(answered, lambda: answers[-1])
    return answers[-1]


@pytest.mark.parametrize("version", [11, 12])
def test_a_transaction_that_an_authorizer_allows_writes_to_every_partition(
    cluster: RunningCluster, version: int
) -> None:
    (coordinator,) = leaders(cluster.servers[1], "__transaction_state")
    producer = ask(cluster, coordinator, transactions.init)
    for index in range(3):
        if version < 12:
            assert ask(
                cluster, coordinator, transactions.add, producer, TOPIC, index) == [OK]
        told = ask(
            cluster, index + 1, transactions.write, producer, TOPIC, b"v", partition=index,
            version=version)
        assert told is OK, f"partition {index}"
    assert not isinstance(
        ask(cluster, coordinator, transactions.end, producer, True, 5 if version > 11 else 3),
        ErrorCode)


def test_every_partition_is_flushed_in_time(cluster: RunningCluster) -> None:
    for index in range(3):
        with cluster.client(index + 1) as client:
            request = produce_request(TOPIC, batch(b"v"), partition=index, acks=1)
            answer = client.call(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        log = cluster.servers[index + 1].replicas.partition(TOPIC, index).log
        assert log.recovery_point == 0, "it is in memory"
        cluster.leap(2)
        cluster.until(lambda log=log: log.recovery_point == 1, f"partition {index} is flushed")
