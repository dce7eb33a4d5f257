"""Recompression with a topic's codec: what it changes in a batch, and when a batch is refused."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from kafka.record import MemoryRecords

from ottla.wire.batch import BatchLimits, BatchView, TimestampType, check, recompress
from ottla.wire.checksum import crc32c_of
from ottla.wire.compression import Codec, compress
from ottla.wire.errors import InvalidRecord, MessageTooLarge
from ottla.wire.legacy import codec_of, down_convert
from ottla.wire.records import Record, build_batch

RECORDS = [
    Record(-1, 1_000 + (n * 7) % 5, b"key %d" % (n % 3) if n % 4 else None,
           b"value %d" % n * 20 if n % 5 else None, (("h", b"%d" % n), ("empty", None)))
    for n in range(200)
]
FIELDS = (
    "base_offset", "last_offset", "leader_epoch", "timestamp_type", "transactional", "control",
    "delete_horizon_ms", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch",
    "base_sequence", "record_count",
)


def stored(batch: bytes, **limits: object) -> BatchView:
    """The batch as a topic with these limits stores it."""
    made = BatchLimits(now_ms=2_000, **limits)  # type: ignore[arg-type]
    checked = bytearray(batch)
    check(checked, made)
    return BatchView(recompress(checked, made))


@pytest.mark.parametrize("wanted", list(Codec))
@pytest.mark.parametrize("sent", list(Codec))
def test_only_the_codec_changes(sent: Codec, wanted: Codec) -> None:
    batch = build_batch(
        RECORDS, codec=sent, producer_id=4711, producer_epoch=3, base_sequence=2**31 - 50,
        transactional=True, leader_epoch=7)
    before, after = BatchView(batch), stored(batch, codec=wanted)
    assert (after.codec, after.crc_holds()) == (wanted, True)
    assert after.records() == before.records()
    for name in FIELDS:
        assert getattr(after, name) == getattr(before, name), name
    assert (bytes(after.data) == batch) == (sent == wanted)
    theirs = [r for each in MemoryRecords(bytes(after.data)) for r in each]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [
        (n, r.timestamp, r.key, r.value) for n, r in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_producers_bytes_stay_where_the_topic_does_not_mind(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert bytes(stored(batch).data) == batch


def test_log_append_time_goes_into_the_header_of_the_new_batch() -> None:
    batch = build_batch(RECORDS, codec=Codec.GZIP)
    after = stored(batch, codec=int(Codec.LZ4), log_append_time=True)
    assert (after.timestamp_type, after.max_timestamp, after.crc_holds()) == (
        TimestampType.LOG_APPEND_TIME, 2_000, True)
    assert {r.timestamp for r in after.records()} == {2_000}
    assert after.base_timestamp == BatchView(batch).base_timestamp


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.ZSTD, 1, 19), (Codec.LZ4, 9, 12)]
)
def test_a_higher_level_makes_less_of_it(codec: Codec, low: int, high: int) -> None:
    noise = [Record(-1, 1, None, b"%d %x" % (n * n, n * 7919)) for n in range(3000)]
    sizes = [stored(build_batch(noise), codec=int(codec), level=at).size for at in (low, high)]
    assert sizes[1] < sizes[0]


def test_a_batch_is_bounded_as_it_is_sent_and_as_it_is_stored() -> None:
    batch = build_batch(RECORDS)
    small = stored(batch, codec=int(Codec.GZIP)).size
    with pytest.raises(MessageTooLarge, match=f"a batch has {len(batch)} bytes"):
        stored(batch, codec=int(Codec.GZIP), batch_size_max=len(batch) - 1)
    packed = build_batch(RECORDS, codec=Codec.GZIP)
    for codec in (Codec.NONE, Codec.SNAPPY):
        size = stored(packed, codec=int(codec)).size
        assert stored(packed, codec=int(codec), batch_size_max=size).size == size > small
        with pytest.raises(MessageTooLarge, match=f"takes {size} bytes with the topic's"):
            stored(packed, codec=int(codec), batch_size_max=size - 1)


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_compressed_record_is_bounded_decompressed(codec: Codec) -> None:
    """As in Apache Kafka 4.4, the error is INVALID_RECORD, and uncompressed batches have no such
    limit."""
    records = [Record(-1, 1, None, b"x" * size) for size in (10, 500, 20)]
    body = 500 + 7          # attributes, two deltas, two lengths (one of 2 bytes), header count
    assert stored(build_batch(records, codec=codec), record_size_max=body).record_count == 3
    with pytest.raises(InvalidRecord, match=r"record 1 of 3: .*max\.decompressed"):
        stored(build_batch(records, codec=codec), record_size_max=body - 1)
    assert stored(build_batch(records), record_size_max=1).record_count == 3


def test_a_bomb_stops_at_what_its_records_may_take() -> None:
    header = bytearray(build_batch([Record(-1, 1, None, b"")]))[:61]
    payload = gzip.compress(b"\x00" * (50 << 20))
    header[8:12] = (49 + len(payload)).to_bytes(4, "big")
    header[22] = Codec.GZIP
    header[17:21] = crc32c_of(bytes(header[21:]) + payload).to_bytes(4, "big")
    tracemalloc.start()
    with pytest.raises(InvalidRecord, match="more than the 100005 bytes"):
        stored(bytes(header) + payload, record_size_max=100_000)
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_the_codec_of_a_message_set_is_that_of_its_message(magic: int, codec: Codec) -> None:
    assert codec_of(down_convert(build_batch(RECORDS, codec=codec), magic)) == codec
    assert codec_of(b"") == 0


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_compression_levels_that_kafka_allows_are_taken(codec: Codec) -> None:
    bounds = {Codec.GZIP: (-1, 1, 9), Codec.LZ4: (1, 9, 17), Codec.ZSTD: (-131072, -1, 1, 22)}
    for level in bounds.get(codec, (None,)):
        assert compress(codec, b"abc" * 100, level)
