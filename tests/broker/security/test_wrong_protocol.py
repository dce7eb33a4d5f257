"""If a client's security.protocol differs from the listener's, its error says what may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError
from ottla.client.transport import PROTOCOLS, Security
from tests.broker.running import RunningBroker
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import JAAS

LISTENERS = {
    "listeners": ",".join(f"L{number}://127.0.0.1:0" for number in range(4)),
    "listener.security.protocol.map": ",".join(f"L{n}:{each}" for n, each in enumerate(PROTOCOLS)),
    **{f"listener.name.l{number}.plain.sasl.jaas.config": JAAS for number in (2, 3)},
    "sasl.enabled.mechanisms": "PLAIN",
}
HINTS = {
    ("PLAINTEXT", "SSL"): "TLS or a login: this client has security.protocol=PLAINTEXT",
    ("PLAINTEXT", "SASL_PLAINTEXT"): "perhaps it expects TLS or a login",
    ("PLAINTEXT", "SASL_SSL"): "perhaps it expects TLS or a login",
    ("SSL", "PLAINTEXT"): "perhaps this port has no TLS: this client has security.protocol=SSL",
    ("SSL", "SASL_PLAINTEXT"): "perhaps this port has no TLS",
    ("SSL", "SASL_SSL"): "perhaps it expects a login or a client certificate",
    ("SASL_PLAINTEXT", "PLAINTEXT"): "the broker does not offer SASL mechanism PLAIN",
    ("SASL_PLAINTEXT", "SSL"): "expects TLS: this client has security.protocol=SASL_PLAINTEXT",
    ("SASL_PLAINTEXT", "SASL_SSL"): "perhaps it expects TLS",
    ("SASL_SSL", "PLAINTEXT"): "perhaps this port has no TLS",
    ("SASL_SSL", "SASL_PLAINTEXT"): "perhaps this port has no TLS",
    ("SASL_SSL", "SSL"): "the broker does not offer SASL mechanism PLAIN",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def ports(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[dict[str, int]]:
    settings = {
        **LISTENERS, "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("server"),
    }  # fmt: skip
    with RunningBroker(tmp_path_factory.mktemp("data"), **settings) as running:
        listeners = running.server.listeners
        yield {name: each.port for name, each in zip(PROTOCOLS, listeners, strict=True)}


def test_a_missing_client_certificate_is_named(tmp_path: Path, authority: Authority) -> None:
    server = authority.issue("required")
    settings = {
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM",
        "ssl.keystore.location": server, "ssl.truststore.location": authority.file,
        "ssl.client.auth": "required",
    }  # fmt: skip
    with RunningBroker(tmp_path, **settings) as running:
        [listener] = running.server.listeners
        with pytest.raises(ClientError) as refused:
            ask(listener.port, "SSL", authority.file)
    assert "expects a client certificate: set ssl.keystore.location" in str(refused.value)


def ask(port: int, protocol: str, trusted: Path) -> None:
    security = Security.from_properties({
        "security.protocol": protocol, "ssl.ca.location": str(trusted),
        "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret",
    })  # fmt: skip
    with ClusterClient(f"127.0.0.1:{port}", security=security) as cluster:
        cluster.metadata()


@pytest.mark.parametrize(("client", "listener"), HINTS)
def test_a_protocol_that_is_not_the_listeners_is_named(
    ports: dict[str, int], authority: Authority, client: str, listener: str
) -> None:
    with pytest.raises(ClientError) as refused:
        ask(ports[listener], client, authority.file)
    assert HINTS[client, listener] in str(refused.value)
    assert str(refused.value).count(f"127.0.0.1:{ports[listener]}") == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_listeners_own_protocol_is_served(
    ports: dict[str, int], authority: Authority, protocol: str
) -> None:
    ask(ports[protocol], protocol, authority.file)


def test_a_certificate_that_is_not_trusted_is_no_wrong_protocol(
    ports: dict[str, int], tmp_path: Path
) -> None:
    with pytest.raises(ClientError, match="certificate verify failed") as refused:
        ask(ports["SSL"], "SSL", Authority(tmp_path).file)
    assert "perhaps" not in str(refused.value)
    assert str(refused.value).endswith(
        "; set ssl.truststore.location to the file of certificates to trust"
    )
