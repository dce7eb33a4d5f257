"""The admin clients and small round trips of kafka-python, aiokafka and confluent-kafka."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic as KafkaPythonNewTopic
from kafka.structs import TopicPartition as KafkaPythonPartition

from compat_tests import readers
from compat_tests.brokers import Broker


def unused(base: str) -> str:
    """A topic name that no other run uses."""
    return f"{base}-{os.getpid()}"


def test_confluent_kafka_creates_configures_grows_and_deletes(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = unused("confluent-admin")
    new = NewTopic(topic, 2, 1, config={"retention.ms": "60000"})
    admin.create_topics([new])[topic].result(60)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 4
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "90000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([asked])[asked].result(60)["retention.ms"].value == "90000"
    admin.delete_topics([topic])[topic].result(60)
    assert topic not in admin.list_topics(timeout=60).topics


@pytest.mark.one_broker
def test_confluent_kafka_is_told_why_a_topic_is_refused(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def refusal(new: NewTopic) -> str:
        try:
            admin.create_topics([new])[new.topic].result(60)
        except KafkaException as error:
            return str(error.args[0].name())
        return "created"

    assert refusal(NewTopic(new_topic("there-already"), 1, 1)) == "TOPIC_ALREADY_EXISTS"
    assert refusal(NewTopic("not a name", 1, 1)) == "TOPIC_EXCEPTION"
    assert refusal(NewTopic(unused("too-many-copies"), 1, 3)) == "INVALID_REPLICATION_FACTOR"
    assert refusal(NewTopic(unused("none"), 0, 1)) == "INVALID_PARTITIONS"
    bad = NewTopic(unused("bad-config"), 1, 1, config={"retention.ms": "soon"})
    assert refusal(bad) == "INVALID_CONFIG"


@pytest.mark.one_broker
def test_confluent_kafka_lists_offsets_and_describes_the_cluster(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = new_topic("confluent-offsets")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for timestamp_ms in (1_000, 3_000, 2_000):
        producer.send(topic, b"value", timestamp_ms=timestamp_ms).get(30)
    producer.close()
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({partition: spec})[partition].result(60).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(1_500)) == 1
    cluster = admin.describe_cluster(request_timeout=60).result(60)
    assert cluster.cluster_id
    assert [node.port for node in cluster.nodes] == [int(broker.bootstrap.rpartition(":")[2])]


def test_records_are_deleted_up_to_an_offset_or_all_of_them(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("delete-records")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for _ in range(5):
        producer.send(topic, b"value").get(30)
    producer.close()
    confluent = AdminClient({"bootstrap.servers": broker.bootstrap})
    below = TopicPartition(topic, 0, 3)
    assert confluent.delete_records([below])[below].result(60).low_watermark == 3
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        confluent.delete_records([TopicPartition(topic, 0, 9)])[below].result(60)
    kafka_python = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    partition = KafkaPythonPartition(topic, 0)
    deleted = kafka_python.delete_records({partition: -1})
    assert deleted[partition]["low_watermark"] == 5
    kafka_python.close()


@pytest.mark.one_broker
def test_kafka_python_creates_describes_and_deletes(broker: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    topic = unused("kafka-python-admin")
    admin.create_topics([KafkaPythonNewTopic(name=topic, num_partitions=3, replication_factor=1)])
    assert topic in admin.list_topics()
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 3
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_aiokafka_creates_and_produces_in_order(broker: Broker) -> None:
    topic = unused("aiokafka")

    async def run() -> list[int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(topic, 1, 1)])
        await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        sent = [await producer.send(topic, b"value-%d" % i) for i in range(1_000)]
        offsets = [(await future).offset for future in sent]
        await producer.stop()
        return offsets

    assert asyncio.run(run()) == list(range(1_000))
    read = readers.read_with_kcat(broker.bootstrap, topic)
    assert [line.rpartition(b"\t")[2] for line in read[0]] == [
        b"value-%d" % i for i in range(1_000)
    ]


def test_confluent_kafka_makes_access_rules_that_count(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker(
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    )
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for topic in ("open", "closed-1"):
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
        rule = AclBinding(
            ResourceType.TOPIC, "closed-", ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*",
            AclOperation.WRITE, AclPermissionType.DENY,
        )
        admin.create_acls([rule])[rule].result(60)
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert admin.describe_acls(every).result(60) == [rule]
        assert errors_of_sends(broker, "open", "closed-1") == {"TOPIC_AUTHORIZATION_FAILED"}
        assert admin.delete_acls([every])[every].result(60) == [rule]
        assert errors_of_sends(broker, "open", "closed-1") == set()
    finally:
        broker.stop()


def errors_of_sends(broker: Broker, *topics: str) -> set[str]:
    """Produce a record to each of these topics, and return the names of the errors."""
    errors: set[str] = set()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 20_000})
    for topic in topics:
        producer.produce(
            topic, b"v", on_delivery=lambda error, _: error and errors.add(error.name())
        )
    producer.flush(30)
    return errors
