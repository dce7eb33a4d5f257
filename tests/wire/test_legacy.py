"""Message formats v0 and v1 agree with kafka-python's builder and reader."""

import struct
import zlib

import kafka.codec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.wire.batch import BatchLimits, BatchView, TimestampType, check
from ottla.wire.compression import Codec, compress
from ottla.wire.errors import CorruptMessage, ErrorCode, InvalidRecord, ProtocolError
from ottla.wire.legacy import down_convert, read_message_set, up_convert
from ottla.wire.legacy_lz4 import with_right_checksum, with_wrong_checksum, xxh32
from ottla.wire.records import Record, build_batch, build_marker, read_records

NOW = 1_700_000_000_000
FORMATS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
BYTES = st.none() | st.binary(max_size=100)
RECORDS = st.lists(
    st.builds(Record, timestamp=st.integers(0, 2**48), key=BYTES, value=BYTES),
    min_size=1,
    max_size=10,
)


class XxHash:
    """Stands for the package xxhash, which only kafka-python would need."""

    def __init__(self, data):
        self.value = xxh32(bytes(data))

    def digest(self):
        return self.value.to_bytes(4, "big")

    xxh32 = classmethod(lambda cls, data: cls(data))


@pytest.fixture(autouse=True, scope="module")
def xxhash_for_kafka_python():
    kafka.codec.xxhash, before = XxHash, kafka.codec.xxhash
    yield
    kafka.codec.xxhash = before


def message(magic, key, value, *, offset=0, attributes=0, timestamp=NOW, magic_byte=None):
    """One message exactly as the format describes it, with a valid checksum."""
    body = struct.pack(">bb", magic if magic_byte is None else magic_byte, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return raw(body, offset)


def raw(body, offset=0):
    """A message with this body after its checksum."""
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(magic, inner, codec=Codec.GZIP, **options):
    packed = compress(codec, inner)
    if codec == Codec.LZ4 and magic == 0:
        packed = with_wrong_checksum(packed)
    attributes = options.pop("attributes", 0) | codec
    return message(magic, None, packed, attributes=attributes, **options)


def refusal(data):
    with pytest.raises(ProtocolError) as raised:
        up_convert(data)
    return raised.value.code


def without_offsets(records):
    return [(record.timestamp, record.key, record.value) for record in records]


@FORMATS
@CODECS
@settings(max_examples=40)
@given(records=RECORDS)
def test_what_kafka_python_produces_becomes_one_batch(magic, codec, records):
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value)
    batch = up_convert(bytes(builder.build()))
    found = read_records(batch)
    assert BatchView(batch).codec == codec
    assert [record.offset for record in found] == list(range(len(records)))
    if magic == 0:
        assert {record.timestamp for record in found} == {-1}
        records = [Record(0, -1, record.key, record.value) for record in records]
    assert without_offsets(found) == without_offsets(records)
    check(bytearray(batch), BatchLimits(now_ms=2**48))


@FORMATS
@CODECS
@settings(max_examples=40)
@given(records=RECORDS, base_offset=st.integers(0, 2**40), gap=st.integers(0, 3))
def test_kafka_python_reads_what_is_converted_down(magic, codec, records, base_offset, gap):
    for place, record in enumerate(records):
        record.offset = base_offset + place * (gap + 1)
    stored = build_batch(
        records, base_offset=base_offset, codec=codec, last_offset=records[-1].offset + gap
    )
    converted = down_convert(stored, magic)
    reader, found = MemoryRecords(converted), []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        found += batch
    assert all(record.validate_crc() for record in found)
    assert [record.offset for record in found] == [record.offset for record in records]
    assert [record.key for record in found] == [record.key for record in records]
    assert [record.value for record in found] == [record.value for record in records]
    if magic:
        assert [record.timestamp for record in found] == [record.timestamp for record in records]
    again = read_message_set(converted)
    assert [(record.offset, record.key, record.value) for record in again] == [
        (record.offset, record.key, record.value) for record in records
    ]


