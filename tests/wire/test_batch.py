"""What a producer's batch must be, and the error code of each thing that it may not be."""

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from ottla.wire.batch import BatchLimits, check
from ottla.wire.checksum import crc32c_of
from ottla.wire.errors import ErrorCode, ProtocolError

NOW = 1_700_000_000_000


def batch_of(
    count=3, codec=0, key=b"k", timestamp=NOW, pid=-1, epoch=-1, sequence=-1, transactional=False
):
    builder = DefaultRecordBatchBuilder(2, codec, transactional, pid, epoch, sequence, 1 << 20)
    for offset in range(count):
        builder.append(offset, timestamp + offset, key, b"value", [("h", b"1"), ("n", None)])
    return bytearray(builder.build())


def patched(batch, at, value, size, *, checksum=True):
    batch[at : at + size] = value.to_bytes(size, "big", signed=True)
    if checksum:
        batch[17:21] = crc32c_of(batch[21:]).to_bytes(4, "big")
    return batch


def code_of(batch, **limits):
    before = bytes(batch)
    with pytest.raises(ProtocolError) as raised:
        check(batch, BatchLimits(now_ms=NOW, **limits))
    assert bytes(batch) == before, "a refused batch is left alone"
    return raised.value.code


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_of_a_stock_client_passes_unchanged(codec):
    batch = batch_of(codec=codec)
    before, limits = bytes(batch), BatchLimits(now_ms=NOW)
    check(batch, limits)
    assert bytes(batch) == before
    assert limits.max_timestamp == NOW + 2
    assert limits.offset_delta_of_max_timestamp == 2


@pytest.mark.parametrize("codec", range(5))
def test_every_flipped_bit_behind_the_length_is_found(codec):
    whole = bytes(batch_of(codec=codec))
    for bit in range(8 * 16, 8 * len(whole)):
        batch = bytearray(whole)
        batch[bit // 8] ^= 1 << bit % 8
        assert code_of(batch) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_every_truncation_is_found():
    whole = batch_of()
    for size in range(len(whole)):
        assert code_of(whole[:size]) == ErrorCode.INVALID_RECORD
