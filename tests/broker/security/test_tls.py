"""TLS listeners: clients that are served, certificates that are refused, large replies, and slow or
silent clients.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import handshakes
from ottla.client.errors import ClientError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
)
from tests.broker.produce_fetch import batch, fetch, produce
from tests.broker.running import NODE_ID, RunningBroker, WireClient, pass_time
from tests.broker.security.authority import DAY, Authority
from tests.broker.security.logging_in import JAAS
from tests.waiting import exhaust, until

LISTENERS = {
    "listeners": "OPEN://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0,BOTH://127.0.0.1:0",
    "listener.security.protocol.map": "OPEN:PLAINTEXT,TLS:SSL,MUTUAL:SSL,BOTH:SASL_SSL",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.both.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.both.plain.sasl.jaas.config": JAAS,
}
OPEN, TLS, MUTUAL, BOTH = range(4)


class TlsBroker(RunningBroker):
    """A broker with a listener of each kind, whose certificate is signed by `authority`."""

    def __init__(self, data: Path, authority: Authority, **more: object) -> None:
        self.authority = authority
        settings = {
            **LISTENERS, "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM",
            "ssl.keystore.location": authority.issue("server"),
            "ssl.truststore.location": authority.file, **more,
        }  # fmt: skip
        super().__init__(data, **settings)

    def at(self, number: int) -> tuple[str, int]:
        """The address of a listener."""
        return "127.0.0.1", self.server.listeners[number].port

    def connect(self, number: int, **properties: str) -> WireClient:
        """A TLS client that is connected to a listener, and trusts the authority's certificate."""
        protocol = "SASL_SSL" if number == BOTH else "SSL"
        given = {"security_protocol": protocol, "ssl_truststore_location": str(self.authority.file)}
        return WireClient(self.at(number), **{**given, **properties})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with TlsBroker(tmp_path_factory.mktemp("tls"), authority) as running:
        yield running


def served(client: WireClient) -> bool:
    with client:
        return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def principals(broker: TlsBroker, number: int) -> set[str]:
    listener = broker.server.listeners[number]
    return broker.call(lambda: {each.client.principal for each in listener.connections})


def test_a_client_that_trusts_the_authority_is_served(broker: TlsBroker) -> None:
    with broker.connect(TLS) as client:
        assert client.call(MetadataRequest(topics=[]), 9).brokers[0].port == broker.at(TLS)[1]
        assert principals(broker, TLS) == {"User:ANONYMOUS"}


def test_a_client_that_does_not_trust_the_authority_goes_away(
    broker: TlsBroker, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "another")
    with pytest.raises(ClientError, match="certificate verify failed"):
        broker.connect(TLS, ssl_truststore_location=str(other.file))


def test_a_clients_certificate_is_its_principal(broker: TlsBroker) -> None:
    key = broker.authority.issue("client")
    with broker.connect(MUTUAL, ssl_keystore_location=str(key)) as client:
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        assert principals(broker, MUTUAL) == {"User:CN=client,O=Tests\\, Inc,C=SI"}


@pytest.mark.parametrize("which", ["none", "foreign", "expired", "not yet valid"])
def test_a_certificate_that_is_not_right_is_refused(
    broker: TlsBroker, tmp_path: Path, which: str
) -> None:
    keys = {
        "none": None,
        "foreign": Authority(tmp_path, "foreign").issue("mallory"),
        "expired": broker.authority.issue("late", -2 * DAY, -timedelta(minutes=1)),
        "not yet valid": broker.authority.issue("early", timedelta(minutes=10), DAY),
    }
    given = {} if keys[which] is None else {"ssl_keystore_location": str(keys[which])}
    with pytest.raises(ClientError):                    # with TLS 1.3, at the first request
        served(broker.connect(MUTUAL, **given))


def test_a_password_is_asked_for_over_tls(broker: TlsBroker) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    right = f'{module} required username="bob" password="bob-secret";'
    given = {"sasl_mechanism": "PLAIN", "sasl_jaas_config": right}
    with broker.connect(BOTH, **given) as client:
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        assert principals(broker, BOTH) == {"User:bob"}
    with pytest.raises(ClientError, match="Invalid username or password"):
        broker.connect(BOTH, **{**given, "sasl_jaas_config": right.replace("bob-s", "x")})


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_served(broker: TlsBroker, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(broker.authority.file))
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(broker.at(TLS)) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
            encrypted.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            assert encrypted.recv(8)[4:] == bytes([0, 0, 0, 1])


