"""Kafka's own command-line tools, from the jars of benchmarks/peers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker, ClusterBroker, OttlaBroker
from compat_tests.kafka_tools import kafka_tool
from compat_tests.waiting import wait_until

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def test_kafka_topics_creates_describes_and_deletes(broker: Broker) -> None:
    topic = f"tool-topics-{os.getpid()}"
    at = ("--bootstrap-server", "{}")
    named = (*at, "--topic", topic)
    kafka_tool(
        broker, "topics", *named, "--create", "--partitions", "4", "--config", "retention.ms=5000"
    )
    described = kafka_tool(broker, "topics", *named, "--describe")
    # Without --replication-factor, the brokers' default applies.
    assert re.search(rf"Topic: {topic}\s.*PartitionCount: 4\s+ReplicationFactor: [13]\s", described)
    assert "retention.ms=5000" in described
    kafka_tool(broker, "topics", *named, "--alter", "--partitions", "6")
    assert f"{topic}" in kafka_tool(broker, "topics", *at, "--list").split()
    kafka_tool(broker, "topics", *named, "--delete")
    assert f"{topic}" not in kafka_tool(broker, "topics", *at, "--list").split()


def test_kafka_configs_alters_a_topic(broker: Broker, new_topic: Callable[..., str]) -> None:
    entity = (
        "--bootstrap-server",
        "{}",
        "--entity-type",
        "topics",
        "--entity-name",
        new_topic("tool-configs"),
    )
    kafka_tool(broker, "configs", *entity, "--alter", "--add-config", "max.message.bytes=2000000")
    described = kafka_tool(broker, "configs", *entity, "--describe")
    assert "max.message.bytes=2000000" in described
    kafka_tool(broker, "configs", *entity, "--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes=2000000" not in kafka_tool(broker, "configs", *entity, "--describe")


def test_kafka_producer_perf_sends_all_its_records(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("tool-perf", partitions=4)
    printed = kafka_tool(
        broker, "producer-perf", "--topic", topic, "--num-records", "50000", "--record-size", "500",
        "--throughput", "-1", "--bootstrap-server", "{}",
    )  # fmt: skip
    assert "50000 records sent" in printed
    offsets = kafka_tool(broker, "get-offsets", "--bootstrap-server", "{}", "--topic", topic)
    assert sum(int(row.split(":")[2]) for row in offsets.split()) == 50_000


def test_kafka_delete_records_moves_the_log_start(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic("tool-delete-records")
    kafka_tool(
        broker, "producer-perf", "--topic", topic, "--num-records", "1000", "--record-size", "10",
        "--throughput", "-1", "--bootstrap-server", "{}",
    )  # fmt: skip
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 400}], "version": 1}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    at = ("--bootstrap-server", "{}")
    printed = kafka_tool(
        broker, "delete-records", *at, "--offset-json-file", str(tmp_path / "offsets.json")
    )
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 400", printed)
    starts = kafka_tool(broker, "get-offsets", *at, "--topic", topic, "--time", "earliest")
    assert starts.split() == [f"{topic}:0:400"]


def test_kafka_log_dirs_tells_the_size_of_a_partition(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("tool-log-dirs")
    at = ("--bootstrap-server", "{}")
    printed = kafka_tool(broker, "log-dirs", *at, "--describe", "--topic-list", topic)
    described = json.loads(printed[printed.index("{") :])
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert directory["partitions"] == [
        {"partition": f"{topic}-0", "size": 0, "offsetLag": 0, "isFuture": False}
    ]


def test_kafka_api_versions_knows_every_api(broker: Broker) -> None:
    printed = kafka_tool(broker, "api-versions", "--bootstrap-server", "{}")
    assert re.search(r"Produce\(0\): 0 to 13", printed)
    assert re.search(r"ApiVersions\(18\): 0 to \d", printed)


def test_kafka_metadata_quorum_and_features_describe_the_cluster(broker: Broker) -> None:
    at = ("--bootstrap-server", "{}")
    status = kafka_tool(broker, "metadata-quorum", *at, "describe", "--status")
    leader = re.search(r"LeaderId:\s+(\d+)", status)
    assert leader is not None
    voters = re.search(r"CurrentVoters:\s+(\[.*\])", status)
    assert voters is not None
    nodes = [voter["id"] for voter in json.loads(voters[1])]
    assert int(leader[1]) in nodes
    assert len(nodes) == 1 or isinstance(broker, ClusterBroker), "itself alone"
    features = kafka_tool(broker, "features", *at, "describe")
    for feature, level in (("group.version", 1), ("transaction.version", 2)):
        assert re.search(rf"Feature: {feature}\s.*FinalizedVersionLevel: {level}\s", features)


def test_kafka_features_lowers_a_level_and_raises_it_again(broker: Broker) -> None:
    at = ("--bootstrap-server", "{}")

    def level() -> str:
        printed = kafka_tool(broker, "features", *at, "describe")
        found = re.search(r"transaction\.version .*FinalizedVersionLevel: (\d)", printed)
        assert found is not None
        return found[1]

    assert level() == "2"
    lower = kafka_tool(broker, "features", *at, "downgrade", "--feature", "transaction.version=1")
    assert lower == "transaction.version was downgraded to 1.\n"
    wait_until(lambda: level() == "1", "the lower level")
    higher = kafka_tool(broker, "features", *at, "upgrade", "--feature", "transaction.version=2")
    assert higher == "transaction.version was upgraded to 2.\n"
    wait_until(lambda: level() == "2", "the higher level")


def test_kafka_reassign_partitions_moves_to_where_they_are(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic("tool-reassign", partitions=1)
    cluster = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=60)
    replicas = list(cluster.topics[topic].partitions[0].replicas)
    wanted = {"topic": topic, "partition": 0, "replicas": replicas}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    at = ("--bootstrap-server", "{}", "--reassignment-json-file", str(plan))
    assert "Successfully started" in kafka_tool(broker, "reassign", *at, "--execute")
    assert "is completed" in kafka_tool(broker, "reassign", *at, "--verify")


def test_kafka_reassign_partitions_moves_between_log_directories(tmp_path: Path) -> None:
    """Records produced during the move are there once, before and after a restart."""
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    broker = OttlaBroker(tmp_path / "broker", [f"log.dirs={','.join(directories)}"])
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("moved", 1, 1)])["moved"].result(60)
        [node] = admin.list_topics("moved", timeout=60).brokers
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        sent = [b"%d" % number * 200 for number in range(6000)]
        for value in sent[:2000]:
            producer.produce("moved", value)
        producer.flush(60)
        home, target = sorted(directories, key=lambda path: not (Path(path) / "moved-0").is_dir())
        wanted = {"topic": "moved", "partition": 0, "replicas": [node], "log_dirs": [target]}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        at = ("--bootstrap-server", "{}", "--reassignment-json-file", str(plan))
        with ThreadPoolExecutor(1) as thread:
            throttle = ("--replica-alter-log-dirs-throttle", "50000000")
            executed = thread.submit(kafka_tool, broker, "reassign", *at, "--execute", *throttle)
            for value in sent[2000:]:
                producer.produce("moved", value)
                producer.poll(0.0005)
            done = executed.result()
            assert "started moving log directory" in done
            assert "throttle limit was set to 50000000 B/s" in done
            begun = f"{THROTTLE} is now set to 50000000"
            wait_until(lambda: begun in broker.log.read_text(), "the throttle is set")
        producer.flush(60)
        there = f"replica moved-0-{node} completed successfully"
        wait_until(lambda: there in kafka_tool(broker, "reassign", *at, "--verify"), there)
        over = f"{THROTTLE} is now set to its default"
        wait_until(lambda: over in broker.log.read_text(), "the throttle is removed")
        for _ in range(2):
            assert (Path(target) / "moved-0").is_dir()
            assert not (Path(home) / "moved-0").exists()
            assert values_in(broker, "moved", len(sent)) == sent
            broker.stop()
            broker.start()
    finally:
        broker.stop()


def values_in(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    """The values of partition 0 from the first record on: at least `count`, and all that the last
    call of `consume` returned."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found: list[bytes | None] = []
        while len(found) < count:
            messages = consumer.consume(1000, 60)
            assert messages, f"{len(found)} of {count} came"
            found += [message.value() for message in messages]
        return found
    finally:
        consumer.close()


def test_kafka_configs_keeps_credentials_and_shows_no_secret(broker: Broker) -> None:
    user = ("--entity-type", "users", "--entity-name", f"tool-user-{os.getpid()}")
    at = ("--bootstrap-server", "{}", *user)
    secret = "SCRAM-SHA-512=[iterations=4096,password=secret]"
    kafka_tool(broker, "configs", *at, "--alter", "--add-config", secret)
    described = kafka_tool(broker, "configs", *at, "--describe")
    assert "SCRAM-SHA-512=iterations=4096" in described
    assert "secret" not in described
    kafka_tool(broker, "configs", *at, "--alter", "--delete-config", "SCRAM-SHA-512")
