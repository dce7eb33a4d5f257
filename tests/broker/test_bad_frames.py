"""Bytes that are not a request end their own connection only."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from ottla.wire.messages import ApiVersionsRequest, MetadataRequest
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.resident_memory import resident_bytes
from tests.broker.running import RunningBroker, WireClient

METADATA, API_VERSIONS, PRODUCE = 3, 18, 0


@pytest.fixture(autouse=True)
def a_clean_client_is_served_afterwards(broker: RunningBroker, topic: str) -> Iterator[None]:
    yield
    with WireClient(broker.address) as clean:
        at = produce(clean, topic, batch(b"still here"))
        assert at.error_code == 0
        assert values(fetch(clean, topic, at.base_offset)) == [b"still here"]


def header(key: int, version: int, client_id: bytes | None = b"bad") -> bytes:
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, size) + (client_id or b"")


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, 100 * 2**20 + 1, -(2**31)])
def test_a_length_that_no_frame_may_have_closes_at_once(client: WireClient, size: int) -> None:
    client.send_bytes(struct.pack(">i", size))
    assert client.is_closed()


def test_an_announced_length_allocates_nothing(broker: RunningBroker, client: WireClient) -> None:
    before = resident_bytes()
    clients = [WireClient(broker.address) for _ in range(20)]
    for each in clients:
        each.send_bytes(struct.pack(">i", 100 * 2**20) + b"ten bytes.")
    assert client.call(MetadataRequest(topics=[]), 9).brokers
    assert resident_bytes() - before < 20 * 2**20
    for each in clients:
        each.close()


@pytest.mark.parametrize("frame", [b"\x00\x03\x00\x09", b"\x00", header(METADATA, 9)[:9]])
def test_a_frame_shorter_than_its_header_closes(client: WireClient, frame: bytes) -> None:
    client.send_frame(frame)
    assert client.is_closed()


@pytest.mark.parametrize(
    "key, version", [(9999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (4, 0)]
)
def test_an_unknown_api_or_version_closes(client: WireClient, key: int, version: int) -> None:
    client.send_frame(header(key, version) + b"\x00" * 8)
    assert client.is_closed()


@pytest.mark.parametrize("version", [6, 99])
def test_api_versions_of_the_future_is_answered_in_version_0(
    client: WireClient, version: int
) -> None:
    client.send_frame(header(API_VERSIONS, version) + b"\x00" + b"\x02a\x02b\x00")
    frame = client.receive_frame()
    assert frame == struct.pack(">ihihhh", 7, 35, 1, API_VERSIONS, 0, 5)
    # The client retries on the same connection.
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


def test_api_versions_with_half_a_header_closes(client: WireClient) -> None:
    client.send_frame(struct.pack(">hhi", API_VERSIONS, 99, 7))
    assert client.is_closed()


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", 2**31 - 1),                       # array of 2^31-1 topics
        struct.pack(">i", -5),                              # a negative count that is not null
        struct.pack(">ih", 1, 30000) + b"short",            # string longer than the frame
        struct.pack(">ih", 1, -1),                          # a name that is null
        struct.pack(">i", 3) + struct.pack(">h", 1) + b"a",  # fewer topics than announced
    ],
)
def test_lengths_beyond_the_frame_close(client: WireClient, body: bytes) -> None:
    client.send_frame(header(METADATA, 1) + body)
    assert client.is_closed()


@pytest.mark.parametrize(
    "body",
    [
        b"\x80\x80\x80\x80\x08",                            # compact array of 2^31-1
        b"\xff\xff\xff\xff\xff\x0f",                        # varint longer than 5 bytes
        b"\x02\xff\xff\x7f",                                # string longer than the frame
        b"\x02\x02a\xff\xff\xff\xff\x0f",                   # 2^32-1 tagged fields
        b"\x02\x02a\x01\x00\xff\xff\x7f",                   # a tagged field longer than the frame
    ],
)
def test_flexible_lengths_beyond_the_frame_close(client: WireClient, body: bytes) -> None:
    client.send_frame(header(METADATA, 9) + b"\x00" + body)
    assert client.is_closed()


def test_bytes_behind_a_request_are_ignored(client: WireClient) -> None:
    request = MetadataRequest(topics=[])
    client.send_frame(header(METADATA, 9) + b"\x00" + request.encode(9) + b"more")
    assert client.receive_frame()[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize("client_id", [None, b"", b"\xff\xfe", b"a\x00b\nc"])
def test_any_client_id_is_accepted(client: WireClient, client_id: bytes | None) -> None:
    request = MetadataRequest(topics=[])
    client.send_frame(header(METADATA, 9, client_id) + b"\x00" + request.encode(9))
    assert client.receive_frame()[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize(
    ("hello", "name"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"PRI * HTTP/2.0\r\n\r\n", "HTTP/2"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "TLS"), (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
    ],
)
def test_other_protocols_are_named_and_closed(
    broker: RunningBroker, client: WireClient, hello: bytes, name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.server.listeners[0].refusals = 0     # earlier tests have caused many
    client.send_bytes(hello)
    assert client.is_closed()
    assert f"the client speaks {name} on a port for Kafka's protocol" in caplog.text


def test_half_a_frame_and_the_end_closes(client: WireClient) -> None:
    client.send_bytes(struct.pack(">i", 100) + b"half")
    client.socket.shutdown(1)
    assert client.is_closed()


def test_requests_in_one_segment_are_answered_in_their_order(client: WireClient) -> None:
    sent = []
    data = b""
    for number in range(1, 4):
        frame = struct.pack(">hhih", METADATA, 1, number, -1) + struct.pack(">i", 0)
        data += struct.pack(">i", len(frame)) + frame
        sent.append(number)
    client.send_bytes(data)
    assert [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in sent] == sent


def test_a_length_smaller_than_its_body_makes_the_rest_the_next_frame(client: WireClient) -> None:
    frame = header(METADATA, 1) + struct.pack(">i", 0)
    client.send_bytes(struct.pack(">i", len(frame)) + frame + b"\xff\xff\xff\xff")
    assert client.receive_frame()[:4] == struct.pack(">i", 7)
    assert client.is_closed()


def test_a_malformed_produce_appends_nothing(
    client: WireClient, topic: str, broker: RunningBroker
) -> None:
    good = batch(b"never")
    name = topic.encode()
    body = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 2, 0, len(good)) + good      # two partitions announced, one present
    client.send_frame(header(PRODUCE, 3) + body)
    assert client.is_closed()
    with WireClient(broker.address) as clean:
        assert fetch(clean, topic).high_watermark == 0


def test_a_failure_of_ours_closes_the_connection_alone_and_is_told_whole(
    broker: RunningBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(broker.server.broker, "request_elements_max", "a bug")
        client.send_frame(header(METADATA, 9) + b"\x00" * 8)
        assert client.is_closed()
    told = [record for record in caplog.records if record.name == "ottla.connection"]
    assert len(told) == 1 and "closed after an internal error" in told[0].message
    assert told[0].exc_info is not None and told[0].exc_info[0] is TypeError
