"""Well-formed Produce requests with invalid batches get Kafka's error code, and append nothing."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator

import pytest

from ottla.wire.checksum import crc32c_of
from ottla.wire.errors import ErrorCode
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce, produce_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.transactions import find

GOOD = batch(b"one", b"two", b"three")


@pytest.fixture(autouse=True)
def a_clean_client_is_served_afterwards(broker: RunningBroker, topic: str) -> Iterator[None]:
    yield
    with WireClient(broker.address) as clean:
        assert fetch(clean, topic).high_watermark == 0, "something was appended"
        at = produce(clean, topic, batch(b"still here"))
        assert at.error_code == 0
        assert values(fetch(clean, topic, at.base_offset)) == [b"still here"]


def patched(at: int, data: bytes, records: bytes = GOOD) -> bytes:
    """A batch in which bytes were replaced, and whose checksum was then made valid again."""
    changed = bytearray(records)
    changed[at : at + len(data)] = data
    changed[17:21] = struct.pack(">I", crc32c_of(bytes(changed[21:])))
    return bytes(changed)


def compressed(codec: int, payload: bytes, count: int = 1) -> bytes:
    head = bytearray(GOOD[:61])
    head[8:12] = struct.pack(">i", 49 + len(payload))
    head[21:23] = struct.pack(">h", codec)
    head[23:27] = struct.pack(">i", count - 1)
    head[57:61] = struct.pack(">i", count)
    return patched(0, b"", bytes(head) + payload)


WRONG = {
    "bad checksum": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
    "unknown magic": (patched(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
    "length -1": (patched(8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE),
    "length 0": (patched(8, struct.pack(">i", 0)), ErrorCode.CORRUPT_MESSAGE),
    "length beyond the bytes": (patched(8, struct.pack(">i", 5000)), ErrorCode.INVALID_RECORD),
    "magic 1 in version 9": (patched(16, b"\x01"), ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "no batch": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "count above the records": (patched(57, struct.pack(">i", 9)), ErrorCode.INVALID_RECORD),
    "count -1": (patched(57, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD),
    "count 2^31-1": (patched(57, struct.pack(">i", 2**31 - 1)), ErrorCode.INVALID_RECORD),
    "last offset delta": (patched(23, struct.pack(">i", 7)), ErrorCode.INVALID_RECORD),
    "control batch": (patched(21, struct.pack(">h", 0x20)), ErrorCode.INVALID_RECORD),
    "producer without sequence": (
        patched(43, struct.pack(">qhi", 5, 0, -1)), ErrorCode.INVALID_RECORD,
    ),
    "transactional without id": (
        patched(21, struct.pack(">h", 0x10) + GOOD[23:43] + struct.pack(">qhi", 5, 0, 0)),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "codec 7": (compressed(7, b"garbage"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "gzip garbage": (compressed(1, b"garbage"), ErrorCode.CORRUPT_MESSAGE),
    "timestamp -5": (
        patched(27, struct.pack(">q", -5)),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "timestamp far ahead": (patched(27, struct.pack(">q", 2**62)), ErrorCode.INVALID_TIMESTAMP),
    "too large": (batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_batch_gets_its_code(client: WireClient, topic: str, name: str) -> None:
    records, code = WRONG[name]
    answer = produce(client, topic, records)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert answer.error_message


def test_a_gzip_bomb_is_stopped_at_the_cap(client: WireClient, topic: str) -> None:
    bomb = compressed(1, gzip.compress(b"\x00" * (200 << 20)))
    assert produce(client, topic, bomb).error_code == ErrorCode.INVALID_RECORD


def test_a_record_longer_than_its_batch_is_invalid(client: WireClient, topic: str) -> None:
    assert produce(client, topic, patched(61, b"\x7e")).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("acks", [5, -2])
def test_acks_other_than_minus_one_zero_one_is_refused(
    client: WireClient, topic: str, acks: int
) -> None:
    answer = produce(client, topic, GOOD, acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("index", [99, -1, 2**31 - 1])
def test_an_unknown_partition_is_reported(client: WireClient, topic: str, index: int) -> None:
    answer = produce(client, topic, GOOD, partition=index)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "name", ["no-such-topic", "..", "../../x", "a/b", "", "x" * 250, "nul\x00", "\udcff"]
)
def test_an_unknown_or_impossible_topic_is_reported(client: WireClient, name: str) -> None:
    answer = produce(client, name, GOOD)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    looked = fetch(client, name)
    assert looked.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_reported(client: WireClient) -> None:
    response = client.call(produce_request(b"\x07" * 16, GOOD), 13)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_clients_do_not_write_internal_topics(client: WireClient, name: str) -> None:
    find(client, "anything", int(name == "__transaction_state"))        # creates the topic
    assert produce(client, name, GOOD).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_failed_produce_without_acknowledgement_closes(client: WireClient, topic: str) -> None:
    client.send(produce_request(topic, GOOD, partition=99, acks=0), 9)
    assert client.is_closed()


def test_the_good_partitions_of_a_request_are_served_beside_the_bad(
    client: WireClient, topic: str
) -> None:
    request = fetch_request(topic)
    good = request.topics[0].partitions[0]
    request.topics[0].partitions.append(
        type(good)(partition=77, fetch_offset=0, partition_max_bytes=1000)
    )
    answers = client.call(request, 11).responses[0].partitions
    assert [answer.error_code for answer in answers] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
def test_an_offset_out_of_range_is_reported(client: WireClient, topic: str, offset: int) -> None:
    answer = fetch(client, topic, offset)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
