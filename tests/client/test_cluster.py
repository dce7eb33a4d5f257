"""The wire client with a real broker: versions, routing, and one clear sentence for each
failure."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.client.addresses import Address, BadAddress, parse_address, parse_addresses, show_address
from ottla.client.cluster import ClusterClient
from ottla.client.connection import Connection
from ottla.client.errors import (
    ClientError,
    NoBroker,
    NotConnected,
    NotSupported,
    Refused,
    TimedOut,
    Unreachable,
    check,
)
from ottla.client.frames import BadResponse
from ottla.client.transport import Security
from ottla.testing import Broker
from ottla.tools.zookeeper.local import free_port
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    DescribeGroupsRequest,
    MetadataRequest,
    ShareFetchRequest,
)
from tests.broker.running import RunningBroker
from tests.broker.security.authority import Authority
from tests.foreign_server import HTTP, TLS_ALERT, foreign_server

UNENCRYPTED = {
    "PLAINTEXT": Security(), "SASL_PLAINTEXT": Security("SASL_PLAINTEXT", "PLAIN", "u", "p"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("client") / "data") as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[ClusterClient]:
    with ClusterClient(f"127.0.0.1:{broker.port}") as made:
        yield made


def create(cluster: ClusterClient, name: str) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
    [made] = cluster.controller().call(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics
    check(made.error_code, made.error_message, name)


def test_a_request_goes_in_the_newest_version_of_both_sides(cluster: ClusterClient) -> None:
    connection = cluster.any()
    assert connection.version_of(ApiKey.METADATA) == APIS[ApiKey.METADATA].versions[-1]
    assert connection.version_of(ApiKey.METADATA, at_most=5) == 5
    connection.frames.served[ApiKey.METADATA] = (0, 9)
    assert connection.version_of(ApiKey.METADATA) == 9
    assert connection.call(MetadataRequest(topics=[])).brokers


def test_an_api_that_the_broker_lacks_is_named(cluster: ClusterClient) -> None:
    with pytest.raises(NotSupported, match="does not support ShareFetch"):
        cluster.any().call(ShareFetchRequest())


def test_a_broker_that_does_not_know_the_newest_apiversions_is_asked_again() -> None:
    asked: list[int] = []

    def serve(server: socket.socket) -> None:
        peer, _ = server.accept()
        for error in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE):
            frame = peer.recv(1000)
            version, correlation_id = struct.unpack_from(">hi", frame, 6)
            asked.append(version)
            apis = [ApiVersionsResponse.ApiKey(api_key=3, min_version=0, max_version=4)]
            body = ApiVersionsResponse(error_code=error, api_keys=apis).encode(0)
            answer = struct.pack(">i", correlation_id) + body
            peer.sendall(struct.pack(">i", len(answer)) + answer)
        peer.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        with Connection(server.getsockname()) as connection:
            assert connection.version_of(ApiKey.METADATA) == 4
        thread.join()
    assert asked == [APIS[ApiKey.API_VERSIONS].versions[-1], 0]


def test_controller_leader_and_coordinator_are_found(cluster: ClusterClient) -> None:
    create(cluster, "routed")
    [topic] = cluster.metadata(["routed"]).topics
    assert cluster.node(topic.partitions[0].leader_id).call(MetadataRequest(topics=[])).brokers
    answer = cluster.coordinator("nobody").call(DescribeGroupsRequest(groups=["nobody"]))
    assert answer.groups[0].group_id == "nobody"


def test_asking_about_a_topic_does_not_create_it(cluster: ClusterClient) -> None:
    [topic] = cluster.metadata(["never"]).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "never" not in [known.name for known in cluster.metadata().topics]


def test_a_refusal_carries_its_code_and_the_brokers_text(cluster: ClusterClient) -> None:
    with pytest.raises(Refused, match="a b") as refused:
        create(cluster, "a b")
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_what_time_mends_is_asked_again(cluster: ClusterClient) -> None:
    answers = [15, 14, 0]

    def ask() -> str:
        check(answers.pop(0))
        return "found"

    assert cluster.with_retries(ask) == "found"


def test_what_time_does_not_mend_is_raised_at_once(cluster: ClusterClient) -> None:
    answers = [3, 0]
    with pytest.raises(Refused, match="unknown topic or partition"):
        cluster.with_retries(lambda: check(answers.pop(0)))
    assert answers == [0]


def test_the_second_address_serves_where_the_first_is_dead(broker: RunningBroker) -> None:
    with ClusterClient(f"127.0.0.1:{free_port()},127.0.0.1:{broker.port}") as cluster:
        assert cluster.metadata([]).brokers


def test_an_unreachable_broker_is_one_sentence(broker: RunningBroker) -> None:
    port = free_port()
    cluster = ClusterClient(f"127.0.0.1:{port}", connect_seconds=0.05)
    expected = f"cannot reach a broker at 127.0.0.1:{port}: connection refused"
    with pytest.raises(Unreachable, match=expected):
        cluster.any()


@pytest.mark.parametrize(("says", "kind", "told"), [
    (None, NoBroker, r"no answer within 0\.2 s; perhaps the service"),
    (b"", NoBroker, r"the broker closed the connection; perhaps it expects TLS or a login"),
    (HTTP, BadResponse, r"this is an HTTP server, .*`listeners`.* port 9092"),
    (TLS_ALERT, BadResponse,
     "this port expects TLS: set security.protocol=SSL, or SASL_SSL with a login"),
    (b"SSH-2.0", BadResponse,
     "the server does not speak Kafka's protocol in .*: its response begins with b'SS"),
])  # fmt: skip
def test_a_server_that_is_silent_or_foreign_is_told_apart(
    says: bytes | None, kind: type[ClientError], told: str
) -> None:
    with foreign_server(says) as address, pytest.raises(kind, match=f"{address}: {told}"):
        ClusterClient(address, connect_seconds=0.2 if says is None else 60).any()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"])
def test_an_http_server_that_waits_for_the_end_of_a_line_is_recognized(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: str
) -> None:
    """Python's own HTTP server does this. It is silent until it receives a line end, and a request
    of Kafka's protocol need not contain one."""
    monkeypatch.setattr("ottla.client.cluster.HTTP_SECONDS", 30.0)
    monkeypatch.setattr("ottla.client.cluster.HURRY_SECONDS", 0.0)
    security = UNENCRYPTED.get(protocol, Security())
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        if protocol == "SSL":
            authority = Authority(tmp_path)
            served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            served.load_cert_chain(authority.issue("server"))
            server.socket = served.wrap_socket(server.socket, server_side=True)
            security = Security("SSL", tls=ssl.create_default_context(cafile=authority.file))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = show_address(("127.0.0.1", server.server_port))
        try:
            for addresses in (address, f"127.0.0.1:{free_port()},{address}"):
                client = ClusterClient(addresses, connect_seconds=0.4, security=security)
                with pytest.raises(NoBroker, match=f"{address}: this is an HTTP server, .*9092"):
                    client.any()
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_silent_broker_is_asked_once_whether_it_is_an_http_server(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The question is an HTTP request on a connection of its own. A broker that is only slow closes
    this connection and logs a line, so it must not be asked again and again."""
    monkeypatch.setattr("ottla.client.cluster.HTTP_SECONDS", 0.1)
    monkeypatch.setattr("ottla.client.cluster.HURRY_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, said = show_address(server.getsockname()), []
        for _ in range(2):
            client = ClusterClient(address, connect_seconds=0.2, security=UNENCRYPTED[protocol])
            with pytest.raises(NoBroker, match=r"within 0\.2 s.*; perhaps the service at"):
                client.any()
        for _ in range(3):
            with server.accept()[0] as peer:
                said.append(peer.recv(1000)[:5])
    assert [text == b"HEAD " for text in said] == [False, True, False]


def test_a_broker_that_answered_before_is_not_asked_whether_it_is_an_http_server(
    monkeypatch: pytest.MonkeyPatch, cluster: ClusterClient
) -> None:
    def late(address: Address, seconds: float, *, wait: bool) -> object:
        raise TimedOut("no answer")

    cluster.any().close()
    monkeypatch.setattr(cluster, "_connect", late)
    monkeypatch.setattr("ottla.client.cluster.speaks_http", lambda *_: pytest.fail("asked"))
    with pytest.raises(NoBroker, match="no answer"):
        cluster.any()


def test_a_client_in_a_hurry_does_not_look_for_an_http_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shell's completion gives up after 0.3 s, and shows no message."""
    monkeypatch.setattr("ottla.client.cluster.speaks_http", lambda *_: pytest.fail("asked"))
    with foreign_server(None) as address, pytest.raises(NoBroker, match="perhaps the service"):
        ClusterClient(address, connect_seconds=0.3).any()


def test_a_connection_that_broke_says_which(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as running:
        connection = Connection(running.address)
        connection.negotiate()
    with pytest.raises(Unreachable, match=f"{running.port}: the broker closed the connection"):
        connection.call(MetadataRequest(topics=[]))
    connection.close()


def test_a_late_answer_is_not_waited_for(broker: RunningBroker) -> None:
    with Connection(broker.address, request_seconds=0.1) as connection:
        connection.send_bytes(b"\x00\x00\x00\x20")  # the broker waits for the rest of the frame
        with pytest.raises(TimedOut, match=r"no answer within 0\.1 s"):
            connection.receive_frame()


def test_addresses_are_read_as_kafka_writes_them() -> None:
    assert parse_addresses("a:1, PLAINTEXT://b:2,[::1]:3,c") == [
        ("a", 1),
        ("b", 2),
        ("::1", 3),
        ("c", 9092),
    ]
    assert show_address(("::1", 3)) == "[::1]:3"
    for bad in ("", "a:b", "a:0", "a:70000", ":1", "::1:9092", "[::1]x"):
        with pytest.raises(BadAddress):
            parse_addresses(bad)
    with pytest.raises(BadAddress, match=r"\[IPV6\]:PORT"):
        parse_address("fe80::1")
    with pytest.raises(BadAddress, match="such as localhost:9093"):
        parse_address("9093")


def test_a_protection_that_the_client_lacks_is_refused_before_it_connects() -> None:
    assert Security.from_properties({}).protocol == "PLAINTEXT"
    for properties, problem in (
        ({"security.protocol": "TLS"}, "is not one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.jaas.config: Login module not specified"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": "a.B required;"},
         "sasl.mechanism=GSSAPI is not supported"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"},
         "^ssl.truststore.location: /nowhere: no such"),
        ({"security.protocol": "SSL", "ssl.truststore.location": __file__}, "only PEM files"),
    ):
        with pytest.raises(ClientError, match=problem):
            Security.from_properties(properties)


def test_a_connection_that_the_broker_closed_is_made_again() -> None:
    """Brokers close what was idle for ten minutes, and everything when they stop."""
    with Broker() as running, ClusterClient(running.bootstrap_servers) as cluster:
        cluster.metadata([])
        node_id = next(iter(cluster.brokers))
        assert cluster.node(node_id) is cluster.any()
        for connection in (cluster.any, lambda: cluster.node(node_id)):
            before = connection()
            assert connection() is before
            running.disconnect()
            before.is_closed()                  # waits until the broker's close has arrived
            assert connection().call(MetadataRequest(topics=[])).brokers


def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one() -> None:
    with Broker() as running, ClusterClient(running.bootstrap_servers) as cluster:
        cluster.any()
        cluster.request_seconds = 0.001
        running.delay("Metadata", 0.05)
        with pytest.raises(TimedOut):
            cluster.metadata([])
        cluster.request_seconds = 30.0
        assert cluster.metadata([]).brokers


def test_what_may_be_done_twice_is_asked_again_where_the_connection_breaks() -> None:
    with Broker() as running, ClusterClient(running.bootstrap_servers) as cluster:
        lost = running.drop("Metadata", after=True)
        with pytest.raises(Unreachable):
            cluster.with_retries(lambda: cluster.metadata([]))
        running.drop("Metadata", after=True)
        assert cluster.with_retries(lambda: cluster.metadata([]), again=True).brokers
        assert lost.hits == 1


@pytest.mark.parametrize("silent", [False, True])
def test_another_broker_is_waited_for_where_one_is_away(
    cluster: ClusterClient, silent: bool
) -> None:
    """Which broker leads, coordinates or controls next is known only after the session of the
    unreachable broker has ended."""
    cluster.refresh()
    here = cluster.controller_id
    cluster.connect_seconds = 0.2
    with socket.create_server(("127.0.0.1", 0)) as server:      # like a process that hangs
        cluster.brokers[here + 1] = (
            server.getsockname() if silent else ("127.0.0.1", free_port())
        )
        leaders = [here + 1, here]

        def ask() -> object:
            return cluster.node(leaders.pop(0)).call(MetadataRequest(topics=[])).brokers

        assert cluster.with_retries(ask)
    assert not leaders


def test_changes_go_to_any_broker_where_the_controller_is_away(cluster: ClusterClient) -> None:
    """That broker forwards the changes to the next controller."""
    cluster.refresh()
    cluster.connect_seconds = 0.2
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster.controller_id += 1
        cluster.brokers[cluster.controller_id] = server.getsockname()
        with pytest.raises(NotConnected):
            cluster.controller(itself=True)
        assert cluster.controller() is cluster.any()


def test_a_broker_that_does_not_answer_is_named() -> None:
    asked = CreateTopicsRequest(topics=[], timeout_ms=1)
    with Broker() as running, ClusterClient(running.bootstrap_servers) as cluster:
        cluster.refresh()
        here = cluster.controller_id
        running.delay("CreateTopics", 60, count=None)
        cluster.connect_seconds, cluster.request_seconds = 0.1, 0.2
        late = f"{running.bootstrap_servers}: no answer within .* s to CreateTopics"
        with pytest.raises(TimedOut, match=f"{late}$") as failed:
            cluster.controller().call(asked)
        assert failed.value.key == asked.API_KEY
        with socket.create_server(("127.0.0.1", 0)) as server:      # like a process that hangs
            cluster.brokers[here + 1] = server.getsockname()
            with pytest.raises(TimedOut, match=f"{late} from broker {here}, the controller$"):
                cluster.controller().call(asked)
            cluster.controller_id += 1
            forwards = f"broker {here}, which forwards it to the controller, broker {here + 1}$"
            with pytest.raises(TimedOut, match=f"{late} from {forwards}"):
                cluster.controller().call(asked)
            cluster.controller()
            cluster.brokers[here] = cluster.brokers[here + 1]   # it listens elsewhere from now on
            assert cluster.any().who == cluster.controller().who == ""


def test_a_controller_that_hangs_takes_a_part_of_the_time_only(cluster: ClusterClient) -> None:
    """--timeout includes the connection to the controller and the answer of the broker that
    forwards the request."""
    cluster.refresh()
    cluster.connect_seconds, cluster.request_seconds = 0.4, 0.4
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster.controller_id += 1
        cluster.brokers[cluster.controller_id] = server.getsockname()
        forwards = cluster.controller()
        assert 0.2 <= forwards.request_seconds <= 0.21
        assert 160 <= cluster.timeout_ms(forwards) <= 168
        assert cluster.timeout_ms(cluster.any()) == 320


def test_no_broker_stands_in_for_a_controller_that_nobody_knows(
    cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is for data that only the controller has. Another broker's data may be long out of
    date."""
    monkeypatch.setattr(cluster, "refresh", lambda: None)
    assert cluster.controller_id == -1
    with pytest.raises(NotConnected, match="no controller"):
        cluster.controller(itself=True)
    assert cluster.controller() is cluster.any()        # any broker forwards changes


def test_a_controller_that_refuses_connections_is_waited_for_only_where_nobody_stands_in(
    cluster: ClusterClient,
) -> None:
    """The broker that forwards a change waits for the next controller. The client must not wait as
    well, because --timeout would then pass twice."""
    cluster.refresh()
    cluster.connect_seconds = 60.0
    cluster.controller_id += 1
    cluster.brokers[cluster.controller_id] = "127.0.0.1", free_port()
    began = time.monotonic()
    assert cluster.controller() is cluster.any()
    assert time.monotonic() - began < 30


def test_a_controller_that_has_to_answer_itself_is_waited_for_once(cluster: ClusterClient) -> None:
    """`with_retries` waits for this controller or the next one until --timeout has passed.
    `controller` itself does not wait."""
    cluster.refresh()
    cluster.connect_seconds, cluster.patience_seconds = 60.0, 0.0
    cluster.controller_id += 1
    cluster.brokers[cluster.controller_id] = "127.0.0.1", free_port()
    began = time.monotonic()
    with pytest.raises(NotConnected, match=r"the controller cannot be reached: broker \d+ is not"):
        cluster.with_retries(lambda: cluster.controller(itself=True))
    assert time.monotonic() - began < 30


def test_brokers_that_were_heard_of_stand_in_for_the_bootstrap_address(
    broker: RunningBroker,
) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        cluster.refresh()
        cluster.close()
        cluster.bootstrap = [("127.0.0.1", free_port())]
        assert cluster.metadata([]).brokers


def test_a_bootstrap_address_that_is_silent_leaves_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = ClusterClient("a:1,b:2,c:3", connect_seconds=6.0)
    now, given = 0.0, []

    def silent(address: Address, seconds: float, *, wait: bool) -> Connection:
        nonlocal now
        given.append(seconds)
        now += seconds
        raise Unreachable(f"{address} {wait}")

    monkeypatch.setattr(cluster, "_connect", silent)
    monkeypatch.setattr("ottla.client.cluster.time.monotonic", lambda: now)
    with pytest.raises(Unreachable):
        cluster.any()
    assert given == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("answers_after", [0.5, 3.0, 60.0])
def test_a_client_that_waits_for_its_first_broker_says_so_once(
    monkeypatch: pytest.MonkeyPatch, answers_after: float
) -> None:
    told: list[tuple[float, str]] = []
    now = 0.0
    cluster = ClusterClient("a:1", waiting=lambda reason: told.append((now, reason)))
    found = SimpleNamespace(address=("a", 1), wait_at_most=lambda _: None)

    def refused(address: Address, seconds: float, *, wait: bool) -> object:
        if now >= answers_after:
            return found
        raise Unreachable("a:1: connection refused") from ConnectionRefusedError()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(cluster, "_connect", refused)
    monkeypatch.setattr("ottla.client.cluster.time.monotonic", lambda: now)
    monkeypatch.setattr("ottla.client.cluster.time.sleep", sleep)
    if answers_after > cluster.connect_seconds:
        with pytest.raises(Unreachable):
            cluster.any()
    else:
        assert cluster.any() is found
        assert cluster.waiting is None, "a later wait is not reported: a screen may be open"
    assert [reason for _, reason in told] == (
        ["cannot reach a broker at a:1: connection refused"] * (answers_after > 1))
    assert all(1.0 <= at < 1.2 for at, _ in told)


def test_addresses_that_all_refuse_are_tried_for_a_shorter_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If all addresses refuse connections, the client gives up after `refused_seconds`. There are
    two cases in which it goes on until `connect_seconds`: an address is silent (its broker may be
    out of reach), or a broker has answered before (it may be restarting)."""
    now, silent = 0.0, False

    def failing(address: Address, seconds: float, *, wait: bool) -> object:
        if silent and address[0] == "b":
            raise Unreachable("b:2: no answer in time")
        raise Unreachable("connection refused") from ConnectionRefusedError()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("ottla.client.cluster.time.monotonic", lambda: now)
    monkeypatch.setattr("ottla.client.cluster.time.sleep", sleep)
    for silent, answered, seconds in (
        (False, False, 1.0), (True, False, 5.0), (False, True, 5.0),
    ):
        now, cluster = 0.0, ClusterClient("a:1,b:2", refused_seconds=1.0)
        monkeypatch.setattr(cluster, "_connect", failing)
        if answered:
            lost = SimpleNamespace(usable=False, retire=lambda: None)
            monkeypatch.setattr(cluster, "_first", lost)
        with pytest.raises(NoBroker) as raised:
            cluster.any()
        assert seconds - 0.3 < now <= seconds and raised.value.refused is not silent


def test_whichever_broker_starts_first_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterClient("a:1,b:2")
    asked: list[str] = []
    found = SimpleNamespace(address=("a", 1), wait_at_most=lambda _: None)

    def starting(address: Address, seconds: float, *, wait: bool) -> object:
        asked.append(address[0])
        if len(asked) == 3:
            return found
        raise Unreachable("connection refused") from ConnectionRefusedError()

    monkeypatch.setattr(cluster, "_connect", starting)
    monkeypatch.setattr("ottla.client.cluster.time.sleep", lambda _: None)
    assert cluster.any() is found
    assert asked == ["a", "b", "a"]
