"""The HTTP port has no login. The client's address and the host name decide what may be read."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.http.readers import outsider
from ottla.broker.http.server import JSON, HttpServer
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.client.cluster import ClusterClient
from ottla.console.access_pages import audit_rows
from ottla.console.broker_reports import refusals
from ottla.console.cluster_pages import connection_rows, status_reports
from ottla.tools.admin import topics
from ottla.tools.command import main
from tests.broker.running import RunningBroker, kept_port

HERE, FAR = "192.0.2.1", "198.51.100.7"
NAMING = [
    *sorted({*JSON} - {"/api/v1/status"}), "/api/v1/groups/billing/lag",
    "/api/v1/groups/billing/why", "/api/v1/topics/orders/why",
]
"""Paths whose answers name users, clients or groups."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with kept_port() as port, RunningBroker(
        tmp_path, ottla_http_listener=f"127.0.0.1:{port}", ottla_http_networks="203.0.113.0/24",
        ottla_http_names="Broker.example",
    ) as running:
        yield running


class FarConnection(asyncio.Transport):
    """A connection from the address `client`; keeps what the server writes."""

    def __init__(self, client: str) -> None:
        super().__init__({"peername": (client, 40_000), "sockname": (HERE, 9308)})
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


async def asked(
    server: HttpServer, client: str, path: str, host: str | None = "localhost:9308"
) -> tuple[int, str]:
    """The status and the body that a client at the address `client` gets."""
    loop = asyncio.get_running_loop()
    reader, connection = asyncio.StreamReader(), FarConnection(client)
    header = "" if host is None else f"Host: {host}\r\n"
    reader.feed_data(f"GET {path} HTTP/1.1\r\n{header}\r\n".encode())
    protocol = asyncio.StreamReaderProtocol(reader)
    await server.serve(reader, asyncio.StreamWriter(connection, protocol, reader, loop))
    head, _, body = connection.written.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("client", [HERE, "127.0.0.1", "127.9.9.9", "::1"])
def test_clients_on_this_machine_read_everything(client: str) -> None:
    assert outsider(client, HERE, ()) is None


@pytest.mark.parametrize("client", [FAR, "2001:db8::7", "::", ""])
def test_clients_on_other_machines_need_a_named_network(client: str) -> None:
    assert outsider(client, HERE, ()) is not None
    assert outsider(client, HERE, ("203.0.113.0/24", "2001:db8:1::/48")) is not None
    assert outsider("203.0.113.9", HERE, ("203.0.113.0/24",)) is None
    assert outsider("2001:db8:1::9", HERE, ("2001:db8:1::/48",)) is None


@pytest.mark.parametrize("path", NAMING)
def test_another_machine_is_told_which_setting_keeps_it_out(
    broker: RunningBroker, path: str
) -> None:
    server = broker.server.http
    assert server is not None
    for asked_path in (path, f"{path}?x=1"):
        status, body = broker.run(asked(server, FAR, asked_path))
        document = json.loads(body)
        assert (status, document["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        assert FAR in document["message"] and "ottla.http.networks" in document["message"]
    for client in ("203.0.113.9", HERE):
        status, body = broker.run(asked(server, client, path))
        assert status != 403 and "ottla.http" not in body


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/api/v1/status"])
def test_health_metrics_and_status_are_for_everybody(broker: RunningBroker, path: str) -> None:
    assert broker.server.http is not None
    assert broker.run(asked(broker.server.http, FAR, path))[0] == 200


@pytest.mark.parametrize("path", [*NAMING, "/metrics", "/api/v1/status"])
def test_a_foreign_name_that_leads_here_gets_nothing(broker: RunningBroker, path: str) -> None:
    server = broker.server.http
    assert server is not None
    for host in ("evil.example", "evil.example:9308", "localhost.evil.example", "127.0.0.1.evil",
                 "", "localhost, evil.example", "[evil]"):
        status, body = broker.run(asked(server, "127.0.0.1", path, host))
        document = json.loads(body)
        assert status == 421 and "ottla.http.names" in document["message"], host
    twice = "localhost\r\nHost: evil.example"
    assert broker.run(asked(server, "127.0.0.1", path, twice))[0] == 421


@pytest.mark.parametrize("host", [
    "localhost", "LOCALHOST:9308", "127.0.0.1:9308", "[::1]:9308", "192.0.2.1",
    socket.gethostname(), "broker.example:80", "BROKER.example", None,
])
def test_the_machines_names_and_addresses_are_its_own(
    broker: RunningBroker, host: str | None
) -> None:
    assert broker.server.http is not None
    assert broker.run(asked(broker.server.http, FAR, "/api/v1/status", host))[0] == 200


def test_health_is_told_under_any_name(broker: RunningBroker) -> None:
    assert broker.server.http is not None
    for path in ("/healthz", "/readyz"):
        assert broker.run(asked(broker.server.http, FAR, path, "balancer.example"))[0] == 200


def test_hosts_of_listeners_are_names_of_the_broker() -> None:
    config = BrokerConfig.load(None, [
        "listeners=IN://:9092,OUT://192.0.2.1:9093",
        "advertised.listeners=OUT://kafka.example:9093",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name=IN",
    ])
    assert config.hosts == {socket.gethostname(), "192.0.2.1", "kafka.example"}


def test_the_console_says_which_broker_does_not_report_to_it(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    server = broker.server.http
    assert server is not None
    memory: dict[Any, Any] = {}
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        assert connection_rows(cluster, memory) and not refusals(memory)
        server.readers.names.clear()                # so that this machine is refused, too
        memory["http"] = (memory["http"][0], {4: f"http://localhost:{server.port}"})
        assert connection_rows(cluster, memory) == []
        [said] = refusals(memory)
        assert said.startswith("Broker 4 does not report its clients and groups to this console: ")
        assert "ottla.http.names" in said
        status_reports(cluster, memory)
        assert refusals(memory) == [said]
        server.readers.names.add("localhost")
        assert connection_rows(cluster, memory) and not refusals(memory)
    server.readers.names.clear()
    assert main(["server", "connections", "--url", f"http://localhost:{server.port}"]) == 1
    assert "ottla.http.names" in capsys.readouterr().err


def test_the_console_says_which_broker_gave_it_no_audit_log(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    server = broker.server.http
    assert server is not None
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "orders", partitions=1, replication_factor=1)
        page = audit_rows(cluster, {})
        assert [row["api"] for row in page["rows"]] == ["CreateTopics"] and not page["notes"]
        broker.call(server.close)
        page = audit_rows(cluster, {})
        assert page["rows"] == [] and len(page["notes"]) == 1
        assert page["notes"][0].startswith("Broker 4 gave no audit log.")


@pytest.mark.parametrize("network", ["192.0.2.1", "192.0.2.0/33", "here/8", "2001:db8::/129"])
def test_a_network_that_is_none_is_refused_at_the_start(network: str) -> None:
    with pytest.raises(SettingsError, match=r"ottla\.http\.networks: '"):
        BrokerConfig.load(None, [f"ottla.http.networks={network}"])
