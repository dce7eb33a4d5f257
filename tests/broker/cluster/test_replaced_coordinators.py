"""A transaction coordinator that has been replaced, and has not heard of it, gives producers no
final answer, because its state may be out of date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.groups.records import Producer
from ottla.wire.errors import ErrorCode
from tests.broker import transactions
from tests.broker.cluster import replacement
from tests.broker.cluster.replacement import RETRIED, coordinator, replaced, retried
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders

KEY, TOPIC, OK = "x", "t", ErrorCode.NONE


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(
        tmp_path, 3, transaction_state_log_num_partitions=1,
        transaction_state_log_replication_factor=3, transaction_state_log_min_isr=2,
    ) as running:
        assert create(running, 1, TOPIC, 1, 3) == 0
        with running.client(1) as client:
            transactions.find(client, KEY)
        running.until(lambda: all(
            "__transaction_state" in server.metadata_log.image.topics
            for server in running.servers.values()
        ), "the internal topic")
        yield running


def ask(cluster: RunningCluster, node_id: int, request: Any, *arguments: Any) -> Any:
    return retried(cluster, node_id, lambda client: request(client, KEY, *arguments))


def add(client: Any, key: str, producer: Producer) -> ErrorCode:
    return transactions.add(client, key, producer, TOPIC, 0)[0]


def told_by_the_former(
    cluster: RunningCluster, former: int, request: Any, *arguments: Any
) -> ErrorCode:
    (found,) = replacement.told_by_the_former(
        cluster, former, lambda client: request(client, KEY, *arguments)
    )
    return OK if isinstance(found, Producer) else found


@pytest.mark.parametrize("version", [3, 5], ids=["first protocol", "second protocol"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("before", ["nothing", "a commit"])
def test_the_end_of_a_transaction_that_the_former_coordinator_has_not_seen(
    cluster: RunningCluster, version: int, commit: bool, before: str
) -> None:
    first = coordinator(cluster, 1)
    producer = ask(cluster, first, transactions.init)
    if before == "a commit":
        assert ask(cluster, first, add, producer) is OK
        producer = ask(cluster, first, transactions.end, producer, True, version)
    former, now = replaced(cluster)
    assert ask(cluster, now, add, producer) is OK
    told = told_by_the_former(cluster, former, transactions.end, producer, commit, version)
    assert told in RETRIED, "neither done nor impossible: it cannot know"
    assert isinstance(ask(cluster, now, transactions.end, producer, commit, version), Producer)


def verify(client: Any, key: str, producer: Producer) -> ErrorCode:
    """Ask what a partition's leader asks before it appends a batch of the first protocol."""
    return transactions.add(client, key, producer, TOPIC, 0, version=4, verify_only=True)[0]


@pytest.mark.parametrize("fenced", [False, True], ids=["not added", "not known"])
def test_a_batch_is_not_refused_for_what_the_former_coordinator_has_not_seen(
    cluster: RunningCluster, fenced: bool
) -> None:
    producer = ask(cluster, coordinator(cluster, 1), transactions.init)
    former, now = replaced(cluster)
    if fenced:
        producer = ask(cluster, now, transactions.init)
    assert ask(cluster, now, add, producer) is OK
    assert told_by_the_former(cluster, former, verify, producer) in RETRIED
    assert ask(cluster, now, verify, producer) is OK


def led_by(cluster: RunningCluster, node_id: int) -> int:
    """Create a topic with one partition for each broker; returns the one that this broker leads."""
    assert create(cluster, node_id, "wide", 3, 3) == 0
    return leaders(cluster.servers[node_id], "wide").index(node_id)


@pytest.mark.parametrize("fenced", [False, True], ids=["not added", "not known"])
def test_a_former_coordinator_does_not_refuse_a_batch_that_it_would_append_itself(
    cluster: RunningCluster, fenced: bool
) -> None:
    producer = ask(cluster, coordinator(cluster, 1), transactions.init)
    index = led_by(cluster, coordinator(cluster, 1))
    former, now = replaced(cluster)
    if fenced:
        producer = ask(cluster, now, transactions.init)

    def write(client: Any, key: str, *_: Any) -> ErrorCode:
        return transactions.write(client, key, producer, "wide", b"v", partition=index)

    def added(client: Any, key: str) -> ErrorCode:
        return transactions.add(client, key, producer, "wide", index)[0]

    assert ask(cluster, now, added) is OK
    told = told_by_the_former(cluster, former, write)
    assert told in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_coordinator_in_office_refuses_a_batch_for_good(cluster: RunningCluster) -> None:
    node_id = coordinator(cluster, 1)
    producer = ask(cluster, node_id, transactions.init)
    assert ask(cluster, node_id, verify, producer) is ErrorCode.TRANSACTION_ABORTABLE
    index = led_by(cluster, node_id)
    with cluster.client(node_id) as client:
        told = transactions.write(client, KEY, producer, "wide", b"v", partition=index)
    assert told is ErrorCode.TRANSACTION_ABORTABLE


def test_a_new_producer_is_not_fenced_by_the_former_coordinator(cluster: RunningCluster) -> None:
    producer = ask(cluster, coordinator(cluster, 1), transactions.init)
    former, now = replaced(cluster)
    newer = ask(cluster, now, transactions.init)
    assert newer.epoch == producer.epoch + 1
    assert told_by_the_former(cluster, former, add, newer) in RETRIED
    assert ask(cluster, now, add, newer) is OK
