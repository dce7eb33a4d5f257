"""Records are built into batches and read again; kafka-python agrees in both directions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from ottla.wire.batch import BatchLimits, BatchView, TimestampType, check
from ottla.wire.compression import Codec
from ottla.wire.errors import CorruptMessage, InvalidRecord, ProtocolError, UnsupportedCompression
from ottla.wire.records import (
    ControlType,
    Record,
    build_batch,
    build_marker,
    control_type,
    coordinator_epoch,
    read_records,
)

CODECS = pytest.mark.parametrize("codec", list(Codec))
BYTES = st.none() | st.binary(max_size=200)
RECORD = st.builds(
    Record,
    timestamp=st.integers(0, 2**48),
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=3),
)
RECORDS = st.lists(RECORD, min_size=1, max_size=20)


def fields(record):
    return record.timestamp, record.key, record.value, tuple(record.headers)


def test_a_record_has_no_offset_and_no_time_unless_it_is_given_them():
    assert (Record().offset, Record().timestamp) == (-1, -1)


@CODECS
@settings(max_examples=40)
@given(records=RECORDS, base_offset=st.integers(0, 2**62))
def test_records_come_back_as_they_went_in(codec, records, base_offset):
    data = build_batch(records, base_offset=base_offset, codec=codec)
    found = read_records(data)
    assert [fields(record) for record in found] == [fields(record) for record in records]
    assert [record.offset - base_offset for record in found] == list(range(len(records)))


@CODECS
@settings(max_examples=40)
@given(records=RECORDS)
def test_kafka_python_reads_what_is_built(codec, records):
    data = build_batch(records, codec=codec, producer_id=1, producer_epoch=2, base_sequence=3)
    batch = MemoryRecords(data).next_batch()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 2, 3)
    assert batch.max_timestamp == max(record.timestamp for record in records)
    assert [fields(record) for record in batch] == [fields(record) for record in records]


@CODECS
@settings(max_examples=40)
@given(records=RECORDS)
def test_what_kafka_python_builds_is_read(codec, records):
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for offset, record in enumerate(records):
        headers = list(record.headers)
        builder.append(offset, record.timestamp, record.key, record.value, headers)
    data = bytes(builder.build())
    found = read_records(data)
    assert [fields(record) for record in found] == [fields(record) for record in records]
    if codec == Codec.NONE:
        assert build_batch(found, leader_epoch=0) == data, "and builds back to the same bytes"


@settings(max_examples=60)
@given(records=RECORDS, codec=st.sampled_from(list(Codec)))
def test_what_is_built_passes_the_check_of_produced_batches(records, codec):
    data = bytearray(build_batch(records, codec=codec))
    check(data, BatchLimits(now_ms=2**48))
    assert read_records(data)


@CODECS
def test_every_flipped_bit_and_every_truncation_is_found(codec):
    whole = build_batch([Record(key=b"k", value=b"v", timestamp=5)] * 2, codec=codec)
    for size in range(len(whole)):
        with pytest.raises(CorruptMessage):
            read_records(whole[:size])
    for bit in range(8 * 8, 8 * len(whole)):
        if 12 <= bit // 8 < 16:
            continue  # the checksum does not cover the leader epoch
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptMessage):
            read_records(damaged)


def test_offsets_may_have_gaps_as_compaction_leaves_them():
    records = [Record(offset, offset) for offset in (10, 12, 19)]
    data = build_batch(records, base_offset=8, last_offset=25)
    assert read_records(data) == records
    view = BatchView(data)
    assert (view.base_offset, view.last_offset, view.record_count) == (8, 25, 3)
    for wrong in ([Record(7)], [Record(9), Record(9)], [Record(9), Record(8)], [Record(8 + 2**31)]):
        with pytest.raises(ValueError, match="does not follow"):
            build_batch(wrong, base_offset=8)
    with pytest.raises(ValueError, match="below"):
        build_batch(records, base_offset=8, last_offset=18)


def test_a_batch_may_outlive_its_records():
    """Compaction keeps a producer's last batch without records, for its sequence number."""
    data = build_batch([], base_offset=5, last_offset=9, producer_id=3, max_timestamp=77, codec=2)
    view = BatchView(data)
    assert (view.records(), view.last_offset, view.record_count) == ([], 9, 0)
    assert (view.max_timestamp, view.base_timestamp) == (77, -1)
    with pytest.raises(ValueError, match="last offset"):
        build_batch([])


def test_log_append_time_overrides_the_records():
    data = build_batch(
        [Record(timestamp=5)], timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=99
    )
    assert read_records(data)[0].timestamp == 99


def test_the_delete_horizon_takes_the_place_of_the_base_timestamp():
    data = build_batch([Record(timestamp=5), Record(timestamp=900)], delete_horizon_ms=100)
    view = BatchView(data)
    assert view.delete_horizon_ms == 100
    assert [record.timestamp for record in view.records()] == [5, 900]
    assert view.max_timestamp == 900


@pytest.mark.parametrize("kind", list(ControlType))
def test_a_marker_says_how_a_transaction_ended(kind):
    data = build_marker(
        kind, producer_id=4, producer_epoch=1, coordinator_epoch=-9, timestamp=3, base_offset=70
    )
    view = BatchView(data)
    assert (view.control, view.transactional, view.producer_id, view.base_sequence) == (
        True,
        True,
        4,
        -1,
    )
    marker = view.records()[0]
    assert (control_type(marker), coordinator_epoch(marker)) == (kind, -9)
    reference = MemoryRecords(data).next_batch()
    control = next(iter(reference))
    assert reference.is_control_batch
    assert (control.commit, control.abort) == (kind == 1, kind == 0)


def test_control_records_of_other_kinds_and_damaged_ones_are_told_apart():
    assert control_type(Record(key=b"\0\0\0\2")) is None
    for record in (Record(), Record(key=b"\0\0\0")):
        with pytest.raises(InvalidRecord):
            control_type(record)
    for record in (Record(), Record(value=b"\0\0\0")):
        with pytest.raises(InvalidRecord):
            coordinator_epoch(record)


def test_header_keys_that_are_no_utf_8_survive():
    records = [Record(0, 0, headers=[(b"\xff\xfe".decode("utf-8", "surrogateescape"), b"")])]
    assert read_records(build_batch(records)) == records


def test_decompression_is_capped():
    data = build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    assert len(read_records(data, 101_000)) == 1
    with pytest.raises(InvalidRecord, match="more than"):
        read_records(data, 99_000)


def test_an_unknown_codec_is_refused_both_ways():
    with pytest.raises(UnsupportedCompression):
        build_batch([Record()], codec=5)


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_declared_errors_only(data):
    with pytest.raises(ProtocolError):
        read_records(data)


def test_records_compare_by_their_fields():
    assert Record(1, 2, b"k", b"v", [("h", b"")]) == Record(1, 2, b"k", b"v", (("h", b""),))
    assert Record(1) != Record(2)
    assert Record(1) != 1
    assert len({Record(1), Record(1)}) == 1
    assert "offset=1" in repr(Record(1))
