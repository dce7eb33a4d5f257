"""Consumers that read from followers (KIP-392), on whole brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.settings.broker import RACK_AWARE_SELECTOR
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest
from tests.broker import transactions
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create as create_topic

RACKS = ("a", "b", "c")
DEBUGGING = -2


class RackedCluster(RunningCluster):
    """Each broker is in a rack of its own."""

    def config(self, node_id: int, **overrides: object) -> BrokerConfig:
        return super().config(node_id, broker_rack=RACKS[node_id - 1], **overrides)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackedCluster]:
    # A follower's fetch may wait for a minute, so a test passes only if changes end it at once.
    with RackedCluster(
        tmp_path_factory.mktemp("racks"), 3, replica_selector_class=RACK_AWARE_SELECTOR,
        replica_fetch_wait_max_ms=60_000,
    ) as running:
        yield running


def placed(cluster: RackedCluster, topic: str) -> tuple[int, int]:
    """Create a topic with one partition; returns its leader and a follower."""
    assert create(cluster, 1, topic, 1, 3) == 0
    for server in cluster.servers.values():
        cluster.until(
            lambda s=server: s.replicas.partition(topic, 0) is not None, "the topic is seen"
        )
    leader = cluster.servers[1].metadata_log.image.topics[topic].partitions[0].leader
    follower = leader % 3 + 1
    cluster.until(lambda: part(cluster, follower, topic).role.in_step, "the follower follows")
    return leader, follower


def part(cluster: RackedCluster, node_id: int, topic: str) -> Any:
    found = cluster.servers[node_id].replicas.partition(topic, 0)
    assert found is not None
    return found


def test_a_consumer_reads_from_the_follower_to_which_the_leader_sends_it(
    cluster: RackedCluster,
) -> None:
    leader, follower = placed(cluster, "near")
    rack = RACKS[follower - 1]
    with cluster.client(leader) as at_leader, cluster.client(follower) as at_follower:
        for number in range(20):
            # After acks=all the follower has the record, so the fetch from it does not wait.
            assert produce(at_leader, "near", batch(b"%d" % number)).error_code == 0
            sent = fetch(at_leader, "near", number, rack_id=rack, max_wait_ms=20_000)
            assert (sent.preferred_read_replica, sent.records) == (follower, b"")
            read = fetch(at_follower, "near", number, rack_id=rack, max_wait_ms=20_000)
            assert values(read) == [b"%d" % number]
        # kafka-replica-verification fetches as replica -2, which Kafka treats as a consumer.
        assert len(values(fetch(at_follower, "near", replica_id=DEBUGGING))) == 20
    assert part(cluster, follower, "near").counters.bytes_out > 0
    assert part(cluster, leader, "near").counters.bytes_out == 0


def test_the_replica_is_named_only_where_the_client_can_reach_it_by_its_listener(
    cluster: RackedCluster,
) -> None:
    leader, follower = placed(cluster, "reached")
    with cluster.client(leader) as client:
        answer = client.call(MetadataRequest(topics=[]), 9)
        assert {each.node_id: each.rack for each in answer.brokers}[follower] == RACKS[follower - 1]
        client.call(MetadataRequest(topics=[]), 9)
        assert fetch(client, "reached", rack_id="nowhere").preferred_read_replica == -1


def test_who_compares_replicas_is_sent_what_consumers_may_read_and_no_more(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
        create_topic(client, "t")
        transactions.find(client, "x")
        producer = transactions.init(client, "x")
        assert transactions.add(client, "x", producer, "t", 0) == [transactions.OK]
        assert transactions.write(client, "x", producer, "t", b"in doubt") == transactions.OK
        for replica_id in (-1, DEBUGGING, -3):
            answer = fetch(client, "t", replica_id=replica_id, isolation_level=1)
            assert values(answer) == [], replica_id
            assert values(fetch(client, "t", replica_id=replica_id)) == [b"in doubt"]


def test_a_damaged_follower_sends_consumers_to_the_leader(cluster: RackedCluster) -> None:
    leader, follower = placed(cluster, "damaged")
    with cluster.client(leader) as client:
        assert produce(client, "damaged", batch(b"v")).error_code == 0
    log = part(cluster, follower, "damaged").log
    cluster.until(lambda: log.log_end_offset == 1, "it is copied")

    async def fail() -> None:
        log.fail("a test's disk")

    cluster.run(fail())
    with cluster.client(follower) as client:
        assert fetch(client, "damaged").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_broker_alone_serves_everybody_whatever_the_selector(tmp_path: Path) -> None:
    with RunningBroker(
        tmp_path, replica_selector_class=RACK_AWARE_SELECTOR, broker_rack="a"
    ) as broker, WireClient(broker.address) as client:
        create_topic(client, "t")
        assert produce(client, "t", batch(b"v")).error_code == 0
        answer = fetch(client, "t", rack_id="b")
        assert (values(answer), answer.preferred_read_replica) == ([b"v"], -1)


def test_a_selector_that_is_not_there_ends_the_start() -> None:
    with pytest.raises(SettingsError, match="Nearest' is not available"):
        BrokerConfig.load(None, ["replica.selector.class=com.example.Nearest"])
