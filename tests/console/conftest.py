"""A broker and a console for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.tools.admin import groups, offsets, topics
from tests.broker.running import kept_port
from tests.broker.service import Service
from tests.console.consoles import Console

SETTINGS = ("--override", "message.max.bytes=60000000", "--override",
         "group.initial.rebalance.delay.ms=0", "--override", "offsets.topic.num.partitions=2")


@pytest.fixture(scope="module")
def http_port() -> Iterator[int]:
    """Yields a port for a broker's HTTP listener. The console finds the port in the broker's
    settings."""
    with kept_port() as port:
        yield port


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory, http_port: int) -> Iterator[str]:
    """Starts a broker with two topics and three groups without members; yields its address."""
    service = Service(tmp_path_factory.mktemp("broker"), *SETTINGS,
                      "--override", f"ottla.http.listener=localhost:{http_port}")
    host, port = service.ready()
    address = f"{host}:{port}"
    with ClusterClient(address) as cluster:
        topics.create(cluster, "orders", partitions=2, replication_factor=1)
        topics.create(cluster, "old", partitions=1, replication_factor=1)
        producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
        for number in range(100):
            producer.produce(
                "orders", f'{{"order": {number}, "who": {{"name": "n{number % 7}"}}}}',
                f"key-{number}", number % 2, headers={"trace": str(number)})
        producer.produce("old", "x")
        producer.flush(30)
        groups.commit(cluster, "billing", {("orders", 0): 10, ("orders", 1): 50})
        groups.commit(cluster, "a/b ..", {("orders", 0): 1})
        groups.commit(cluster, "stale", {("old", 0): 0})
        offsets.delete_or_raise(cluster, {("old", 0): -1})
    yield address
    assert service.stop() == 0


@pytest.fixture(scope="module")
def console(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console that allows changes."""
    with Console(bootstrap, tmp_path_factory.mktemp("console"), "--allow-changes") as running:
        yield running