def test_large_requests_and_replies_arrive_whole(broker: TlsBroker) -> None:
    with WireClient(broker.at(OPEN)) as admin:
        new = CreateTopicsRequest.Topic(
            name="large", num_partitions=1, replication_factor=1,
            configs=[CreateTopicsRequest.Topic.Config(name="max.message.bytes", value="60000000")],
        )
        assert admin.call(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
    data = batch(bytes(range(256)) * 160_000)
    with broker.connect(TLS) as client:
        produce(client, "large", data)
        answer = fetch(client, "large", max_bytes=1 << 26, partition_max_bytes=1 << 26)
    assert len(data) > 40_000_000 and bytes(answer.records)[61:] == data[61:]


def test_plaintext_on_a_port_for_tls_is_closed_and_named_in_the_log(
    broker: TlsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(broker.at(TLS)) as client:
        client.send(MetadataRequest(topics=[]), 1)
        assert client.is_closed()
    assert "the client does not speak TLS on a port for TLS" in caplog.text


def test_tls_on_a_port_for_plaintext_is_closed_and_named_in_the_log(
    broker: TlsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ClientError):
        broker.connect(OPEN)
    assert " is closed: the client speaks TLS on a port for Kafka's protocol" in caplog.text
    assert "client None" not in caplog.text


def test_garbage_after_the_beginning_of_a_handshake_ends_it(broker: TlsBroker) -> None:
    with WireClient(broker.at(TLS)) as client:
        client.send_bytes(b"\x16\x03\x01\x00\x05hello" + bytes(100))
        client.socket.settimeout(20)
        exhaust(lambda: client.socket.recv(1000))
    assert served(broker.connect(TLS))


def test_a_client_that_never_ends_its_handshake_is_closed_and_holds_nobody_up(
    broker: TlsBroker
) -> None:
    listener = broker.server.listeners[TLS]
    with WireClient(broker.at(TLS)) as silent, WireClient(broker.at(TLS)) as half:
        half.send_bytes(b"\x16\x03\x01\x02")
        assert served(broker.connect(TLS))
        broker.loop_clock.passed_seconds += handshakes.HANDSHAKE_SECONDS + 1
        broker.call(listener.sweep)
        assert silent.is_closed() and half.is_closed()
    assert broker.call(lambda: len(listener.handshakes.open)) == 0


def test_two_hundred_handshakes_at_once_are_all_served(broker: TlsBroker) -> None:
    """All clients have sent the beginning of their handshakes before the broker answers any of
    them. Another client does not wait for the handshakes."""
    context = ssl.create_default_context(cafile=str(broker.authority.file))
    first = bytes.fromhex("0000000a0012000000000001ffff")
    handshakes_begun: list[tuple[socket.socket, ssl.MemoryBIO, ssl.MemoryBIO, ssl.SSLObject]] = []
    for _ in range(200):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
        connected = socket.create_connection(broker.at(TLS), 20)
        handshakes_begun.append((connected, incoming, outgoing, side))
    for connected, _, outgoing, _ in handshakes_begun:
        connected.sendall(outgoing.read())
    with WireClient(broker.at(OPEN)) as other:
        assert other.call(MetadataRequest(topics=[]), 9).brokers

    def received(connected: socket.socket, incoming: ssl.MemoryBIO) -> None:
        data = connected.recv(1 << 16)
        assert data, "the broker has closed the connection"
        incoming.write(data)

    for connected, incoming, outgoing, side in handshakes_begun:
        while True:
            try:
                side.do_handshake()
                break
            except ssl.SSLWantReadError:
                received(connected, incoming)
        side.write(first)
        connected.sendall(outgoing.read())
    for connected, incoming, _, side in handshakes_begun:
        answer = b""
        while len(answer) < 8:
            try:
                answer += side.read(100)
            except ssl.SSLWantReadError:
                received(connected, incoming)
        assert answer[4:8] == bytes([0, 0, 0, 1])
        connected.close()


def test_handshakes_are_bounded_and_the_oldest_makes_room(
    broker: TlsBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 2)
    silent = [WireClient(broker.at(TLS)) for _ in range(3)]
    assert silent[0].is_closed()
    assert served(broker.connect(TLS))
    for each in silent:
        each.close()


def test_connections_are_counted_from_before_the_handshake_to_the_end(broker: TlsBroker) -> None:
    limits = broker.server.listeners[TLS].limits
    before = broker.call(lambda: limits.count)
    with WireClient(broker.at(TLS)) as silent:
        silent.send_bytes(b"\x16")
        assert served(broker.connect(TLS))
    assert served(broker.connect(TLS))
    with WireClient(broker.at(TLS)) as bad:
        bad.send_bytes(b"GET / HTTP/1.1\r\n")
        assert bad.is_closed()
    until(
        lambda: broker.call(lambda: limits.count) <= before,
        "the connection is not counted any more",
    )
    assert broker.call(lambda: limits.count) == before


def test_a_pkcs12_store_serves_as_well(data: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    store = authority.issue_pkcs12("server", "changeit")
    more = {"ssl.keystore.location": store, "ssl.keystore.password": "changeit",
            "ssl.keystore.type": "PKCS12"}  # fmt: skip
    with TlsBroker(data, authority, **more) as broker:
        assert served(broker.connect(TLS))


def test_keys_in_the_properties_themselves_serve_as_well(data: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    text = authority.issue("server").read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    more = {
        "ssl.keystore.key": text[:at].replace("\n", " "),
        "ssl.keystore.certificate.chain": text[at:].replace("\n", ""),
        "ssl.truststore.certificates": authority.file.read_text(),
    }
    with TlsBroker(data, authority, **more) as broker:
        assert served(broker.connect(TLS))


def alter(client: WireClient, **settings: str | None) -> tuple[int, str | None]:
    made = IncrementalAlterConfigsRequest.Resource
    resource = made(resource_type=4, resource_name=str(NODE_ID), configs=[
        IncrementalAlterConfigsRequest.Resource.Config(
            name=name.replace("_", "."), config_operation=0 if value else 1, value=value)
        for name, value in settings.items()
    ])
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return answer.error_code, answer.error_message


def certificate_of(address: tuple[str, int]) -> str:
    return ssl.get_server_certificate(address)


def test_a_certificate_is_exchanged_on_the_running_broker_and_nobody_is_dropped(
    broker: TlsBroker
) -> None:
    first = certificate_of(broker.at(TLS))
    with WireClient(broker.at(OPEN)) as admin, broker.connect(TLS) as old:
        assert old.call(MetadataRequest(topics=[]), 9).brokers
        other = str(broker.authority.issue("another", called="server"))
        name = "listener_name_tls_ssl_keystore_location"
        assert alter(admin, **{name: other}) == (0, None)
        assert certificate_of(broker.at(TLS)) in Path(other).read_text()
        assert certificate_of(broker.at(MUTUAL)) == first
        assert served(broker.connect(TLS))
        assert old.call(MetadataRequest(topics=[]), 9).brokers
        assert alter(admin, **{name: None})[0] == 0
        assert certificate_of(broker.at(TLS)) == first


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), ("nothing", "is not a PKCS12 store"),
     ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be loaded")],
)  # fmt: skip
def test_a_store_that_does_not_load_is_refused_and_the_listener_keeps_its_own(
    broker: TlsBroker, tmp_path: Path, content: str | None, problem: str
) -> None:
    first = certificate_of(broker.at(TLS))
    store = tmp_path / "store"
    if content is not None:
        store.write_text(content)
    with WireClient(broker.at(OPEN)) as admin:
        code, message = alter(
            admin, listener_name_tls_ssl_keystore_location=str(store),
            listener_name_tls_ssl_keystore_type="PKCS12",
        )
    assert code == ErrorCode.INVALID_REQUEST and problem in (message or "")
    assert certificate_of(broker.at(TLS)) == first


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "large", "no path"])
def test_what_is_no_store_of_a_sensible_size_neither_blocks_nor_fills_the_broker(
    broker: TlsBroker, tmp_path: Path, kind: str
) -> None:
    store = tmp_path / "store"
    if kind == "pipe":
        os.mkfifo(store)
    elif kind == "large":
        with store.open("wb") as file:
            file.truncate(1 << 40)
    others = {"device": "/dev/zero", "directory": str(tmp_path), "no path": "a\0b"}
    path = others.get(kind, str(store))
    with WireClient(broker.at(OPEN)) as admin:
        code, message = alter(admin, listener_name_tls_ssl_keystore_location=path)
        assert code == ErrorCode.INVALID_REQUEST and "ssl.keystore.location" in (message or "")
    assert served(broker.connect(TLS))


