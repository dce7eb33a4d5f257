"""Figures of partitions as lines of text, and what a cluster's brokers report of their roles."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.http.partition_metrics import Found, partition_metrics, traffic_metrics
from ottla.broker.http.partition_rows import FIGURES, TRAFFIC
from ottla.replication.replicas import COUNTED
from ottla.wire.messages import CreateTopicsRequest, DeleteTopicsRequest
from tests.broker.produce_fetch import batch, produce
from tests.broker.replication.nodes import TOPIC, Cluster
from tests.broker.running import RunningBroker, WireClient


def test_every_counter_of_a_partition_is_read() -> None:
    assert set(TRAFFIC) == set(COUNTED) and len(set(FIGURES)) == len(FIGURES)


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
        first = next(at for at, (name, _) in enumerate(found.topics) if name == "numbers")
        assert first == 0 and found.rows.lines("m", FIGURES.index("end"), 1, 2, True) == (
            'm{topic="numbers",partition="1"} 0.012\n')


def read(broker: Any) -> Found:
    found = Found(broker)
    assert not "".join(found.read())
    return found


def test_a_topic_that_is_deleted_during_a_scrape_counts_once(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
        topics = [CreateTopicsRequest.Topic(name="gone", num_partitions=3, replication_factor=1)]
        client.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
        for _ in range(5):
            produce(client, "gone", batch(b"x"))
        found = broker.call(lambda: Found(broker.server.broker))
        client.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 5)
        broker.call(lambda: list(found.read()))
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        for one in (found, broker.call(lambda: read(broker.server.broker))):
            assert f"\n{name} 5\n" in "".join(traffic_metrics(one))


def test_a_partition_of_a_cluster_is_reported_by_its_leader(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, min_isr=3)
    try:
        cluster.append(1)
        cluster.settle()

        def sums() -> dict[str, list[int]]:
            found = [read(SimpleNamespace(replicas=cluster.nodes[node].replicas))
                     for node in sorted(cluster.nodes)]
            names = ("led_replicas", "led_in_sync", "under_replicated", "under_min_isr",
                     "at_min_isr")
            return {name: [one.rows.sum(name) for one in found] for name in names} | {
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
