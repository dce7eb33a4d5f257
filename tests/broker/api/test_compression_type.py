"""compression.type and max.decompressed.message.bytes, as producers and consumers see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.api.records.preparation import room_on_loop
from ottla.broker.settings.topic import log_config
from ottla.wire.batch import TimestampType, batches
from ottla.wire.compression import Codec
from ottla.wire.errors import ErrorCode
from ottla.wire.legacy import down_convert
from ottla.wire.messages import ProduceRequest
from tests.broker import transactions
from tests.broker.configs import alter
from tests.broker.held_workers import HeldWorkers, held_workers
from tests.broker.produce_fetch import batch, fetch, produce, produce_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create, delete
from tests.waiting import until

# LARGE values are compressed in a worker thread for gzip topics, HUGE values for every codec.
SMALL, LARGE, HUGE = b"small " * 10, b"large " * 20_000, b"huge " * 150_000
TYPES = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY,
         "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


@pytest.fixture
def held(broker: RunningBroker) -> Iterator[HeldWorkers]:
    with held_workers(broker) as workers:
        yield workers


def stored(client: WireClient, topic: str, **fields: Any) -> list[Any]:
    """The batches of a topic's first partition."""
    return list(batches(fetch(client, topic, **fields).records))


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize("value", [SMALL, HUGE], ids=["small", "huge"])
def test_every_batch_gets_the_topics_codec(
    client: WireClient, wanted: str, value: bytes
) -> None:
    topic = create(client, f"to-{wanted}-{len(value)}", compression_type=wanted)
    sent = [batch(value, b"%d" % codec, codec=codec) for codec in Codec]
    for number, records in enumerate(sent):
        answer = produce(client, topic, records)
        assert (answer.error_code, answer.base_offset) == (0, 2 * number)
    found = [b for n in range(5) for b in stored(client, topic, offset=2 * n, max_bytes=1)]
    assert [b.codec for b in found] == [TYPES[wanted]] * 5
    assert all(b.crc_holds() for b in found)
    assert [r.value for b in found for r in b.records()] == [
        each for codec in Codec for each in (value, b"%d" % codec)
    ]
    # The batch that already had the codec is stored unchanged, byte for byte.
    assert bytes(found[TYPES[wanted]].data[16:]) == sent[TYPES[wanted]][16:]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "zstd"])
def test_message_sets_get_it_too(
    client: WireClient, version: int, codec: Codec, wanted: str
) -> None:
    topic = create(client, f"set-{wanted}-{version}-{codec}", compression_type=wanted)
    for value in (SMALL, LARGE):
        sent = down_convert(batch(value, b"b", codec=codec), 1 if version == 2 else 0)
        assert produce(client, topic, sent, version).error_code == 0
        at = stored(client, topic, offset=0 if value is SMALL else 2)
        assert at[-1].codec == TYPES.get(wanted, codec)
        assert [r.value for r in at[-1].records()] == [value, b"b"]


def test_a_message_set_is_bounded_as_sent_and_as_stored_only(client: WireClient) -> None:
    topic = create(client, "set-bounds", compression_type="gzip", max_message_bytes=5_000)
    packed = down_convert(batch(LARGE, codec=Codec.GZIP), 1)
    assert len(packed) < 5_000 < len(LARGE)
    assert produce(client, topic, packed, 2).error_code == 0
    topic = create(client, "set-grows", compression_type="uncompressed", max_message_bytes=5_000)
    assert produce(client, topic, packed, 2).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, topic, batch(LARGE, codec=Codec.ZSTD)).error_code == (
        ErrorCode.MESSAGE_TOO_LARGE)


def test_the_type_may_change_while_the_broker_runs(client: WireClient) -> None:
    topic = create(client, "dynamic")
    codecs = []
    for name, key, value in [
        (topic, "compression.type", "lz4"), ("", "compression.type", "zstd"),
        (topic, "compression.type", None), ("", "compression.type", None),
    ]:
        produce(client, topic, batch(SMALL, codec=Codec.GZIP))
        kind = 2 if name else 4
        assert alter(client, kind, name, (key, 1 if value is None else 0, value)) == 0
        codecs.append(stored(client, topic)[-1].codec)
    produce(client, topic, batch(SMALL, codec=Codec.GZIP))
    codecs.append(stored(client, topic)[-1].codec)
    assert codecs == [Codec.GZIP, Codec.LZ4, Codec.LZ4, Codec.ZSTD, Codec.GZIP]


def test_a_codec_for_all_topics_may_be_in_the_file(data: Path) -> None:
    with RunningBroker(data, compression_type="zstd") as broker, WireClient(broker.address) as one:
        topic = create(one, "by-default")
        produce(one, topic, batch(SMALL))
        assert stored(one, topic)[0].codec == Codec.ZSTD