def test_a_client_cannot_ask_for_another_handshake(broker: TlsBroker) -> None:
    tls = broker.server.listeners[TLS].security.tls
    assert tls is not None
    assert tls.server.options & tls.client.options & ssl.OP_NO_RENEGOTIATION


def test_a_file_that_has_another_certificate_by_now_counts_from_sighup_on(
    broker: TlsBroker
) -> None:
    first = certificate_of(broker.at(TLS))
    broker.authority.issue("server")
    assert certificate_of(broker.at(TLS)) == first
    broker.run(broker.server.reload())
    assert certificate_of(broker.at(TLS)) != first
    assert served(broker.connect(TLS))


def test_a_file_that_has_another_certificate_counts_once_its_name_is_set_again(
    broker: TlsBroker
) -> None:
    """This is as in Apache Kafka (KAFKA-14136). Operators and their programs rely on it."""
    store = broker.authority.issue("again", called="server")
    name = {"listener_name_tls_ssl_keystore_location": str(store)}
    with WireClient(broker.at(OPEN)) as admin:
        assert alter(admin, **name) == (0, None)
        first = certificate_of(broker.at(TLS))
        broker.authority.issue("again", called="server")
        assert certificate_of(broker.at(TLS)) == first
        assert alter(admin, **name) == (0, None)
        assert certificate_of(broker.at(TLS)) != first
        assert served(broker.connect(TLS))
        assert alter(admin, **dict.fromkeys(name)) == (0, None)


