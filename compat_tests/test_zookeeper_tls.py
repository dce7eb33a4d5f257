"""A real ZooKeeper, reached over TLS with certificates on both sides. The ZooKeeper interface keeps
the same promises as without TLS, and three brokers use it. If one side does not trust the other,
the error message says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from compat_tests.brokers import BrokerFailed, OttlaBroker
from compat_tests.ended_sessions import keep
from compat_tests.requirements import missing
from ottla.broker.security.tls.zookeeper import zookeeper_contexts
from ottla.replication.coordination import ConnectionLost
from ottla.replication.zookeeper import ZooKeeper
from ottla.tools.cli.local_cluster import LocalCluster
from ottla.tools.zookeeper.local import LocalZooKeeper, ZooKeeperFailed, free_port
from tests.broker.security.authority import Authority
from tests.replication.coordination_promises import PROMISES, Promise

ROOTS = count()
SESSION_MS = 4000
COUNT = 500


@dataclass
class SecuredZooKeeper:
    """The server, its address for TLS, and the issuer of all certificates."""

    server: LocalZooKeeper
    connect: str
    authority: Authority

    def settings(self, authority: Authority | None = None) -> dict[str, str]:
        """A broker's properties. ZooKeeper does not trust a key that another `authority` issued."""
        key = (authority or self.authority).issue("broker")
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": str(key),
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(self.authority.file),
            "zookeeper.ssl.truststore.type": "PEM",
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    directory = tmp_path_factory.mktemp("zookeeper-tls")
    authority, port = Authority(directory / "certificates"), free_port()
    lines = {
        "secureClientPort": port, "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": authority.issue("zookeeper"), "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": authority.file, "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }  # fmt: skip
    settings = "".join(f"{name}={value}\n" for name, value in lines.items())
    server = LocalZooKeeper(directory / "server", settings=settings)
    try:
        server.start()
    except ZooKeeperFailed as error:
        missing(str(error))
    yield SecuredZooKeeper(server, f"127.0.0.1:{port}", authority)
    server.stop()


def session(secured: SecuredZooKeeper, root: str, settings: dict[str, str]) -> ZooKeeper:
    """A client for the running event loop; its session is not started yet."""
    return ZooKeeper(
        secured.connect + root, SESSION_MS, 5000, asyncio.get_running_loop(),
        zookeeper_contexts(settings),
    )


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_what_is_promised_is_kept_over_tls(secured: SecuredZooKeeper, promise: Promise) -> None:
    async def run() -> None:
        root, settings = f"/tls/{next(ROOTS)}", secured.settings()
        a, b = session(secured, root, settings), session(secured, root, settings)
        await keep(promise, a, b, secured.server.connect)

    asyncio.run(run())


def test_who_is_not_trusted_stays_outside(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign", "foreign")
    as_stranger = secured.settings(foreign)
    of_stranger = secured.settings() | {
        "zookeeper.ssl.truststore.location": str(foreign.file)
    }
    without_key = {
        name: text for name, text in secured.settings().items() if "keystore" not in name
    }

    async def run(settings: dict[str, str], reason: str) -> None:
        client = session(secured, "/x", settings)
        with pytest.raises(ConnectionLost, match=reason):
            await client.start()

    asyncio.run(run(of_stranger, "TLS handshake with 127.0.0.1 failed: .*certificate"))
    asyncio.run(run(as_stranger, r"zookeeper\.connection\.timeout"))
    asyncio.run(run(without_key, r"zookeeper\.connection\.timeout"))


def test_without_tls_a_broker_that_wants_it_does_not_start(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    """If the port does not speak TLS, the broker sends nothing in plain text."""
    settings = [f"{name}={text}" for name, text in secured.settings().items()]
    broker = OttlaBroker(tmp_path, [
        *settings, f"zookeeper.connect={secured.server.connect}/plain", "node.id=1",
        "zookeeper.connection.timeout.ms=3000",
    ])  # fmt: skip
    with pytest.raises(BrokerFailed, match=r"TLS handshake with 127\.0\.0\.1 failed"):
        broker.start()


def test_three_brokers_serve_and_one_is_killed(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    settings = [f"{name}={text}" for name, text in secured.settings().items()]
    cluster = LocalCluster(
        tmp_path, 3, zookeeper=f"{secured.connect}/cluster", settings=settings
    )
    with cluster:
        client = {"bootstrap.servers": cluster.bootstrap}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("kept", 3, 3)])["kept"].result(60)
        producer = Producer({**client, "enable.idempotence": True, "acks": "all"})
        for number in range(COUNT):
            producer.produce("kept", b"%d" % number)
            producer.poll(0)
            if number == COUNT // 2:
                cluster.brokers[2].kill()
        assert producer.flush(90) == 0
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["kept"])
        read: list[int] = []
        while len(read) < COUNT:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            read.append(int(message.value()))
        consumer.close()
        assert sorted(read) == list(range(COUNT))
    with pytest.raises(KazooException):
        plain = KazooClient(secured.connect, timeout=2)
        try:
            plain.start(timeout=2)
        except plain.handler.timeout_exception as error:
            raise KazooException("no plain text on the port for TLS") from error
