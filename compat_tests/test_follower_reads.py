"""Stock clients read from the replica in their rack (KIP-392), and continue when this replica or
the leader is killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.kafka_tools import KafkaTools
from compat_tests.requirements import zookeeper
from compat_tests.waiting import wait_until
from ottla.tools.cli.local_cluster import LocalCluster
from ottla.tools.zookeeper.local import free_port

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SENT = "kafka_server_brokertopicmetrics_bytesout_total"
RACKS = {1: "a", 2: "b", 3: "c"}
pytestmark = pytest.mark.timeout(240)


class Racks:
    """Three brokers in three racks; each serves metrics on a port."""

    def __init__(self, directory: Path) -> None:
        self.cluster = LocalCluster(directory, 3, settings=[f"replica.selector.class={SELECTOR}"])
        self.ports = {}
        for node_id, broker in self.cluster.brokers.items():
            self.ports[node_id] = free_port()
            broker.settings += [
                f"broker.rack={RACKS[node_id]}",
                f"ottla.http.listener=localhost:{self.ports[node_id]}",
            ]
        self.bootstrap = self.cluster.bootstrap
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})

    def create(self, topic: str) -> None:
        """Create a topic with one partition, which broker 1 leads."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = NewTopic(topic, 1, replica_assignment=[[1, 2, 3]])
        admin.create_topics([made])[topic].result(30)

    def produce(self, topic: str, first: int, count: int) -> None:
        """Produce records whose values are their offsets."""
        for number in range(first, first + count):
            self.producer.produce(topic, b"%d" % number)
        assert self.producer.flush(60) == 0

    def sent(self, node_id: int, topic: str) -> float:
        """How many bytes of records a broker has sent to consumers of a topic."""
        with urlopen(f"http://localhost:{self.ports[node_id]}/metrics") as answer:
            text = answer.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples
            if sample.name == SENT and sample.labels.get("topic") == topic
        )

    def consumer(self, topic: str, rack: str, **settings: object) -> Consumer:
        """A consumer in this rack that reads the topic's partition from its beginning."""
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": "assigned-only", "client.rack": rack,
            "enable.auto.commit": False, "fetch.wait.max.ms": 100,
            **{name.replace("_", "."): value for name, value in settings.items()},
        })
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer

    def settle(self, topic: str) -> None:
        """Wait until all replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wait_until(
            lambda: len(admin.list_topics(topic, 10).topics[topic].partitions[0].isrs) == 3,
            "all replicas are in sync",
        )


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    zookeeper()
    made = Racks(tmp_path_factory.mktemp("racks"))
    with made.cluster:
        yield made


def read(consumer: Consumer, count: int) -> list[bytes]:
    """The next `count` values, or fewer if they do not arrive within 60 s."""
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_librdkafka_reads_everything_from_the_follower_in_its_rack(racks: Racks) -> None:
    racks.create("near")
    racks.produce("near", 0, 2000)
    consumer = racks.consumer("near", "b")
    assert read(consumer, 2000) == numbers(0, 2000)
    for first in range(2000, 2100):             # the consumer waits when these records arrive
        racks.produce("near", first, 1)
        assert read(consumer, 1) == numbers(first, 1)
    consumer.close()
    assert (racks.sent(1, "near"), racks.sent(3, "near")) == (0, 0)
    assert racks.sent(2, "near") > 0


def test_the_java_client_reads_everything_from_the_follower_in_its_rack(
    racks: Racks, tools: KafkaTools
) -> None:
    racks.create("java")
    racks.produce("java", 0, 2000)
    ran = tools.run("kafka-console-consumer", [
        "--bootstrap-server", racks.bootstrap, "--topic", "java", "--from-beginning",
        "--max-messages", "2000", "--timeout-ms", "60000",
        "--command-property", "client.rack=c",
    ])
    assert ran.status == 0, ran
    assert ran.stdout.split() == [value.decode() for value in numbers(0, 2000)]
    assert (racks.sent(1, "java"), racks.sent(2, "java")) == (0, 0)
    assert racks.sent(3, "java") > 0


@pytest.mark.parametrize("killed", [2, 1], ids=["the follower", "the leader"])
def test_librdkafka_goes_on_when_a_broker_is_killed(racks: Racks, killed: int) -> None:
    topic = f"killed-{killed}"
    racks.create(topic)
    racks.settle(topic)
    racks.produce(topic, 0, 500)
    consumer = racks.consumer(topic, "b")
    assert read(consumer, 500) == numbers(0, 500)
    assert racks.sent(2, topic) > 0 == racks.sent(1, topic)
    broker = racks.cluster.brokers[killed]
    broker.kill()
    try:
        racks.produce(topic, 500, 500)
        assert read(consumer, 500) == numbers(500, 500)
    finally:
        broker.start()
        broker.wait_ready()
    racks.settle(topic)
    racks.produce(topic, 1000, 100)
    assert read(consumer, 100) == numbers(1000, 100)
    consumer.close()


@pytest.mark.parametrize("killed", [3, 1], ids=["the follower", "the leader"])
def test_the_java_client_goes_on_when_a_broker_is_killed(
    racks: Racks, tools: KafkaTools, killed: int
) -> None:
    topic = f"java-killed-{killed}"
    racks.create(topic)
    racks.settle(topic)
    racks.produce(topic, 0, 500)
    command = tools.command(
        "kafka-console-consumer", "--bootstrap-server", racks.bootstrap, "--topic", topic,
        # Without a group, because its coordinator may be the broker that is killed.
        "--partition", "0", "--offset", "earliest", "--max-messages", "1000",
        "--timeout-ms", "60000",
        "--command-property", "client.rack=c",
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        broker = racks.cluster.brokers[killed]
        try:
            wait_until(lambda: racks.sent(3, topic) > 0, "it reads from the follower")
            assert racks.sent(1, topic) == 0
            broker.kill()
            racks.produce(topic, 500, 500)
            out, errors = process.communicate(timeout=120)
        finally:
            process.kill()
            broker.start()
            broker.wait_ready()
    assert out.split() == numbers(0, 1000), errors[-2000:]
    racks.settle(topic)


def test_readers_of_committed_records_read_from_the_follower(racks: Racks) -> None:
    racks.create("transactions")
    producer = Producer({"bootstrap.servers": racks.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for number in range(40):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("transactions", b"%d" % number)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    consumer = racks.consumer("transactions", "c", isolation_level="read_committed")
    assert read(consumer, 100) == [b"%d" % number for number in range(0, 40, 2) for _ in range(5)]
    producer.begin_transaction()
    producer.produce("transactions", b"open")
    producer.flush(30)
    assert consumer.consume(1, 1.0) == []
    producer.commit_transaction(30)
    assert read(consumer, 1) == [b"open"]
    consumer.close()
    assert (racks.sent(1, "transactions"), racks.sent(2, "transactions")) == (0, 0)
    assert racks.sent(3, "transactions") > 0
