"""A standalone broker with records becomes the first broker of a cluster, in place, while stock
producers stay open. Two brokers join and get replicas. Then the first broker is killed.

The commands are those of docs/cluster_operations.md."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConnectionError

from compat_tests.requirements import zookeeper
from compat_tests.waiting import wait_until
from ottla.tools.cli.local_cluster import CHROOT, LocalBroker
from ottla.tools.commands import table
from ottla.tools.zookeeper.local import LocalZooKeeper, free_port
from tests.documents import commands, run_as_written

pytestmark = pytest.mark.timeout(300)
COUNT = 300
INTERNAL = ["__consumer_offsets", "__transaction_state"]


class Growing:
    """Broker 0, which has a server.properties, and brokers 1 and 2, which a test starts later."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = LocalZooKeeper(directory / "zookeeper")
        self.zookeeper.start()
        self.connect = self.zookeeper.connect + CHROOT
        few = ["offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3",
               "group.initial.rebalance.delay.ms=0"]
        self.brokers = [
            LocalBroker(node, directory, free_port(), self.connect, few) for node in range(3)
        ]
        self.first = self.brokers[0]
        self.in_cluster = self.first.settings
        self.first.settings = [
            each for each in self.in_cluster if not each.startswith("zookeeper.connect")
        ]
        self.properties = directory / "server.properties"
        self.properties.write_text("\n".join(self.first.settings) + "\n")

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def ottla(self, line: str, status: int = 0) -> str:
        """What an ottla command prints; it must end with this status."""
        done = subprocess.run(
            [sys.executable, "-m", "ottla", *shlex.split(line)], cwd=self.directory,
            capture_output=True, text=True, timeout=120,
        )
        assert done.returncode == status, done
        return done.stdout + done.stderr

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.zookeeper.kill()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    zookeeper()
    made = Growing(tmp_path)
    yield made
    made.close()


def start(broker: LocalBroker) -> None:
    broker.start()
    broker.wait_ready()


class Writers:
    """Stock producers that stay open during the whole test, and the acknowledged values."""

    def __init__(self, bootstrap: str) -> None:
        common = {"bootstrap.servers": bootstrap, "delivery.timeout.ms": 120_000, "acks": "all"}
        self.idempotent = Producer({**common, "enable.idempotence": True})
        self.transactional = Producer({
            "bootstrap.servers": bootstrap, "transactional.id": "payments",
            "transaction.timeout.ms": 300_000,
        })
        self.transactional.init_transactions(60)
        self.acknowledged: set[bytes] = set()

    def delivered(self, error: object, message: Message) -> None:
        assert error is None, error
        value = message.value()
        assert value is not None and value not in self.acknowledged
        self.acknowledged.add(value)

    def send(self, stage: str) -> None:
        """Produce records to all partitions; all in-sync replicas acknowledge them."""
        for number in range(COUNT):
            self.idempotent.produce(
                "records", f"{stage}-{number}", partition=number % 3, on_delivery=self.delivered
            )
        assert self.idempotent.flush(120) == 0

    def begin(self, value: str) -> None:
        """Produce a record in a transaction, which stays open."""
        self.transactional.begin_transaction()
        self.transactional.produce("payments", value, partition=0)
        assert self.transactional.flush(120) == 0

    def commit(self) -> None:
        self.transactional.commit_transaction(120)