LOCATION = "listener_name_tls_ssl_keystore_location"


@pytest.mark.parametrize(
    ("other", "what", "allowance"),
    [
        ({}, "distinguished name would change from", "dn"),
        ({"called": "server", "hosts": ["example.org"]},
         "DNS:localhost; to allow this, set ssl.allow.san.changes=true", "san"),
    ],
    ids=["another name", "fewer hosts"],
)  # fmt: skip
def test_a_new_certificate_has_to_be_one_that_clients_know(
    data: Path, tmp_path: Path, other: dict[str, Any], what: str, allowance: str
) -> None:
    """This is as in Apache Kafka. Otherwise an administrator could lock all clients out."""
    authority = Authority(tmp_path / "authority")
    store = {LOCATION: str(authority.issue("other", **other))}
    with TlsBroker(data, authority) as broker, WireClient(broker.at(OPEN)) as admin:
        first = certificate_of(broker.at(TLS))
        code, message = alter(admin, **store)
        assert code == ErrorCode.INVALID_REQUEST and what in (message or "")
        assert certificate_of(broker.at(TLS)) == first
        more = authority.issue("more", called="server", hosts=["localhost", "example.org"])
        assert alter(admin, **{LOCATION: str(more)}) == (0, None), "more names harm nobody"
        assert alter(admin, **{LOCATION: None})[0] != 0, "the former one lacks example.org"
    allowed = {f"listener.name.tls.ssl.allow.{allowance}.changes": "true"}
    with TlsBroker(tmp_path / "more", authority, **allowed) as broker:
        with WireClient(broker.at(OPEN)) as admin:
            assert alter(admin, **store) == (0, None)
            assert served(broker.connect(TLS)) or allowance == "san"


def test_a_certificate_that_ends_soon_is_warned_about(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier version logged nothing about an expired certificate, neither at the start nor at
    SIGHUP."""
    caplog.set_level("INFO", "ottla")
    authority, day = Authority(tmp_path), timedelta(days=1)
    subject = "CN=server,O=Tests\\, Inc,C=SI"
    store = authority.issue("mine", ends=100 * day, called="server")
    with TlsBroker(data, authority, **{"ssl.keystore.location": store}) as broker:
        assert f"listener TLS has the certificate {subject}, valid until" in caplog.text
        assert "expire" not in caplog.text
        for ends, said in ((29.5 * day, "expires in 29 days, on "), (-day / 2, "has expired on ")):
            authority.issue("mine", ends=ends, called="server")
            caplog.clear()
            broker.run(broker.server.reload())
            [*warnings] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
            assert any(f"listener TLS: the certificate {subject} {said}" in w for w in warnings)
            assert "nothing has changed" not in caplog.text
            assert "listener TLS: new connections use the certificate" in caplog.text
        caplog.clear()
        broker.run(broker.server.reload())
        assert "nothing has changed" in caplog.text and "new connections" not in caplog.text
        caplog.clear()
        pass_time(broker, 86_401)
        assert "has expired on" in caplog.text, "it says so every day"


def test_passwords_of_plain_are_exchanged_on_the_running_broker(broker: TlsBroker) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    given = {
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{module} required username="new" password="n";',
    }
    with WireClient(broker.at(OPEN)) as admin:
        name = "listener_name_both_plain_sasl_jaas_config"
        assert alter(admin, **{name: f'{module} required user_new="n";'}) == (0, None)
        assert served(broker.connect(BOTH, **given))
        assert alter(admin, **{name: "no module"})[0] == ErrorCode.INVALID_REQUEST
        assert alter(admin, **{name: None})[0] == 0
    with pytest.raises(ClientError):
        broker.connect(BOTH, **given)
