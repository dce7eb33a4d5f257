"""Clients older than 0.11: Produce 0-2 and Fetch 0-3, in the message formats that they know."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.dispatch import HANDLERS
from ottla.wire.batch import TimestampType, batches
from ottla.wire.compression import Codec
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader
from ottla.wire.legacy import down_convert, read_message_set
from ottla.wire.messages import CreateTopicsRequest, FetchRequest
from ottla.wire.records import Record, build_batch, build_marker
from tests.broker.held_workers import held_workers
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce, produce_request
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create as create_topic
from tests.golden.frames import files, frames

PRODUCE_VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])
FETCH_VERSIONS = pytest.mark.parametrize("version", [0, 1, 2, 3])
CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
OF_THE_FUTURE = {(18, 7), (18, 15)}     # ApiVersions of future clients, answered in version 0
MARKER = build_marker(1, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1)


def message_set(*values: bytes | None, magic: int = 1, **fields: Any) -> bytes:
    return down_convert(batch(*values, **fields), magic)


def old_fetch(client: WireClient, topic: str, version: int, offset: int = 0, **fields: Any) -> Any:
    """The partition's answer, with its records decoded from the version's message format."""
    request = fetch_request(topic, offset, **fields)
    answer = client.call(request, version).responses[0].partitions[0]
    magics = {answer.records[16]} if answer.records else set()
    assert magics <= {0 if version < 2 else 1}
    answer.records = [r for r in read_message_set(answer.records) if r.offset >= offset]
    return answer


def append(broker: RunningBroker, topic: str, *stored: bytes) -> None:
    """Append batches that no client could send."""

    async def on_the_loop() -> None:
        for each in stored:
            broker.server.replicas.by_name[topic][0].append_bytes(each, False)

    broker.run(on_the_loop())


def test_every_api_is_served_from_the_first_version_that_kafka_ever_had() -> None:
    assert {handler.versions.start for handler in HANDLERS.values()} == {0}


@pytest.mark.parametrize("file_name", files())
def test_what_stock_clients_were_recorded_to_send_is_of_versions_that_are_served(
    file_name: str,
) -> None:
    sent = {(f.key, f.version) for f in frames(file_name) if f.direction == "request"}
    for key, version in sent:
        if key in HANDLERS and (key, version) not in OF_THE_FUTURE:
            assert version in HANDLERS[key].versions


@PRODUCE_VERSIONS
@CODECS
def test_an_old_message_set_becomes_one_batch(
    client: WireClient, topic: str, version: int, codec: Codec
) -> None:
    sent = message_set(b"a", None, b"c", magic=0 if version < 2 else 1, codec=codec)
    for expected in (0, 3):
        answer = produce(client, topic, sent, version)
        assert (answer.error_code, answer.base_offset) == (0, expected)
        assert answer.log_append_time_ms == -1
    stored = list(batches(fetch(client, topic).records))
    assert [(each.codec, each.base_offset, each.record_count) for each in stored] == [
        (codec, 0, 3),
        (codec, 3, 3),
    ]
    records = stored[1].records()
    assert [record.value for record in records] == [b"a", None, b"c"]
    assert [record.timestamp for record in records] == [-1 if version < 2 else 1] * 3


@FETCH_VERSIONS
@CODECS
def test_a_new_batch_reaches_old_clients(
    client: WireClient, topic: str, version: int, codec: Codec
) -> None:
    for values in ((b"a", b"b"), (b"c", None)):
        produce(client, topic, batch(*values, codec=codec))
    for offset in range(5):
        answer = old_fetch(client, topic, version, offset)
        assert (answer.error_code, answer.high_watermark) == (0, 4)
        wanted = [(0, b"a"), (1, b"b"), (2, b"c"), (3, None)]
        assert [(record.offset, record.value) for record in answer.records] == wanted[offset:]


@FETCH_VERSIONS
def test_what_zstd_compressed_reaches_old_clients_as_gzip(
    client: WireClient, topic: str, version: int
) -> None:
    produce(client, topic, batch(b"a" * 1000, b"b", codec=Codec.ZSTD))
    answer = client.call(fetch_request(topic), version).responses[0].partitions[0]
    assert answer.records[17] & 7 == Codec.GZIP
    assert [record.value for record in read_message_set(answer.records)] == [b"a" * 1000, b"b"]


@FETCH_VERSIONS
def test_markers_and_emptied_batches_never_hold_an_old_consumer_up(
    client: WireClient, topic: str, broker: RunningBroker, version: int
) -> None:
    cut_short = build_batch(
        [Record(offset=0, timestamp=1, value=b"kept")], last_offset=2, codec=Codec.GZIP
    )
    append(broker, topic, *[MARKER] * 50, batch(b"v"))
    append(broker, topic, MARKER, build_batch([], last_offset=3), cut_short, MARKER, batch(b"w"))

    def read(offset: int) -> list[tuple[int, bytes | None]]:
        answer = old_fetch(client, topic, version, offset, partition_max_bytes=100)
        return [(record.offset, record.value) for record in answer.records]

    assert read(0) == read(50) == [(50, b"v")]
    assert read(51) == [(56, b"kept")]
    assert read(57) == [(60, b"w")]
    append(broker, topic, MARKER)
    assert read(61) == []


def test_an_old_fetch_waits_behind_a_marker_for_a_record(
    client: WireClient, topic: str, broker: RunningBroker
) -> None:
    append(broker, topic, MARKER)
    sent = client.send(fetch_request(topic, max_wait_ms=20_000), 2)
    with WireClient(broker.address) as producer:
        produce(producer, topic, batch(b"wake"))
    answer = client.answer(sent).responses[0].partitions[0]
    assert [record.value for record in read_message_set(answer.records)] == [b"wake"]


@pytest.mark.parametrize("size_max", [0, 10])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_partition_gives_a_batch_however_little_was_asked_for(
    client: WireClient, topic: str, version: int, size_max: int
) -> None:
    for partition in (0, 1):
        produce(client, topic, batch(b"x" * 5_000), partition=partition)
    request = fetch_request(topic, partition_max_bytes=size_max)
    first = request.topics[0].partitions[0]
    request.topics[0].partitions.append(
        type(first)(partition=1, fetch_offset=0, partition_max_bytes=size_max)
    )
    answers = client.call(request, version).responses[0].partitions
    assert [len(read_message_set(answer.records)) for answer in answers] == [1, 1]


def test_version_3_keeps_to_the_size_of_the_whole_reply(client: WireClient, topic: str) -> None:
    for partition in (0, 1):
        produce(client, topic, batch(b"x" * 5_000), partition=partition)
    request = fetch_request(topic, max_bytes=5_100)
    first = request.topics[0].partitions[0]
    request.topics[0].partitions.append(
        type(first)(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    )
    answers = client.call(request, 3).responses[0].partitions
    assert [len(read_message_set(answer.records)) for answer in answers] == [1, 0]


def test_no_more_is_converted_than_was_asked_for(client: WireClient, topic: str) -> None:
    for _ in range(20):
        produce(client, topic, batch(*[b""] * 1000))
    records = old_fetch(client, topic, 2, partition_max_bytes=100_000).records
    assert 1000 <= len(records) <= 5000


@FETCH_VERSIONS
def test_an_old_fetch_outside_the_log_is_told_so(
    client: WireClient, topic: str, version: int
) -> None:
    answer = old_fetch(client, topic, version, 99)
    assert (answer.error_code, answer.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


@pytest.mark.parametrize("version, expected", [(0, 0), (1, 0), (2, 1)])
def test_log_append_time_is_set_and_told_from_version_2_on(
    client: WireClient, version: int, expected: int
) -> None:
    name = f"append-time-{version}"
    setting = CreateTopicsRequest.Topic.Config(
        name="message.timestamp.type", value="LogAppendTime"
    )
    request = CreateTopicsRequest.Topic(
        name=name, num_partitions=1, replication_factor=1, configs=[setting]
    )
    client.call(CreateTopicsRequest(topics=[request], timeout_ms=10_000), 5)
    answer = produce(client, name, message_set(b"v", magic=0 if version < 2 else 1), version)
    assert answer.error_code == 0
    assert (answer.log_append_time_ms > 1) == bool(expected)
    stored = next(batches(fetch(client, name).records))
    assert stored.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert old_fetch(client, name, 2).records[0].timestamp == stored.max_timestamp > 1


WRONG = {
    "a wrong checksum": (message_set(b"v")[:-1] + b"w", ErrorCode.CORRUPT_MESSAGE),
    "half a message": (message_set(b"v")[:-1], ErrorCode.INVALID_RECORD),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "two formats": (message_set(b"v") + message_set(b"v", magic=0), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("records, code", WRONG.values(), ids=WRONG)
@PRODUCE_VERSIONS
def test_a_wrong_message_set_is_refused_and_leaves_nothing(
    client: WireClient, topic: str, version: int, records: bytes | None, code: ErrorCode
) -> None:
    answer = produce(client, topic, records, version)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert fetch(client, topic).high_watermark == 0


@CODECS
def test_a_damaged_message_set_is_the_clients_error_never_the_brokers(
    client: WireClient, topic: str, codec: Codec
) -> None:
    chance = random.Random(codec)
    for magic, version in ((0, 1), (1, 2)):
        good = message_set(b"a" * 50, b"b", magic=magic, codec=codec)
        for _ in range(150):
            damaged = bytearray(good)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(good))] = chance.randrange(256)
            if chance.random() < 0.7:               # get past the outer checksum
                damaged[12:16] = struct.pack(">I", zlib.crc32(damaged[16:]))
            answer = produce(client, topic, bytes(damaged), version, acks=1)
            assert answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, damaged.hex()
    assert produce(client, topic, good, version).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_half_an_old_request_closes_and_appends_nothing(
    client: WireClient, topic: str, broker: RunningBroker, version: int
) -> None:
    request = produce_request(topic, message_set(b"v"), acks=1)
    request.topic_data[0].partition_data *= 2
    header = RequestHeader(request.API_KEY, version, 1, "test").encode()
    client.send_frame((header + request.encode(version))[:-1])
    assert client.is_closed()
    with WireClient(broker.address) as clean:
        assert fetch(clean, topic).high_watermark == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_old_acknowledgements(client: WireClient, topic: str, acks: int) -> None:
    if acks:
        assert produce(client, topic, message_set(b"v"), 2, acks=acks).error_code == 0
    else:
        client.send(produce_request(topic, message_set(b"v"), acks=0), 1)
    answer = old_fetch(client, topic, 2, max_wait_ms=5_000)
    assert [record.value for record in answer.records] == [b"v"]


@pytest.mark.parametrize("version", [4, 7, 9, 10, 11])
def test_zstd_is_gzip_for_those_who_cannot_read_it(
    client: WireClient, topic: str, version: int
) -> None:
    """Clients support zstd from Fetch 10 on (KIP-110)."""
    sent = [batch(b"%d" % n, b"x" * n, codec=codec) for n, codec in enumerate(list(Codec) * 2)]
    for records in sent:
        assert produce(client, topic, records).error_code == 0
    found = list(batches(fetch(client, topic, version=version).records))
    older = version < 10
    assert [b.codec for b in found] == [
        Codec.GZIP if codec == Codec.ZSTD and older else codec for codec in list(Codec) * 2
    ]
    assert [r.value for b in found for r in b.records()] == [
        value for n in range(10) for value in (b"%d" % n, b"x" * n)
    ]
    for stored, records in zip(found, sent, strict=True):
        if stored.codec != Codec.GZIP or not older:
            assert bytes(stored.data[16:]) == records[16:]


def test_what_is_converted_for_one_request_is_bounded(client: WireClient, topic: str) -> None:
    """A client of Fetch 4 makes progress, and every partition gets its turn."""
    noise = random.Random(1).randbytes(600_000)
    for index in (0, 1):
        for n in range(3):
            records = batch(b"%d%d" % (index, n), noise, codec=Codec.ZSTD)
            assert produce(client, topic, records, partition=index).error_code == 0
    request = fetch_request(topic, max_bytes=1 << 26, partition_max_bytes=1 << 26)
    partition = request.topics[0].partitions[0]
    request.topics[0].partitions.append(
        type(partition)(partition=1, fetch_offset=0, partition_max_bytes=1 << 26))
    first = client.call(request, 4).responses[0].partitions
    assert [len(list(batches(p.records or b""))) for p in first] == [2, 0]
    request.topics[0].partitions.reverse()
    second = client.call(request, 4).responses[0].partitions
    assert [len(list(batches(p.records or b""))) for p in second] == [2, 0]
    read, offset = [], 0
    while offset < 6:
        got = list(batches(fetch(client, topic, offset, 4, max_bytes=1 << 26,
                                 partition_max_bytes=1 << 26).records))
        read += [b.records()[0].value for b in got]
        offset = got[-1].next_offset
    assert read == [b"00", b"01", b"02"]


@pytest.mark.parametrize(
    ("version", "codec"), [(0, Codec.GZIP), (3, Codec.NONE), (4, Codec.ZSTD), (9, Codec.ZSTD)]
)
def test_others_are_served_while_large_batches_are_converted(
    data: Path, version: int, codec: Codec
) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create_topic(client, "t", partitions=2)
        sent = [b"%d" % number for number in range(3000)]
        for partition in range(2):
            stored = batch(*sent, codec=codec)
            assert produce(client, "t", stored, partition=partition).error_code == 0
        request = fetch_request("t", max_wait_ms=0)
        made = FetchRequest.Topic.Partition
        request.topics[0].partitions = [
            made(partition=at, fetch_offset=0, partition_max_bytes=1 << 19) for at in range(2)
        ]
        with held_workers(broker) as held:
            asked = client.send(request, version)
            held.wait()
            with WireClient(broker.address) as other:
                assert produce(other, "t", batch(b"more")).error_code == 0
            for _ in range(2):
                assert len(held.held) == 1, "one partition's after the other"
                held.let_go()
            answer = client.answer(asked)
            assert not held.held
        for part in answer.responses[0].partitions:
            if version < 4:
                found = read_message_set(part.records)
            else:
                views = list(batches(part.records))
                assert all(view.codec != Codec.ZSTD for view in views)
                found = [record for view in views for record in view.records()]
            assert [record.value for record in found][:3000] == sent


@pytest.mark.parametrize(("version", "codec"), [(2, Codec.GZIP), (8, Codec.ZSTD)])
def test_a_client_that_goes_while_its_records_are_converted_is_let_go_of(
    data: Path, version: int, codec: Codec
) -> None:
    with RunningBroker(data) as broker:
        with WireClient(broker.address) as client:
            create_topic(client, "t", partitions=1)
            assert produce(client, "t", batch(*[b"x"] * 3000, codec=codec)).error_code == 0
            session = client.call(fetch_request("t", 3000, session_epoch=0), 8).session_id
        asked = fetch_request("t", session_id=session, session_epoch=1)
        with held_workers(broker) as held:
            with WireClient(broker.address) as client:
                client.send(asked, version)
                held.wait()
            held.let_go()
        asked.session_epoch = 2
        with WireClient(broker.address) as client:
            records = client.call(asked, version).responses[0].partitions[0].records
            if version < 4:
                assert len(read_message_set(records)) == 3000
            else:
                assert [view.record_count for view in batches(records)] == [3000]
