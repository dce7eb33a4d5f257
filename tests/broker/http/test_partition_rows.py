"""Figures of partitions as lines of text, and what a cluster's brokers report of their roles."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.http.group_metrics import led_ends
from ottla.broker.http.partition_metrics import (
    ScrapedPartitions,
    partition_metrics,
    traffic_metrics,
)
from ottla.broker.http.partition_rows import FIGURES, LED, Reading
from ottla.replication.counters import COUNTED, PartitionCounters
from ottla.replication.metadata import PartitionChanged, PartitionExtra
from ottla.wire.messages import CreateTopicsRequest, DeleteTopicsRequest
from tests.broker.produce_fetch import batch, produce
from tests.broker.replication.nodes import TOPIC, NodeCluster
from tests.broker.running import RunningBroker, WireClient
from tests.fakes import FakeClock
from tests.replication.fakes import FakeClusterSide as LonePartition
from tests.replication.fakes import make_partition


def test_every_counter_of_a_partition_is_read() -> None:
    named = {each for each in dir(PartitionCounters) if not each.startswith("_")} - {"add"}
    assert set(COUNTED) == named and len(set(FIGURES)) == len(FIGURES)


def test_each_counter_is_read_under_its_name(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, FakeClock(), LonePartition())
    for number, name in enumerate(COUNTED):
        setattr(partition.counters, name, 10**number)
    reading = Reading({"t": [partition]})
    assert not reading.read_more(10)
    assert [reading.topics.sum(at) for at in range(LED)] == [10**at for at in range(len(COUNTED))]


def test_numbers_of_every_size_are_written(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        with WireClient(broker.address) as client:
            topics = [CreateTopicsRequest.Topic(
                name="numbers", num_partitions=1201, replication_factor=1)]
            client.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
            for _ in range(12):
                produce(client, "numbers", batch(b"x"), partition=1)
        found = broker.call(lambda: read(broker.server.broker))
        ends = {
            int(sample.labels["partition"]): sample.value
            for family in text_string_to_metric_families("".join(partition_metrics(found)))
            for sample in family.samples
            if sample.name == "kafka_log_log_logendoffset" and sample.labels["topic"] == "numbers"
        }
        assert ends == {index: 12.0 * (index == 1) for index in range(1201)}
        assert found.rows.lines("m", FIGURES.index("end"), 5, 5) == ""
        assert found.rows.lines("m", FIGURES.index("end"), 10**6, 10**7) == ""
        assert found.rows.lines("m", FIGURES.index("end"), 1, 2, True) == (
            'm{topic="numbers",partition="1"} 0.012\n')
        assert found.topics.lines("m", LED, 0, 1) == 'm{topic="numbers"} 1201\n'
        assert found.rows.max(FIGURES.index("end")) == 12 == found.sum("end")
        for wrong in (-1, 16):
            for ask in (found.rows.sum, found.rows.max):
                with pytest.raises(ValueError, match="no column"):
                    ask(wrong)


def read(broker: Any) -> ScrapedPartitions:
    found = ScrapedPartitions(broker.replicas)
    assert not "".join(found.read())
    return found


def test_a_topic_that_is_deleted_during_a_scrape_counts_once(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
        topics = [CreateTopicsRequest.Topic(name="gone", num_partitions=3, replication_factor=1)]
        client.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
        for _ in range(5):
            produce(client, "gone", batch(b"x"))
        found = broker.call(lambda: ScrapedPartitions(broker.server.broker.replicas))
        client.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 5)
        broker.call(lambda: list(found.read()))
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        for one in (found, broker.call(lambda: read(broker.server.broker))):
            assert f"\n{name} 5\n" in "".join(traffic_metrics(one))


def test_a_partition_of_a_cluster_is_reported_by_its_leader(tmp_path: Path) -> None:
    cluster = NodeCluster(tmp_path, min_isr=3)
    try:
        cluster.append(1)
        cluster.settle()

        def sums() -> dict[str, list[int]]:
            found = [read(SimpleNamespace(replicas=cluster.nodes[node].replicas))
                     for node in sorted(cluster.nodes)]
            names = ("led_replicas", "led_in_sync", "under_replicated", "under_min_isr",
                     "at_min_isr")
            return {name: [one.sum(name) for one in found] for name in names} | {
                "isr_shrinks": [one.total("isr_shrinks") for one in found]}

        assert sums() == {
            "led_replicas": [3, 0, 0], "led_in_sync": [3, 0, 0], "under_replicated": [0, 0, 0],
            "under_min_isr": [0, 0, 0], "at_min_isr": [1, 0, 0], "isr_shrinks": [0, 0, 0]}
        cluster.kill(3)
        cluster.gone(3)
        cluster.settle()
        assert sums() == {
            "led_replicas": [3, 0], "led_in_sync": [2, 0], "under_replicated": [1, 0],
            "under_min_isr": [1, 0], "at_min_isr": [0, 0], "isr_shrinks": [1, 0]}
        assert cluster.image.topics[TOPIC].partitions[0].isr == (1, 2)
    finally:
        cluster.close()


def test_the_ends_under_the_names_of_kafka_lag_exporter_are_those_of_leaders(
    tmp_path: Path
) -> None:
    """Dashboards add these offsets up: copies on followers must not count again."""
    cluster = NodeCluster(tmp_path)
    try:
        cluster.append(1)
        cluster.settle()
        found = [led_ends(cluster.nodes[node].replicas) for node in sorted(cluster.nodes)]
        assert found == [[(TOPIC, 0, 0, 1)], [], []]
    finally:
        cluster.close()


def test_what_a_reassignment_adds_is_not_missing(tmp_path: Path) -> None:
    """As in Apache Kafka, a reassignment that an operator started must not cause an alarm."""
    cluster = NodeCluster(tmp_path)
    try:
        state = cluster.image.topics[TOPIC].partitions[0]

        def under_replicated(isr: tuple[int, ...]) -> int:
            """The number of under-replicated partitions while replica 3 is added to 1 and 2."""
            nonlocal state
            state = state._replace(
                isr=isr, leader_epoch=state.leader_epoch + 1,
                partition_epoch=state.partition_epoch + 1, extra=PartitionExtra(adding=(3,)),
            )
            cluster.decide([PartitionChanged(TOPIC, 0, state)])
            cluster.catch_up(1)
            return read(SimpleNamespace(replicas=cluster.nodes[1].replicas)).sum("under_replicated")

        assert under_replicated((1, 2)) == 0
        assert under_replicated((1,)) == 1
    finally:
        cluster.close()


def test_what_replicas_copy_is_no_traffic_of_clients(tmp_path: Path) -> None:
    cluster = NodeCluster(tmp_path)
    try:
        for _ in range(3):
            assert cluster.append(1)
        cluster.settle()
        found = {node: read(SimpleNamespace(replicas=one.replicas))
                 for node, one in cluster.nodes.items()}
        size = found[1].sum("size")
        traffic = ("messages_in", "bytes_in", "bytes_out", "replicated_in", "replicated_out")
        counted = {node: [one.total(name) for name in traffic] for node, one in found.items()}
        assert counted == {
            1: [3, size, 0, 0, 2 * size], 2: [0, 0, 0, size, 0], 3: [0, 0, 0, size, 0]}
        assert len(found[1].reading.followed) == 0
        assert found[2].reading.followed.lines("lag", 0, 0, 9) == (
            'lag{clientId="ReplicaFetcherThread-0-1",topic="t",partition="0"} 0\n')
    finally:
        cluster.close()


def test_a_follower_says_how_many_committed_records_it_lacks(tmp_path: Path) -> None:
    cluster = NodeCluster(tmp_path)
    try:
        cluster.kill(3)
        cluster.gone(3)
        for _ in range(8):
            assert cluster.append(1)
            cluster.settle()
        cluster.start(3)
        for node in cluster.nodes:
            cluster.catch_up(node)
        link = cluster.link(3, 1)
        assert link is not None and link.ask()

        def missing() -> int:
            return read(SimpleNamespace(replicas=cluster.nodes[3].replicas)).reading.followed.max(0)

        assert missing() == 0, "no answer has come yet"
        link.receive()
        partition = cluster.nodes[3].partition()
        assert partition is not None and 0 < partition.log.log_end_offset < 8
        assert missing() == 8 - partition.log.log_end_offset
        cluster.settle()
        assert missing() == 0
    finally:
        cluster.close()


def test_what_a_replica_counted_stays_after_it_has_moved_away(tmp_path: Path) -> None:
    cluster = NodeCluster(tmp_path)
    try:
        assert cluster.append(1)
        cluster.settle()
        state = cluster.image.topics[TOPIC].partitions[0]
        before = read(SimpleNamespace(replicas=cluster.nodes[2].replicas))
        moved = state._replace(replicas=(1, 3), isr=(1, 3))
        cluster.decide([PartitionChanged(TOPIC, 0, moved)])
        cluster.settle()
        after = read(SimpleNamespace(replicas=cluster.nodes[2].replicas))
        assert (len(before.rows), len(after.rows)) == (1, 0)
        assert before.total("replicated_in") == after.total("replicated_in") > 0
    finally:
        cluster.close()