def test_a_record_is_bounded_decompressed_by_the_topics_setting(client: WireClient) -> None:
    topic = create(client, "bounded", max_decompressed_message_bytes=1_000)
    assert produce(client, topic, batch(b"x" * 900, codec=Codec.LZ4)).error_code == 0
    for value in (b"x" * 1_000, LARGE):
        refused = produce(client, topic, batch(value, codec=Codec.LZ4))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert produce(client, topic, batch(value)).error_code == 0     # as in Kafka 4.4


def test_a_repeated_batch_is_known_by_its_sequence(client: WireClient) -> None:
    for value in (SMALL, HUGE):
        topic = create(client, f"idempotent-{len(value)}", compression_type="zstd")
        records = batch(value, producer_id=11, producer_epoch=0, base_sequence=0, codec=Codec.GZIP)
        first, again = produce(client, topic, records), produce(client, topic, records)
        assert (again.error_code, again.base_offset) == (0, first.base_offset)


@pytest.mark.parametrize("wanted", ["producer", "gzip"])
def test_log_append_time_is_that_of_the_append(
    client: WireClient, held: HeldWorkers, broker: RunningBroker, wanted: str
) -> None:
    topic = create(client, f"appended-{wanted}", compression_type=wanted,
                   message_timestamp_type="LogAppendTime")
    records = batch(b"x" * 2_000_000, codec=Codec.LZ4) if wanted == "producer" else batch(LARGE)
    sent = client.send(produce_request(topic, records), 9)
    held.wait()
    with WireClient(broker.address) as other:
        between = produce(other, topic, batch(SMALL)).log_append_time_ms
    held.let_go()
    answer = client.answer(sent).responses[0].partition_responses[0]
    assert answer.log_append_time_ms >= between
    last = stored(client, topic, offset=1)[-1]
    assert (last.max_timestamp, last.timestamp_type, last.crc_holds()) == (
        answer.log_append_time_ms, TimestampType.LOG_APPEND_TIME, True)


# --- a batch in a thread --------------------------------------------------------------------------


def answered(client: WireClient, sent: Any) -> list[tuple[int, int]]:
    return [
        (p.error_code, p.base_offset)
        for topic in client.answer(sent).responses for p in topic.partition_responses
    ]


def two_partitions(topic: str, first: bytes, second: bytes, **fields: Any) -> ProduceRequest:
    request = produce_request(topic, first, **fields)
    data = ProduceRequest.TopicData.PartitionData
    request.topic_data[0].partition_data.append(data(index=1, records=second))
    return request


@pytest.mark.parametrize("acks", [1, -1])
def test_frames_behind_it_wait_and_other_connections_do_not(
    client: WireClient, broker: RunningBroker, held: HeldWorkers, acks: int
) -> None:
    topic = create(client, f"order{acks}", compression_type="gzip")
    sent = [
        client.send(produce_request(topic, batch(value), acks=acks), 9)
        for value in (b"a", LARGE, b"c", LARGE, b"e")
    ]
    held.wait()
    with WireClient(broker.address) as other:
        assert produce(other, topic, batch(b"other")).base_offset == 1
    held.let_go()
    held.let_go()
    assert [answered(client, each) for each in sent] == [[(0, n)] for n in (0, 2, 3, 4, 5)]
    assert [values(fetch(client, topic, n))[0] for n in range(6)] == [
        b"a", b"other", LARGE, b"c", LARGE, b"e"]


@pytest.mark.parametrize(("acks", "flush_messages"), [(1, 2**63 - 1), (1, 1), (-1, 2**63 - 1)])
def test_every_partition_of_a_request_may_need_a_thread(
    client: WireClient, held: HeldWorkers, broker: RunningBroker, acks: int, flush_messages: int
) -> None:
    topic = create(client, f"partitions{acks}-{flush_messages}", 2, compression_type="gzip",
                   flush_messages=flush_messages)
    for large in ((True, True), (True, False), (False, True)):
        first, second = (batch(LARGE if each else SMALL) for each in large)
        sent = client.send(two_partitions(topic, first, second, acks=acks), 9)
        for _ in range(sum(large)):
            held.wait()
            # The earlier appends are flushed now, but the reply has to wait for the thread.
            wait_for_flushes(broker)
            held.let_go()
        assert [code for code, _ in answered(client, sent)] == [0, 0]


def wait_for_flushes(broker: RunningBroker) -> None:
    """Wait until no flush is wanted or running."""
    flusher = broker.server.flusher
    until(
        lambda: not broker.call(lambda: flusher.waiting or flusher.running or flusher.scheduled),
        "nothing is left to flush",
    )


