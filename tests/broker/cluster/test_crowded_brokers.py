"""Brokers with a listener for each other stay connected, however many clients there are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.client.errors import ClientError
from ottla.wire.messages import ApiVersionsRequest
from tests.broker.cluster.running_cluster import RunningCluster, create

CONNECTIONS_MAX = 10
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE", "max.connections": CONNECTIONS_MAX,
}


def test_clients_take_no_connection_from_brokers_with_a_listener_of_their_own(
    tmp_path: Path,
) -> None:
    with RunningCluster(tmp_path, 2, **SETTINGS) as cluster, ExitStack() as clients:
        assert create(cluster, 1, "t", 1, 2) == 0
        cluster.stop(2)

        def in_sync() -> list[int]:
            return list(cluster.servers[1].metadata_log.image.topics["t"].partitions[0].isr)

        cluster.until(lambda: in_sync() == [1], "it has left")
        with pytest.raises((ClientError, OSError)):
            for _ in range(CONNECTIONS_MAX + 1):
                client = clients.enter_context(cluster.client(1))
                assert client.call(ApiVersionsRequest(), 0).error_code == 0
        cluster.start(2)
        cluster.until(lambda: len(in_sync()) == 2, "it follows again")
