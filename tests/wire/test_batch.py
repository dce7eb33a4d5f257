"""The rules for a producer's batch, and the error code for breaking each of them.

The codes are those of Apache Kafka 4.3.1, except in two cases: for an unknown codec and for damaged
compressed data, Apache Kafka answers UNKNOWN_SERVER_ERROR, and Ottla a more precise code.
"""

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from ottla.wire.batch import BatchLimits, BatchView, TimestampType, batches, check
from ottla.wire.checksum import crc32c_of
from ottla.wire.compression import Codec, compress
from ottla.wire.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    ProtocolError,
)
from ottla.wire.records import Record, build_batch

NOW = 1_700_000_000_000
HOUR = 3_600_000
INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
CODECS = pytest.mark.parametrize("codec", list(Codec))


def batch_of(
    count=3, codec=0, key=b"k", timestamp=NOW, pid=-1, epoch=-1, sequence=-1, transactional=False
):
    """The batch that kafka-python makes of `count` records, which are a millisecond apart."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, pid, epoch, sequence, 1 << 20)
    for offset in range(count):
        builder.append(offset, timestamp + offset, key, b"value", [("h", b"1"), ("n", None)])
    return bytearray(builder.build())


def sealed(batch):
    """The batch with the right length and checksum for its bytes."""
    batch = bytearray(batch)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c_of(batch[21:]).to_bytes(4, "big")
    return batch


def patched(batch, at, value, size):
    """The batch with a changed header field, and a valid checksum."""
    batch[at : at + size] = value.to_bytes(size, "big", signed=True)
    return sealed(batch)


def holding(records, count, codec=0):
    """A batch with these bytes in the place of its records."""
    batch = bytearray(batch_of(count)[:61])
    batch[22] |= codec
    return sealed(batch + (compress(codec, records) if codec <= 4 else records))


def record(body, length=None):
    """One record: its length, doubled by zigzag encoding (one byte), and its body."""
    return bytes([2 * (len(body) if length is None else length)]) + body


def refusal(batch, **limits):
    """The error code with which the batch is refused. Asserts that its bytes do not change."""
    before = bytes(batch)
    with pytest.raises(ProtocolError) as raised:
        check(batch, BatchLimits(now_ms=NOW, **limits))
    assert bytes(batch) == before
    assert raised.value.message
    return raised.value.code


# attributes, timestamp delta, offset delta, key length, value length, header count
PLAIN = bytes([0, 0, 0, 1, 1, 0])


@CODECS
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_batch_of_a_stock_client_passes_unchanged(codec, count):
    batch = batch_of(count, codec)
    before, limits = bytes(batch), BatchLimits(now_ms=NOW)
    check(batch, limits)
    assert bytes(batch) == before
    assert limits.max_timestamp == NOW + count - 1
    assert limits.offset_delta_of_max_timestamp == count - 1


@CODECS
def test_every_flipped_bit_behind_the_base_offset_is_found(codec):
    whole = bytes(batch_of(codec=codec))
    for bit in range(8 * 8, 8 * len(whole)):
        if 12 <= bit // 8 < 16:
            continue  # the broker sets the leader epoch
        batch = bytearray(whole)
        batch[bit // 8] ^= 1 << bit % 8
        assert refusal(batch) in (CORRUPT, INVALID), bit


def test_every_truncation_and_every_byte_too_much_is_found():
    whole = batch_of()
    for size in range(len(whole)):
        assert refusal(whole[:size]) == INVALID
    assert refusal(whole + b"\0") == INVALID


def test_the_first_producer_id_may_write_transactions():
    for transactional in (False, True):
        batch = batch_of(pid=0, epoch=0, sequence=0, transactional=transactional)
        check(batch, BatchLimits(now_ms=NOW))


def test_a_true_checksum_does_not_excuse_a_false_byte():
    """Each byte of the records gets each value. The batch is then refused, or is accepted as a
    valid batch with other contents."""
    whole = batch_of(2)
    for at in range(61, len(whole)):
        for value in range(256):
            batch = bytearray(whole)
            batch[at] = value
            batch = sealed(batch)
            try:
                check(batch, BatchLimits(now_ms=NOW))
            except ProtocolError as error:
                assert error.code in (INVALID, ErrorCode.INVALID_TIMESTAMP)
            else:
                assert len(BatchView(batch).records()) == 2


FRAMES = {
    "no batch": (b"", INVALID),
    "two batches": (batch_of() + batch_of(), INVALID),
    "a cut-off batch": (batch_of()[:-1], INVALID),
    "length -1": (batch_of()[:8] + b"\xff" * 4 + batch_of()[12:], CORRUPT),
    "length 0": (batch_of()[:8] + bytes(4) + batch_of()[12:], CORRUPT),
    "length 2^31-1": (batch_of()[:8] + b"\x7f\xff\xff\xff" + batch_of()[12:], INVALID),
    "half a header": (sealed(batch_of()[:40]), CORRUPT),
    "length of no message": (patched(bytearray(25), 8, 13, 4), CORRUPT),
    "length of the smallest message": (patched(bytearray(26), 8, 14, 4), INVALID),
    "magic 0": (patched(batch_of(), 16, 0, 1), INVALID),
    "magic 1": (patched(batch_of(), 16, 1, 1), INVALID),
    "magic 3": (patched(batch_of(), 16, 3, 1), CORRUPT),
    "magic -1": (patched(batch_of(), 16, -1, 1), CORRUPT),
    "wrong checksum": (batch_of()[:17] + bytes(4) + batch_of()[21:], CORRUPT),
    "base offset 1": (patched(batch_of(), 0, 1, 8), INVALID),
}
HEADERS = {
    "count above the records": (patched(patched(batch_of(), 57, 4, 4), 23, 3, 4), INVALID),
    "count below the records": (patched(patched(batch_of(), 57, 2, 4), 23, 1, 4), INVALID),
    "count 0": (patched(patched(batch_of(), 57, 0, 4), 23, -1, 4), INVALID),
    "count -1": (patched(batch_of(), 57, -1, 4), INVALID),
    "count 2^31-1": (patched(patched(batch_of(), 57, 2**31 - 1, 4), 23, 2**31 - 2, 4), INVALID),
    "last offset delta": (patched(batch_of(), 23, 5, 4), INVALID),
    "control batch": (patched(batch_of(), 21, 0x20, 2), INVALID),
    "delete horizon": (patched(batch_of(), 21, 0x40, 2), INVALID),
    "pid without sequence": (batch_of(pid=5, epoch=0), INVALID),
    "transactional, no pid": (batch_of(transactional=True), INVALID),
    "codec 5": (patched(batch_of(), 21, 5, 2), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (patched(batch_of(), 21, 7, 2), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "gzip garbage": (patched(batch_of(), 21, 1, 2), CORRUPT),
    "snappy garbage": (patched(batch_of(), 21, 2, 2), CORRUPT),
    "lz4 garbage": (patched(batch_of(), 21, 3, 2), CORRUPT),
    "zstd garbage": (patched(batch_of(), 21, 4, 2), CORRUPT),
}


@pytest.mark.parametrize("case", FRAMES)
def test_what_is_not_one_whole_batch_is_refused(case):
    batch, code = FRAMES[case]
    assert refusal(bytearray(batch)) == code


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_contradicts_itself_or_its_records_is_refused(case):
    batch, code = HEADERS[case]
    assert refusal(batch) == code


RECORDS = {
    "offset delta 1 first": record(bytes([0, 0, 2, 1, 1, 0])),
    "offset delta -1": record(bytes([0, 0, 1, 1, 1, 0])),
    "record length -1": bytes([1]) + PLAIN,
    "record length 0": bytes([0]),
    "record length too short": record(PLAIN, len(PLAIN) - 1) + b"\0",
    "record length too long": record(PLAIN, len(PLAIN) + 1),
    "byte behind the record": record(PLAIN) + b"\0",
    "byte behind inside the record": record(PLAIN + b"\0"),
    "second record": record(PLAIN) + record(bytes([0, 0, 2, 1, 1, 0])),
    "key length -2": record(bytes([0, 0, 0, 3, 1, 0])),
    "key length past the end": record(bytes([0, 0, 0, 60, 1, 0])),
    "value length -2": record(bytes([0, 0, 0, 1, 3, 0])),
    "value length past the end": record(bytes([0, 0, 0, 1, 60, 0])),
    "header count -1": record(bytes([0, 0, 0, 1, 1, 1])),
    "header count too high": record(bytes([0, 0, 0, 1, 1, 60])),
    "header key null": record(bytes([0, 0, 0, 1, 1, 2, 1, 0])),
    "header value length -2": record(bytes([0, 0, 0, 1, 1, 2, 0, 3])),
    "header value past the end": record(bytes([0, 0, 0, 1, 1, 2, 0, 60])),
    "length varint of 6 bytes": b"\x8c\x80\x80\x80\x80\x00" + PLAIN,
    "length varint above 32 bits": b"\x8c\x80\x80\x80\x70" + PLAIN,
    "offset varint of 6 bytes": record(b"\0\0\x80\x80\x80\x80\x80\0\1\1\0"),
    "timestamp varint of 11 bytes": record(b"\0" + b"\x80" * 10 + b"\0\0\1\1\0"),
    "timestamp varint above 64 bits": record(b"\0" + b"\x80" * 9 + b"\2\0\1\1\0"),
    "ends inside a varint": record(b"\0\x80"),
    "nothing": b"",
}


def test_the_plain_record_that_the_false_ones_are_made_of_passes():
    check(holding(record(PLAIN), 1), BatchLimits(now_ms=NOW))


@CODECS
@pytest.mark.parametrize("case", RECORDS)
def test_records_that_are_not_what_they_say_are_refused_with_every_codec(case, codec):
    assert refusal(holding(RECORDS[case], 1, codec)) == INVALID


@CODECS
def test_a_batch_above_the_topics_limit_is_too_large(codec):
    batch = batch_of(codec=codec)
    check(bytearray(batch), BatchLimits(now_ms=NOW, batch_size_max=len(batch)))
    assert refusal(batch, batch_size_max=len(batch) - 1) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_bomb_is_refused_before_it_unfolds(codec):
    bomb = holding(bytes(8_000_000), 1, codec)
    assert len(bomb) < 500_000
    assert refusal(bomb, decompressed_size_max=1_000_000) == INVALID


def test_zstd_is_refused_where_the_request_is_too_old_for_it():
    batch = batch_of(codec=4)
    assert refusal(batch, zstd=False) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@CODECS
def test_a_compacted_topic_refuses_a_record_without_key(codec):
    check(batch_of(codec=codec, key=b""), BatchLimits(now_ms=NOW, compacted=True))
    assert refusal(batch_of(codec=codec, key=None), compacted=True) == INVALID


@CODECS
def test_a_refused_batch_names_each_record_that_is_to_blame(codec):
    keys = [b"a", None, b"b", None]
    records = [Record(offset=n, timestamp=NOW, key=k, value=b"") for n, k in enumerate(keys)]
    with pytest.raises(InvalidRecord) as refused:
        check(bytearray(build_batch(records, codec=codec)), BatchLimits(now_ms=NOW, compacted=True))
    assert [index for index, _ in refused.value.record_errors] == [1, 3]
    late = [Record(offset=n, timestamp=NOW + 2 * HOUR, key=b"k", value=b"") for n in range(2)]
    with pytest.raises(InvalidTimestamp) as refused:
        check(bytearray(build_batch(late, codec=codec)), BatchLimits(now_ms=NOW))
    assert [index for index, _ in refused.value.record_errors] == [0, 1]


TIMES = [(NOW + HOUR, True), (NOW + HOUR + 1, False), (2**62, False), (0, True), (-5, False)]


@CODECS
@pytest.mark.parametrize("timestamp, allowed", TIMES)
def test_timestamps_lie_within_what_the_topic_allows(codec, timestamp, allowed):
    batch = batch_of(1, codec, timestamp=timestamp)
    if allowed:
        check(batch, BatchLimits(now_ms=NOW))
    else:
        assert refusal(batch) == ErrorCode.INVALID_TIMESTAMP


def test_the_lower_bound_of_timestamps_is_a_setting_and_spares_records_without_one():
    limits = {"timestamp_before_ms_max": 1000}
    check(batch_of(1, timestamp=NOW - 1000), BatchLimits(now_ms=NOW, **limits))
    assert refusal(batch_of(1, timestamp=NOW - 1001), **limits) == ErrorCode.INVALID_TIMESTAMP
    batch, found = batch_of(1, timestamp=-1), BatchLimits(now_ms=NOW, **limits)
    check(batch, found)
    assert (found.max_timestamp, found.offset_delta_of_max_timestamp) == (-1, -1)


def test_a_timestamp_delta_that_leaves_64_bits_is_refused():
    batch = patched(batch_of(2), 27, 2**63 - 1, 8)
    assert refusal(batch) == ErrorCode.INVALID_TIMESTAMP


@CODECS
def test_a_wrong_maximum_timestamp_is_put_right_with_its_checksum(codec):
    right, limits = bytes(batch_of(codec=codec)), BatchLimits(now_ms=NOW)
    for wrong in (0, -1, NOW + 1, 2**62):
        batch = patched(bytearray(right), 35, wrong, 8)
        check(batch, limits)
        assert bytes(batch) == right
        assert (limits.max_timestamp, limits.offset_delta_of_max_timestamp) == (NOW + 2, 2)


@CODECS
def test_log_append_time_is_the_brokers_whatever_the_records_say(codec):
    for timestamp in (NOW, -1, 2**62):
        batch, limits = (
            batch_of(codec=codec, timestamp=timestamp),
            BatchLimits(now_ms=NOW, log_append_time=True),
        )
        check(batch, limits)
        view = BatchView(batch)
        assert view.crc_holds()
        assert view.timestamp_type == TimestampType.LOG_APPEND_TIME
        assert (view.max_timestamp, limits.max_timestamp) == (NOW, NOW)
        assert [found.timestamp for found in view.records()] == [NOW] * 3
        assert limits.offset_delta_of_max_timestamp == 0


def test_a_producer_may_not_claim_log_append_time():
    batch = patched(batch_of(), 21, 8, 2)
    assert refusal(batch, log_append_time=True) == ErrorCode.INVALID_TIMESTAMP
    without = patched(batch_of(1, timestamp=-1), 21, 8, 2)
    assert refusal(without) == ErrorCode.INVALID_TIMESTAMP


def test_a_false_claim_of_log_append_time_is_dropped_where_the_topic_has_create_time():
    batch = patched(batch_of(), 21, 8, 2)
    check(batch, BatchLimits(now_ms=NOW))
    assert bytes(batch) == bytes(batch_of())


def test_the_same_limits_serve_many_batches():
    limits = BatchLimits(now_ms=NOW)
    check(batch_of(3), limits)
    with pytest.raises(ProtocolError):
        check(bytearray(b"garbage"), limits)
    limits.now_ms += 10
    check(batch_of(1, timestamp=NOW + HOUR + 10), limits)
    assert limits.max_timestamp == NOW + HOUR + 10


def test_a_view_tells_every_field_of_the_header():
    data = build_batch(
        [Record(value=b"a", timestamp=NOW), Record(value=b"b", timestamp=NOW + 5)],
        base_offset=40,
        codec=Codec.LZ4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 1,
        transactional=True,
        leader_epoch=9,
    )
    view = BatchView(data)
    assert (view.base_offset, view.last_offset, view.next_offset) == (40, 41, 42)
    assert (view.last_offset_delta, view.record_count, view.leader_epoch) == (1, 2, 9)
    assert (view.base_timestamp, view.max_timestamp) == (NOW, NOW + 5)
    assert (view.codec, view.transactional, view.control) == (Codec.LZ4, True, False)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (7, 2, 2**31 - 1)
    assert view.last_sequence == 0, "sequences wrap"
    assert view.timestamp_type == TimestampType.CREATE_TIME
    assert view.delete_horizon_ms is None
    assert (view.size, view.data, view.crc_holds()) == (len(data), data, True)
    assert view.crc == crc32c_of(data[21:])


def test_batches_lie_behind_each_other_and_a_cut_off_one_ends_them():
    one, two = build_batch([Record()], base_offset=3), build_batch([Record()] * 2, base_offset=4)
    for size in range(len(one), len(one + two)):
        assert [view.base_offset for view in batches((one + two)[:size])] == [3]
    assert [view.last_offset for view in batches(one + two)] == [3, 5]
    assert list(batches(b"")) == []
    with pytest.raises(CorruptMessage, match="position"):
        list(batches(one + bytes(61)))
    with pytest.raises(CorruptMessage, match="magic 1"):
        list(batches(one[:16] + b"\1" + one[17:]))
