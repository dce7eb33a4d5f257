"""Stock clients push their metrics (KIP-714): Java's producer and consumer, and librdkafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.brokers import OttlaBroker
from compat_tests.kafka_tools import KafkaTools
from ottla.tools.zookeeper.local import free_port


class Metrics:
    """A broker, and the port on which it serves metrics."""

    def __init__(self, broker: OttlaBroker, port: int) -> None:
        self.broker, self.port = broker, port

    def read(self, path: str) -> str:
        with urlopen(f"http://localhost:{self.port}{path}") as answer:
            return str(answer.read().decode())

    def clients(self, client_id: str) -> list[dict[str, Any]]:
        """The broker's entries for clients with this client id."""
        listed = json.loads(self.read("/api/v1/telemetry"))
        return [each for each in listed if each["client_id"] == client_id]

    def value(self, name: str, client_id: str, topic: str = "") -> float:
        """The value of a metric that this client pushed, for one topic or without a topic."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.read("/metrics"))
            for sample in family.samples
            if sample.name == name and sample.labels.get("client_id") == client_id
            and sample.labels.get("topic", "") == topic
        )


@pytest.fixture(scope="module")
def metrics(new_broker: Callable[..., Any], tools: KafkaTools) -> Iterator[Metrics]:
    """A broker that requests all metrics from every client, set by Kafka's own
    kafka-client-metrics."""
    port = free_port()
    broker = new_broker(f"ottla.http.listener=localhost:{port}")
    if not isinstance(broker, OttlaBroker):
        pytest.skip("Apache Kafka asks for metrics with a plug-in only")
    broker.start()
    asked = tools.run("kafka-client-metrics", [
        "--bootstrap-server", broker.bootstrap, "--alter", "--name", "all", "--metrics", "*",
        "--interval", "1000",
    ])
    assert asked.status == 0, asked
    yield Metrics(broker, port)
    broker.stop()


def test_a_java_producer_and_consumer_push_while_they_run(
    metrics: Metrics, tools: KafkaTools
) -> None:
    bootstrap = metrics.broker.bootstrap
    produced = tools.run("kafka-producer-perf-test", [
        "--topic", "perf", "--num-records", "1000", "--record-size", "100", "--throughput", "300",
        "--producer-props", f"bootstrap.servers={bootstrap}", "client.id=java-producer",
    ])
    assert produced.status == 0, produced
    # The push when the producer closes may be missing: Java's sender does not always poll again.
    [client] = metrics.clients("java-producer")
    assert client["client_software_name"] == "apache-kafka-java"
    assert client["pushes"] >= 2 and client["values"] > 20
    prefix = "org_apache_kafka_producer"
    sent = metrics.value(f"{prefix}_topic_record_send_total", "java-producer", "perf")
    assert 100 <= sent <= 1000
    assert metrics.value(f"{prefix}_connection_creation_total", "java-producer") >= 1
    read = tools.run("kafka-console-consumer", [
        "--bootstrap-server", bootstrap, "--topic", "perf", "--from-beginning",
        "--timeout-ms", "15000", "--consumer-property", "client.id=java-consumer",
    ])
    assert "1000" in read.stderr, read.stderr
    assert metrics.value(
        "org_apache_kafka_consumer_fetch_manager_records_consumed_total", "java-consumer") == 1000


def test_librdkafka_pushes(metrics: Metrics) -> None:
    producer = Producer({"bootstrap.servers": metrics.broker.bootstrap, "client.id": "c-producer"})
    producer.produce("of-c", b"x")
    deadline = time.monotonic() + 60
    name = "org_apache_kafka_producer_connection_creation_total"
    while metrics.value(name, "c-producer") < 1:
        assert time.monotonic() < deadline, metrics.clients("c-producer")
        producer.poll(0.1)
    [client] = metrics.clients("c-producer")
    assert client["client_software_version"].startswith("2.")


def test_a_client_that_does_not_match_pushes_nothing(
    metrics: Metrics, tools: KafkaTools
) -> None:
    bootstrap = metrics.broker.bootstrap
    at = ["--bootstrap-server", bootstrap, "--alter", "--name", "all"]
    narrowed = tools.run("kafka-client-metrics", [*at, "--match", "client_id=nobody"])
    assert narrowed.status == 0, narrowed
    produced = tools.run("kafka-producer-perf-test", [
        "--topic", "perf", "--num-records", "10", "--record-size", "100", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={bootstrap}", "client.id=unasked",
    ])
    assert produced.status == 0, produced
    [client] = metrics.clients("unasked")
    assert (client["requested_metrics"], client["pushes"], client["values"]) == ([], 0, 0)