def test_what_was_sent_without_acks_is_appended_though_the_client_has_gone(
    broker: RunningBroker, client: WireClient, held: HeldWorkers
) -> None:
    topic = create(client, "gone", compression_type="gzip")
    with WireClient(broker.address) as gone:
        for value in (LARGE, b"b", LARGE, b"d"):
            gone.send(produce_request(topic, batch(value), acks=0), 9)
    held.let_go()
    held.let_go()
    until(lambda: fetch(client, topic).high_watermark >= 4, "the records are committed")
    assert values(fetch(client, topic, 3)) == [b"d"]


def test_a_damaged_batch_is_refused_from_there_too(client: WireClient) -> None:
    topic = create(client, "damaged", 2, compression_type="gzip")
    bad = bytearray(batch(LARGE))
    bad[-1] ^= 1
    sent = client.send(two_partitions(topic, bytes(bad), batch(LARGE)), 9)
    assert answered(client, sent) == [(ErrorCode.CORRUPT_MESSAGE, -1), (0, 0)]


def test_a_damaged_batch_without_acks_ends_the_connection(
    broker: RunningBroker, client: WireClient
) -> None:
    topic = create(client, "damaged-0", compression_type="gzip")
    bad = bytearray(batch(LARGE))
    bad[-1] ^= 1
    with WireClient(broker.address) as other:
        other.send(produce_request(topic, bytes(bad), acks=0), 9)
        assert other.is_closed()


def test_a_topic_may_go_while_its_batch_is_there(client: WireClient, held: HeldWorkers) -> None:
    topic = create(client, "deleted", compression_type="gzip")
    with WireClient(client.socket.getpeername()) as other:
        sent = other.send(produce_request(topic, batch(LARGE)), 9)
        held.wait()
        delete(client, topic)
        held.let_go()
        assert answered(other, sent) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_bomb_is_left_to_a_thread(client: WireClient, held: HeldWorkers) -> None:
    """However small the compressed batch is, the loop stops at its limit of decompressed bytes."""
    topic = create(client, "bomb")
    sent = client.send(
        produce_request(topic, batch(b"\x00" * 30_000_000, codec=Codec.ZSTD)), 9)
    held.let_go()
    assert answered(client, sent) == [(0, 0)]


def test_transactions_are_checked_when_the_batch_comes_back(
    client: WireClient, held: HeldWorkers, broker: RunningBroker
) -> None:
    topic = create(client, "transactional", compression_type="gzip")
    transactions.find(client, "tx")
    producer_id, epoch = transactions.init(client, "tx")
    fields = {"transactional": True, "producer_id": producer_id, "producer_epoch": epoch,
              "base_sequence": 0}
    sent = client.send(
        produce_request(topic, batch(LARGE, **fields), transactional_id="tx"), 12)
    held.wait()
    with WireClient(broker.address) as other:           # TransactionGate checks another batch
        refused = other.call(
            produce_request(topic, batch(LARGE[:50], **{**fields, "producer_id": 999})), 9)
        assert refused.responses[0].partition_responses[0].error_code != 0
    held.let_go()
    assert answered(client, sent) == [(0, 0)]
    found = stored(client, topic)[0]
    assert (found.codec, found.transactional, found.producer_id) == (Codec.GZIP, True, producer_id)


def test_a_stopped_broker_waits_for_no_queue(data: Path) -> None:
    broker = RunningBroker(data)
    with WireClient(broker.address) as one:
        topic = create(one, "stop", compression_type="gzip", compression_gzip_level=9)
        one.send(produce_request(topic, batch(LARGE)), 9)
        broker.stop()
    with RunningBroker(data) as again, WireClient(again.address) as one:
        end = fetch(one, topic).high_watermark
        assert end in (0, 1)
        assert produce(one, topic, batch(SMALL)).base_offset == end


def test_the_work_of_the_loop_is_bounded_by_codec_and_level() -> None:
    def room(**configs: object) -> int:
        texts = {name.replace("_", "."): str(value) for name, value in configs.items()}
        return room_on_loop(log_config(texts, {}))

    assert room() == room(compression_type="uncompressed") == 500_000
    assert room(compression_type="gzip") == 25_000
    slow = [room(compression_type=c, **{f"compression_{c}_level": n})
            for c, n in [("gzip", 9), ("lz4", 12), ("zstd", 6), ("zstd", 22)]]
    fast = [room(compression_type=c) for c in ("gzip", "lz4", "zstd", "zstd")]
    assert all(a < b for a, b in zip(slow, fast, strict=True))
    assert room(compression_type="snappy") == room(compression_type="lz4") > 150_000
