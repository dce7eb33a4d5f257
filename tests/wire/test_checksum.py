"""CRC-32C by CPU instruction and by table gives the same results as the crc32c package."""

import zlib

import crc32c as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.checksum import crc32_of, crc32c_by_table, crc32c_of

WAYS = pytest.mark.parametrize("checksum", [crc32c_of, crc32c_by_table])


@WAYS
def test_the_known_answers_of_rfc_3720(checksum):
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(b"") == 0
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(b"\xff" * 32) == 0x62A8AB43


@WAYS
@given(data=st.binary(max_size=6000))
def test_any_bytes_have_the_checksum_of_the_reference(checksum, data):
    assert checksum(data) == oracle.crc32c(data)


@WAYS
def test_sizes_and_alignments_around_the_stream_borders(checksum):
    data = bytes(i * 151 + (i >> 8) & 255 for i in range(5000))
    for start in range(9):
        for size in [*range(20), *range(505, 530), *range(1530, 1550), *range(3065, 3080), 4991]:
            piece = memoryview(data)[start : start + size]
            assert checksum(piece) == oracle.crc32c(piece), (start, size)


@WAYS
def test_writable_buffers_are_taken(checksum):
    assert checksum(bytearray(b"abc")) == checksum(memoryview(b"abc")) == oracle.crc32c(b"abc")


@given(data=st.binary(max_size=600))
def test_crc_32_is_zlibs(data):
    assert crc32_of(data) == zlib.crc32(data)
