"""Three brokers and a real ZooKeeper run as processes; the brokers use SASL_SSL among themselves.
Stock clients write and read over the same listener while a broker is killed and restarted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.requirements import zookeeper
from compat_tests.secured import PLAIN_MODULE
from compat_tests.waiting import wait_until
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster
from ottla.tools.zookeeper.local import free_port
from tests.broker.security.authority import Authority

INSIDE = "listener.name.inside."
RECORDS = 2000


@dataclass
class SecuredCluster:
    """The cluster, the issuer of its certificates, and the settings of a client."""

    cluster: LocalCluster
    authority: Authority
    client: dict[str, str]


def settings(authority: Authority, password: str, key: Path) -> list[str]:
    """The settings of a broker, which logs in to other brokers with `password`."""
    return [
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:SASL_SSL",
        "inter.broker.listener.name=INSIDE",
        "ssl.keystore.type=PEM", f"ssl.keystore.location={key}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.file}",
        INSIDE + "ssl.client.auth=required",
        INSIDE + "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f'{INSIDE}plain.sasl.jaas.config={PLAIN_MODULE} required username="broker"'
        f' password="{password}" user_broker="b-secret" user_paula="p-secret";',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:broker;User:paula",
    ]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    zookeeper()
    directory = tmp_path_factory.mktemp("secured-cluster")
    authority = Authority(directory)
    cluster = LocalCluster(directory, 3)
    inside = {node: f"127.0.0.1:{free_port()}" for node in cluster.brokers}
    for node, broker in cluster.brokers.items():
        broker.settings += settings(authority, "b-secret", authority.issue(f"broker-{node}"))
        broker.settings.append(f"listeners=PLAINTEXT://{broker.address},INSIDE://{inside[node]}")
    key = str(authority.issue("paula"))
    client = {
        "bootstrap.servers": ",".join(inside.values()), "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN", "sasl.username": "paula", "sasl.password": "p-secret",
        "ssl.ca.location": str(authority.file), "ssl.certificate.location": key,
        "ssl.key.location": key,
    }
    with cluster:
        yield SecuredCluster(cluster, authority, client)


def in_sync(secured: SecuredCluster, topic: str) -> set[int]:
    admin = AdminClient(secured.client)
    partitions = admin.list_topics(topic, 10).topics[topic].partitions.values()
    return set.intersection(*(set(part.isrs) for part in partitions))


def restart(broker: LocalBroker, *changed: str) -> None:
    broker.kill()
    broker.settings += changed
    broker.start()
    broker.wait_ready()


def test_nothing_acknowledged_is_lost_when_a_broker_is_killed(secured: SecuredCluster) -> None:
    admin = AdminClient(secured.client)
    admin.create_topics([NewTopic("kept", 3, 3)])["kept"].result(60)
    producer = Producer({**secured.client, "enable.idempotence": True, "acks": "all"})
    for n in range(RECORDS):
        producer.produce("kept", b"%d" % n)
        producer.poll(0)
        if n == RECORDS // 2:
            secured.cluster.brokers[2].kill()
    assert producer.flush(90) == 0
    restart(secured.cluster.brokers[2])
    wait_until(lambda: in_sync(secured, "kept") == {1, 2, 3}, "all replicas are in sync", 60)
    consumer = Consumer({**secured.client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["kept"])
    read: list[int] = []
    while len(read) < RECORDS:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        read.append(int(message.value()))
    consumer.close()
    assert sorted(read) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("what", "reason"),
    [("password", "the other broker refused the login as broker by PLAIN"),
     ("certificate", "the other broker's certificate is not accepted: ")],
)  # fmt: skip
def test_a_broker_that_is_not_trusted_stays_outside_says_why_and_serves_on(
    secured: SecuredCluster, tmp_path: Path, what: str, reason: str
) -> None:
    admin = AdminClient(secured.client)
    admin.create_topics([NewTopic(what, 1, 3)])[what].result(60)
    wait_until(lambda: in_sync(secured, what) == {1, 2, 3}, "all replicas are in sync")
    broker = secured.cluster.brokers[3]
    right = list(broker.settings)
    authority = secured.authority if what == "password" else Authority(tmp_path, "foreign")
    wrong = settings(
        authority, "wrong" if what == "password" else "b-secret", authority.issue("other")
    )
    restart(broker, *wrong)
    pid = broker.process.pid if broker.process else 0
    wait_until(lambda: "cannot connect to broker 1 at" in broker.printed(), "it says so")
    wait_until(lambda: reason in broker.printed(), "it says why")
    assert in_sync(secured, what) == {1, 2}
    assert broker.process is not None and broker.process.poll() is None, "it runs on"
    assert broker.process.pid == pid and broker.printed().count(reason) <= 6, "once a connection"
    broker.settings[:] = right
    restart(broker)
    wait_until(lambda: in_sync(secured, what) == {1, 2, 3}, "it is trusted again", 60)