def send_with_kafka_python(bootstrap: str, stage: str) -> set[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    values = {b"%s-python-%d" % (stage.encode(), number) for number in range(COUNT)}
    sent = [producer.send("records", value) for value in values]
    for each in sent:
        each.get(60)
    producer.close()
    return values


def all_values(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[bytes]:
    """All values that kafka-python reads from a topic. kafka-python fails if it sends a request to
    a dead broker that is still listed, also with Apache Kafka, so this function repeats the read.
    """
    found: list[list[bytes]] = []

    def is_read() -> bool:
        try:
            found.append(values_once(bootstrap, topic, isolation))
        except KafkaConnectionError:
            return False
        return True

    wait_until(is_read, "kafka-python reads")
    return found[0]


def values_once(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    """All values that kafka-python reads from a topic, from its beginning to its end."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), isolation_level=isolation, consumer_timeout_ms=5000
    )
    partitions = consumer.partitions_for_topic(topic)
    assert partitions
    places = [TopicPartition(topic, number) for number in partitions]
    consumer.assign(places)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(places)
    found: list[bytes] = []
    while any(consumer.position(place) < end for place, end in ends.items()):
        for records in consumer.poll(1000).values():
            found += [record.value for record in records]
    consumer.close()
    return found


def group_reads(bootstrap: str, count: int) -> list[bytes]:
    """The next `count` values that a consumer of the group `readers` gets; it commits them."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "error",
        "enable.auto.commit": False,
    })
    consumer.subscribe(["records"])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message and message.error()
        found.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def begin_group(bootstrap: str) -> None:
    """Commit offset 0 for each partition, so that the group `readers` starts at the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[Place("records", number, 0) for number in range(3)],
                    asynchronous=False)
    consumer.close()


def create(growing: Growing) -> None:
    """With the page's commands, unchanged, make the broker the first one of a cluster. The commands
    ask for ZooKeeper's address on a terminal. Also run the example of `ottla cluster create`: while
    the broker runs, as a dry run, and when nothing is left to do."""
    first = growing.first
    [example] = table.read("ottla")["cluster create"].examples
    line = example.removeprefix("ottla ").replace("localhost:2181/ottla", growing.connect)
    assert "in use by another process" in growing.ottla(line, status=1)
    first.stop()
    planned = growing.ottla(line.replace("--yes", "--dry-run"))
    assert "would have made broker 0 the first broker of cluster" in planned
    assert growing.connect in planned and "topics with" in planned
    start(first)
    (growing.directory / "data").symlink_to("broker-0")
    script = of_the_page("ottla cluster create").replace("localhost:2181/ottla", growing.connect)
    terminal, typed = pty.openpty()
    os.write(terminal, f"{growing.connect}\n".encode())
    print(planned + run_as_written(script, growing.directory, first.address, typed))
    os.close(terminal)
    os.close(typed)
    growing.ottla(line)                     # again: nothing is left to do
    first.start()
    assert first.process is not None and first.process.wait(60) == 1
    assert "belongs to a broker of a cluster, which has its metadata" in first.printed()
    first.settings = growing.in_cluster


def of_the_page(words: str) -> str:
    """The block of commands of docs/cluster_operations.md that contains these words."""
    blocks = commands("docs/cluster_operations.md")
    [found] = [block.text for block in blocks if words in block.text]
    return found


def replicate(growing: Growing) -> None:
    """Give every partition three replicas with the page's commands, unchanged."""
    address = growing.brokers[1].address
    admin = AdminClient({"bootstrap.servers": growing.bootstrap})
    assert {*INTERNAL, "records", "payments"} <= {*admin.list_topics(timeout=30).topics}
    printed = run_as_written(of_the_page("range(3)"), growing.directory, address)
    assert "Successfully started partition reassignment" in printed
    topics = admin.list_topics(timeout=30).topics
    assert all(
        len(part.isrs) == 3 for topic in topics.values() for part in topic.partitions.values()
    )
    told = growing.ottla(f"kafka-topics --bootstrap-server {address} --describe --topic"
                         " __transaction_state")
    assert "min.insync.replicas=2" in told and "ReplicationFactor: 3" in told


def test_a_standalone_broker_grows_into_a_cluster_and_its_loss_loses_nothing(
    growing: Growing,
) -> None:
    first = growing.first
    start(first)
    admin = AdminClient({"bootstrap.servers": first.address})
    for topic, count in (("records", 3), ("payments", 1)):
        admin.create_topics([NewTopic(topic, count, 1)])[topic].result(30)
    cluster_id = admin.describe_cluster().result(30).cluster_id
    growing.ottla(f"kafka-configs --bootstrap-server {first.address} --alter --entity-type users"
                  " --entity-name alice --add-config producer_byte_rate=1000000")
    writers = Writers(growing.bootstrap)
    writers.send("alone")
    python = send_with_kafka_python(first.address, "alone")
    writers.begin("committed alone")
    writers.commit()
    begin_group(first.address)
    read = group_reads(first.address, COUNT)
    writers.begin("begun alone, committed in the cluster")

    create(growing)
    start(first)
    assert AdminClient({"bootstrap.servers": first.address}).describe_cluster().result(
        30).cluster_id == cluster_id
    assert sorted(all_values(first.address, "records")) == sorted(writers.acknowledged | python)
    writers.commit()
    assert all_values(first.address, "payments", "read_committed") == [
        b"committed alone", b"begun alone, committed in the cluster"]
    writers.send("first")

    for broker in growing.brokers[1:]:
        start(broker)
    replicate(growing)
    told = growing.ottla(f"kafka-configs --bootstrap-server {growing.brokers[2].address} --describe"
                         " --entity-type users --entity-name alice")
    assert "producer_byte_rate=1000000" in told
    writers.send("three")
    writers.begin("begun, then the first broker was killed")
    first.kill()
    writers.send("killed")
    writers.commit()
    rest = ",".join(broker.address for broker in growing.brokers[1:])
    python |= send_with_kafka_python(rest, "killed")
    everything = sorted(writers.acknowledged | python)
    assert len(everything) == 6 * COUNT
    assert sorted(all_values(rest, "records")) == everything
    read += group_reads(rest, len(everything) - len(read))
    assert sorted(read) == everything, "the group goes on where it was, and reads nothing twice"
    assert len(all_values(rest, "payments", "read_committed")) == 3

    start(first)
    admin = AdminClient({"bootstrap.servers": growing.bootstrap})

    def led_again() -> bool:
        parts = admin.list_topics(timeout=30).topics["records"].partitions
        return all(len(p.isrs) == 3 for p in parts.values()) and parts[0].leader == 0

    wait_until(led_again, "the first broker leads again", 120)
    assert sorted(all_values(growing.bootstrap, "records")) == everything
