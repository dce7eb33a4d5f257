"""The audit log on the HTTP port, which asks for no login: who may read it there."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.http.audit_lines import refusal
from ottla.broker.http.server import HttpServer
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.client.cluster import Cluster
from ottla.console.access_pages import audit_rows
from ottla.tools.admin import topics
from tests.broker.running import RunningBroker
from tests.console.consoles import free_port

HERE, FAR = "192.0.2.1", "198.51.100.7"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    address = f"127.0.0.1:{free_port()}"
    with RunningBroker(
        tmp_path, ottla_http_listener=address, ottla_http_audit_networks="203.0.113.0/24",
    ) as running:
        yield running


class FarConnection(asyncio.Transport):
    """A connection between this machine and another one; keeps what is written."""

    def __init__(self, client: str) -> None:
        super().__init__({"peername": (client, 40_000), "sockname": (HERE, 9308)})
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


async def asked(server: HttpServer, client: str, path: str) -> tuple[int, Any]:
    """The status and the document that a client of another machine gets."""
    loop = asyncio.get_running_loop()
    reader, connection = asyncio.StreamReader(), FarConnection(client)
    reader.feed_data(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    protocol = asyncio.StreamReaderProtocol(reader)
    await server.serve(reader, asyncio.StreamWriter(connection, protocol, reader, loop))
    head, _, body = connection.written.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize("client", [HERE, "127.0.0.1", "127.9.9.9", "::1"])
def test_clients_on_this_machine_read_the_audit_log(client: str) -> None:
    assert refusal(client, HERE, ()) is None


@pytest.mark.parametrize("client", [FAR, "2001:db8::7", "::", ""])
def test_clients_on_other_machines_read_it_from_named_networks_alone(client: str) -> None:
    assert refusal(client, HERE, ()) is not None
    assert refusal(client, HERE, ("203.0.113.0/24", "2001:db8:1::/48")) is not None
    assert refusal("203.0.113.9", HERE, ("203.0.113.0/24",)) is None
    assert refusal("2001:db8:1::9", HERE, ("2001:db8:1::/48",)) is None


def test_another_machine_is_told_which_setting_keeps_it_out(broker: RunningBroker) -> None:
    server = broker.server.http
    assert server is not None
    status, document = broker.run(asked(server, FAR, "/api/v1/audit"))
    assert (status, document["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
    assert FAR in document["message"] and "ottla.http.audit.networks" in document["message"]
    assert broker.run(asked(server, FAR, "/api/v1/audit?x=1"))[0] == 403
    assert broker.run(asked(server, "203.0.113.9", "/api/v1/audit"))[0] == 200
    assert broker.run(asked(server, FAR, "/api/v1/status"))[0] == 200


def test_the_console_says_which_broker_gave_it_no_audit_log(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    server = broker.server.http
    assert server is not None
    with Cluster(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "orders", partitions=1, replication_factor=1)
        page = audit_rows(cluster, {})
        assert [row["api"] for row in page["rows"]] == ["CreateTopics"] and not page["notes"]
        broker.call(server.close)
        page = audit_rows(cluster, {})
        assert page["rows"] == [] and len(page["notes"]) == 1
        assert page["notes"][0].startswith("Broker 4 gave no audit log.")


@pytest.mark.parametrize("network", ["192.0.2.1", "192.0.2.0/33", "here/8", "2001:db8::/129"])
def test_a_network_that_is_none_is_refused_at_the_start(network: str) -> None:
    with pytest.raises(SettingsError, match=r"ottla\.http\.audit\.networks: '"):
        BrokerConfig.load(None, [f"ottla.http.audit.networks={network}"])