@FORMATS
@CODECS
def test_every_truncation_ends_at_a_whole_message_or_is_found(magic, codec):
    records = [Record(offset, NOW, b"key", b"value" * 9) for offset in range(5, 8)]
    whole = down_convert(build_batch(records, base_offset=5, codec=codec), magic)
    message_size = len(whole) if codec else len(whole) // 3
    for size in range(len(whole)):
        complete = size // message_size
        found = read_message_set(whole[:size])
        assert [record.offset for record in found] == [5, 6, 7][:complete]
        if not complete:
            assert up_convert(whole[:size]) == b""


@FORMATS
@CODECS
def test_every_flipped_bit_is_found(magic, codec):
    records = [Record(offset, NOW, b"key", b"value") for offset in range(5 if codec else 1)]
    whole = down_convert(build_batch(records, codec=codec), magic)
    for bit in range(8 * 8, 8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            converted = bytearray(up_convert(damaged))
            assert converted in (b"", damaged), "as if cut off, or as if v2"
            check(converted or bytearray(damaged), BatchLimits(now_ms=NOW))
        except (CorruptMessage, InvalidRecord):
            continue
        raise AssertionError(f"bit {bit} went unnoticed")


@given(data=st.binary(max_size=200), magic=st.integers(0, 1))
def test_garbage_raises_declared_errors_only(data, magic):
    for form in (data, raw(bytes([magic]) + data)):
        try:
            up_convert(form)
        except ProtocolError:
            pass


def test_offsets_inside_a_set_are_absolute_in_v0_and_relative_in_v1():
    inner = b"".join(message(0, b"k", None, offset=offset) for offset in (7, 9))
    assert [r.offset for r in read_message_set(wrapper(0, inner, offset=9))] == [7, 9]
    inner = b"".join(message(1, b"k", None, offset=offset) for offset in (0, 2))
    assert [r.offset for r in read_message_set(wrapper(1, inner, offset=9))] == [7, 9]


def test_a_fetched_set_may_mix_what_a_produced_one_may_not():
    packed = wrapper(1, message(1, b"b", None) + message(1, b"c", None, offset=1), offset=5)
    data = (
        message(1, b"a", None, offset=3) + packed + message(0, b"d", None, offset=6) + packed[:-1]
    )
    found = [(record.offset, record.key) for record in read_message_set(data)]
    assert found == [(3, b"a"), (4, b"b"), (5, b"c"), (6, b"d")]


def test_wrong_offsets_of_a_producer_do_not_matter():
    inner = b"".join(message(1, b"k", None, offset=offset) for offset in (5, 5, 1))
    found = read_records(up_convert(wrapper(1, inner, offset=77)))
    assert [record.offset for record in found] == [0, 1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_log_append_time_is_kept_both_ways(codec):
    stored = build_batch(
        [Record(timestamp=5), Record(timestamp=6)],
        codec=codec,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=NOW,
    )
    converted = down_convert(stored, 1)
    reference = MemoryRecords(converted).next_batch()
    assert reference.timestamp_type == 1
    assert [record.timestamp for record in read_message_set(converted)] == [NOW, NOW]
    batch = bytearray(up_convert(converted))
    assert BatchView(batch).timestamp_type == TimestampType.LOG_APPEND_TIME
    with pytest.raises(ProtocolError) as raised:
        check(batch, BatchLimits(now_ms=NOW, log_append_time=True))
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP


def test_a_compressed_set_takes_the_time_of_its_wrapper_where_the_broker_set_it():
    inner = message(1, b"k", None, timestamp=3)
    for attributes, timestamp in ((8, NOW), (0, 3)):
        found = read_message_set(wrapper(1, inner, attributes=attributes))
        assert found[0].timestamp == timestamp


def test_the_codec_may_be_another_than_the_producers():
    data = wrapper(1, message(1, b"k", b"v"))
    for codec in Codec:
        batch = up_convert(data, codec=codec)
        assert BatchView(batch).codec == codec
        assert without_offsets(read_records(batch)) == [(NOW, b"k", b"v")]


def test_a_record_batch_in_an_old_request_passes_as_it_is():
    batch = build_batch([Record(value=b"v")])
    assert up_convert(memoryview(batch)) == batch


PLAIN = message(1, b"k", b"v")
REFUSED = {
    "wrong checksum": (PLAIN[:12] + bytes(4) + PLAIN[16:], ErrorCode.CORRUPT_MESSAGE),
    "size 13": (struct.pack(">qi", 0, 13) + PLAIN, ErrorCode.CORRUPT_MESSAGE),
    "size -1": (struct.pack(">qi", 0, -1) + PLAIN, ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (message(1, b"k", b"v", magic_byte=3), ErrorCode.CORRUPT_MESSAGE),
    "magic -1": (message(1, b"k", b"v", magic_byte=-1), ErrorCode.CORRUPT_MESSAGE),
    "magic 2 behind v1": (
        PLAIN + message(1, b"k", b"v", magic_byte=2), ErrorCode.CORRUPT_MESSAGE,
    ),
    "v0 and v1": (PLAIN + message(0, b"k", b"v"), ErrorCode.INVALID_RECORD),
    "v1 without timestamp": (raw(b"\1\0" + bytes(8)), ErrorCode.INVALID_RECORD),
    "key length -2": (raw(b"\0\0" + struct.pack(">ii", -2, -1)), ErrorCode.INVALID_RECORD),
    "key past the end": (raw(b"\0\0" + struct.pack(">ii", 5, -1)), ErrorCode.INVALID_RECORD),
    "no value length": (raw(b"\0\0" + struct.pack(">iI", 4, 0)), ErrorCode.INVALID_RECORD),
    "value past the end": (raw(b"\0\0" + struct.pack(">ii", -1, 5)), ErrorCode.INVALID_RECORD),
    "bytes behind the value": (raw(b"\0\0" + b"\xff" * 8 + b"x"), ErrorCode.INVALID_RECORD),
    "two compressed": (wrapper(1, PLAIN) * 2, ErrorCode.INVALID_RECORD),
    "compressed behind plain": (PLAIN + wrapper(1, PLAIN), ErrorCode.INVALID_RECORD),
    "plain behind compressed": (wrapper(1, PLAIN) + PLAIN, ErrorCode.INVALID_RECORD),
    "compressed null": (message(1, None, None, attributes=1), ErrorCode.INVALID_RECORD),
    "compressed nothing": (wrapper(1, b""), ErrorCode.INVALID_RECORD),
    "compressed twice": (wrapper(1, wrapper(1, PLAIN)), ErrorCode.INVALID_RECORD),
    "v0 inside v1": (wrapper(1, message(0, b"k", b"v")), ErrorCode.INVALID_RECORD),
    "cut off inside": (wrapper(1, PLAIN[:-1]), ErrorCode.INVALID_RECORD),
    "wrong checksum inside": (wrapper(1, PLAIN[:-1] + b"w"), ErrorCode.CORRUPT_MESSAGE),
    "gzip garbage": (message(1, None, b"garbage", attributes=1), ErrorCode.CORRUPT_MESSAGE),
    "lz4 garbage": (message(0, None, b"garbage", attributes=3), ErrorCode.CORRUPT_MESSAGE),
    "lz4 cut off": (
        message(0, None, b"\x04\x22\x4d\x18\x6c" + bytes(6), attributes=3),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "zstd": (message(1, None, b"x", attributes=4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}


def test_the_plain_message_that_the_false_ones_are_made_of_passes():
    assert len(read_records(up_convert(PLAIN + PLAIN))) == 2
    assert len(read_records(up_convert(wrapper(1, PLAIN + PLAIN)))) == 2


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_message_set_is_refused(case):
    data, code = REFUSED[case]
    assert refusal(data) == code


@pytest.mark.parametrize("size", range(1, 9))
def test_a_value_past_the_end_is_not_read(size):
    with pytest.raises(InvalidRecord, match=f"value claims {size} bytes, but 0 remain"):
        up_convert(raw(b"\0\0" + struct.pack(">ii", -1, size)))


def test_a_bomb_is_refused_before_it_unfolds():
    data = wrapper(1, message(1, None, bytes(1_000_000)))
    assert len(up_convert(data, size_max=1_100_000)) < 10_000
    with pytest.raises(InvalidRecord, match="more than"):
        up_convert(data, size_max=900_000)


def test_records_before_the_wanted_offset_are_left_out_but_inside_compressed_sets():
    records = [Record(value=bytes([offset])) for offset in range(4)]
    plain, packed = build_batch(records), build_batch(records, base_offset=4, codec=Codec.GZIP)
    for first in (0, 2, 5):
        converted = down_convert(plain + packed, 1, first_offset=first)
        offsets = []
        reader = MemoryRecords(converted)
        while reader.has_next():
            offsets += [record.offset for record in reader.next_batch()]
        assert offsets == [*range(first, 4), *range(4, 8)]


def test_markers_empty_batches_and_a_cut_off_batch_are_not_converted():
    marker = build_marker(1, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW)
    empty = build_batch([], last_offset=4, codec=Codec.GZIP)
    data = build_batch([Record(value=b"v")], base_offset=5)
    assert down_convert(marker + empty, 1) == b""
    converted = down_convert(marker + data + empty + data[:-1], 0)
    assert [record.offset for record in read_message_set(converted)] == [5]


def test_headers_and_producers_are_lost_on_the_way_down():
    stored = build_batch(
        [Record(0, NOW, b"k", b"v", [("h", b"1")])],
        producer_id=3,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    assert read_message_set(down_convert(stored, 1)) == [Record(0, NOW, b"k", b"v")]


@FORMATS
def test_zstd_which_these_clients_cannot_read_becomes_gzip(magic):
    stored = build_batch([Record(value=b"v" * 100)], codec=Codec.ZSTD)
    converted = down_convert(stored, magic)
    assert converted[17] == Codec.GZIP
    assert [record.value for record in read_message_set(converted)] == [b"v" * 100]
    with pytest.raises(ValueError, match="v2"):
        down_convert(stored, 2)


def test_a_compressed_batch_whose_records_are_all_below_the_wanted_offset_is_left_out():
    stored = build_batch([Record(offset=n, value=b"v") for n in range(3)], codec=Codec.GZIP)
    assert read_message_set(down_convert(stored, 1, first_offset=2))[0].offset == 0
    assert down_convert(stored, 1, first_offset=3) == b""


def test_no_batch_is_begun_once_there_is_enough():
    stored = build_batch([Record(value=b"v" * 100)]) * 5
    one = len(down_convert(stored, 1)) // 5
    for enough, count in ((0, 0), (1, 1), (one, 1), (one + 1, 2), (5 * one, 5), (9 * one, 5)):
        assert len(down_convert(stored, 1, enough=enough)) == count * one


def test_lz4_of_v0_carries_the_wrong_header_checksum_and_v1_the_right_one():
    stored = build_batch([Record(value=b"v" * 100)], codec=Codec.LZ4)
    for magic, header in ((0, 26), (1, 34)):
        frame = down_convert(stored, magic)[header:]
        right = with_right_checksum(frame)
        assert (frame == right) == (magic == 1)
        assert with_wrong_checksum(right) == (frame if magic == 0 else with_wrong_checksum(frame))


def test_the_shortest_header_of_an_lz4_frame_has_seven_bytes():
    frame = compress(Codec.LZ4, b"v")
    assert with_right_checksum(frame[:7]) == frame[:7] != with_wrong_checksum(frame[:7])
    for size in range(7):
        with pytest.raises(CorruptMessage):
            with_right_checksum(frame[:size])


def test_lz4_of_v0_is_read_with_either_checksum():
    inner = message(0, b"k", b"v" * 50)
    for packed in (compress(Codec.LZ4, inner), with_wrong_checksum(compress(Codec.LZ4, inner))):
        found = read_message_set(message(0, None, packed, attributes=3))
        assert found[0].value == b"v" * 50


@pytest.mark.parametrize(
    "data, value",
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"abcd", 0xA3643705),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_the_known_answers_of_xxh32(data, value):
    assert xxh32(data) == value
