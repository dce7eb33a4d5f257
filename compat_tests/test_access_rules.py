"""Kafka's own kafka-acls adds and removes ACLs, which apply to stock clients at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from compat_tests.brokers import Broker
from compat_tests.kafka_tools import KafkaTools
from compat_tests.secured import Secured, start_secured
from tests.waiting import until

CASE = ("SASL_PLAINTEXT", "PLAIN")
REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
}  # fmt: skip
PAULA = "User:paula"


@pytest.fixture(scope="module")
def secured(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    found = start_secured(
        new_broker, tmp_path_factory.mktemp("authority"), "super.users=User:ANONYMOUS",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )  # fmt: skip
    yield found
    found.broker.stop()


def acls(secured: Secured, tools: KafkaTools, *arguments: str) -> str:
    """The output of kafka-acls, run by the administrator."""
    done = tools.run(
        "kafka-acls", ["--bootstrap-server", secured.bootstrap("PLAINTEXT"), *arguments]
    )
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


def create(secured: Secured, tools: KafkaTools, base: str) -> str:
    topic = f"{base}-{os.getpid()}"
    where = ["--bootstrap-server", secured.bootstrap("PLAINTEXT")]
    done = tools.run("kafka-topics", [*where, "--create", "--topic", topic])
    assert done.status == 0, done.stdout + done.stderr
    return topic


def may_write(secured: Secured, topic: str) -> bool:
    """Whether paula's producer may write; any other error than a missing ACL fails the test."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(secured.librdkafka(*CASE) | {"enable.idempotence": "false"})
    producer.produce(topic, b"v", callback=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    [error] = outcomes
    assert error is None or error.code() in REFUSED, error
    return error is None


def may_read(secured: Secured, topic: str, group: str) -> bool:
    """Whether paula's consumer may read in this group; other errors fail the test."""
    settings = {
        "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false",
    }  # fmt: skip
    consumer = Consumer(secured.librdkafka(*CASE) | settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
    except KafkaException as error:
        assert error.args[0].code() in REFUSED, error
        return False
    finally:
        consumer.close()
    assert message is not None
    error = message.error()
    assert error is None or error.code() in REFUSED, error
    return error is None


def test_rights_are_given_by_name_by_prefix_and_taken_away(
    secured: Secured, tools: KafkaTools
) -> None:
    topic = create(secured, tools, "orders")
    assert not may_write(secured, topic) and not may_read(secured, topic, "g")
    printed = acls(
        secured, tools, "--add", "--allow-principal", PAULA, "--producer", "--topic", topic
    )
    assert "permissionType=ALLOW" in printed
    assert may_write(secured, topic) and not may_read(secured, topic, "g")
    acls(secured, tools, "--add", "--allow-principal", PAULA, "--consumer", "--topic", topic,
         "--group", "g")  # fmt: skip
    assert may_read(secured, topic, "g") and not may_read(secured, topic, "other")
    acls(secured, tools, "--add", "--deny-principal", PAULA, "--operation", "Write", "--topic",
         topic[:3], "--resource-pattern-type", "prefixed")  # fmt: skip
    assert not may_write(secured, topic) and may_read(secured, topic, "g")
    listed = acls(secured, tools, "--list", "--topic", topic, "--resource-pattern-type", "match")
    assert "patternType=PREFIXED" in listed and "permissionType=DENY" in listed
    acls(secured, tools, "--remove", "--force", "--topic", topic[:3], "--resource-pattern-type",
         "prefixed")  # fmt: skip
    assert may_write(secured, topic)
    acls(secured, tools, "--remove", "--force", "--topic", topic)
    acls(secured, tools, "--remove", "--force", "--group", "g")
    assert not may_write(secured, topic) and not may_read(secured, topic, "g")


def test_a_denied_network_keeps_its_clients_out(secured: Secured, tools: KafkaTools) -> None:
    topic = create(secured, tools, "networks")
    acls(secured, tools, "--add", "--allow-principal", PAULA, "--deny-principal", PAULA,
         "--deny-host", "10.0.0.0/8", "--operation", "Write", "--topic", topic)  # fmt: skip
    assert may_write(secured, topic)
    acls(secured, tools, "--add", "--deny-principal", PAULA, "--deny-host", "127.0.0.0/8",
         "--operation", "Write", "--topic", topic)  # fmt: skip
    assert not may_write(secured, topic)
    done = tools.run("kafka-acls", [
        "--bootstrap-server", secured.bootstrap("PLAINTEXT"), "--add", "--deny-principal", PAULA,
        "--deny-host", "10.0.0.0/99", "--operation", "Write", "--topic", topic,
    ])  # fmt: skip
    assert "Invalid CIDR notation '10.0.0.0/99'" in done.stdout + done.stderr


def test_rules_for_everybody_and_for_other_hosts(secured: Secured, tools: KafkaTools) -> None:
    topic = create(secured, tools, "hosts")
    acls(secured, tools, "--add", "--allow-principal", "User:*", "--allow-host", "192.0.2.1",
         "--operation", "Write", "--topic", topic)  # fmt: skip
    assert not may_write(secured, topic)
    acls(secured, tools, "--add", "--allow-principal", "User:*", "--allow-host", "127.0.0.1",
         "--operation", "Write", "--topic", topic)  # fmt: skip
    assert may_write(secured, topic)


def test_who_may_not_alter_the_cluster_gives_no_rights(
    secured: Secured, tools: KafkaTools, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in secured.java(*CASE).items()))
    done = tools.run("kafka-acls", [
        "--bootstrap-server", secured.bootstrap("SASL_PLAINTEXT"), "--command-config", str(config),
        "--add", "--allow-principal", PAULA, "--operation", "All", "--cluster",
    ])  # fmt: skip
    assert "ClusterAuthorizationException" in done.stdout + done.stderr


def test_a_subscription_by_an_expression_has_only_the_topics_that_one_may_see(
    secured: Secured, tools: KafkaTools
) -> None:
    """With KIP-848 the broker matches the expression, so it must leave out hidden topics."""
    seen, _ = create(secured, tools, "expr-seen"), create(secured, tools, "expr-hidden")
    acls(secured, tools, "--add", "--allow-principal", PAULA, "--consumer", "--topic", seen,
         "--group", "by-expression")  # fmt: skip
    settings = {"group.id": "by-expression", "group.protocol": "consumer"}
    consumer = Consumer(secured.librdkafka(*CASE) | settings)
    assigned: list[str] = []
    consumer.subscribe(
        ["^expr-.*"], on_assign=lambda _, got: assigned.extend(each.topic for each in got)
    )
    try:
        until(lambda: consumer.poll(0.5) or assigned, "an assignment")
        consumer.poll(3)
    finally:
        consumer.close()
    assert assigned == [seen]
