"""The Java client of two releases: default producer (idempotent, acks=all) and admin client."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker, ClusterBroker
from compat_tests.flights import CODECS
from compat_tests.requirements import JAVA_CLIENTS, java_client


@pytest.mark.parametrize("version", JAVA_CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_default_producer_is_acknowledged_in_order(
    broker: Broker, new_topic: Callable[..., str], version: str, codec: str
) -> None:
    topic = new_topic(f"java-{codec}", partitions=1)
    command = java_client(version, "produce", broker.bootstrap, topic, codec, "5000")
    acknowledged = readers.output_of(command).splitlines()
    assert acknowledged == [b"0\t%d\tvalue-%d" % (i, i) for i in range(5_000)]
    read = readers.read_with_kcat(broker.bootstrap, topic)[0]
    assert [line.split(b"\t")[4] for line in read] == [b"value-%d" % i for i in range(5_000)]


@pytest.mark.parametrize("version", JAVA_CLIENTS)
def test_the_admin_client_creates_configures_grows_and_deletes(
    broker: Broker, version: str
) -> None:
    topic = f"java-admin-{version}-{os.getpid()}"
    printed = readers.output_of(java_client(version, "admin", broker.bootstrap, topic)).decode()
    seen = dict(line.split("\t") for line in printed.splitlines())
    away = len(broker.bootstrap.split(",")) - int(seen.pop("nodes"))
    killed = isinstance(broker, ClusterBroker) and broker.kills_every > 0
    assert away in ((0, 1) if killed else (0,))
    assert seen == {
        "cluster id": "true",
        "listed": "true",
        "partitions": "3",
        "leader is a node": "true",
        "retention.ms": "60000",
        "retention.ms changed": "120000",
        "partitions grown": "5",
        "earliest": "{0=0}",
        "latest": "{0=0}",
        "listed after delete": "false",
    }
