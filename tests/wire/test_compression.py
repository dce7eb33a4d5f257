"""Each codec agrees with kafka-python's both ways, and refuses damaged or hostile data."""

import gzip
import sys
import zlib
from types import SimpleNamespace

import kafka.codec as oracle
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire import compression
from ottla.wire.compression import (
    INPUT_STEP,
    XERIAL_HEADER,
    ZSTD_LEVELS_KEPT,
    Codec,
    TooMuchInside,
    compress,
    decompress,
    size_bound,
)
from ottla.wire.errors import CorruptMessage, InvalidRecord, ProtocolError, UnsupportedCompression

CODECS = pytest.mark.parametrize("codec", list(Codec))
PACKED = pytest.mark.parametrize("codec", list(Codec)[1:])
ORACLES = {
    Codec.GZIP: (oracle.gzip_encode, oracle.gzip_decode),
    Codec.SNAPPY: (oracle.snappy_encode, oracle.snappy_decode),
    Codec.LZ4: (oracle.lz4_encode, oracle.lz4_decode),
    Codec.ZSTD: (oracle.zstd_encode, oracle.zstd_decode),
}
CAP = 10_000_000
TEXT = b"".join(b"{'flight': %d, 'carrier': 'UA'}\n" % number for number in range(9000))
NOISE = zlib.compress(TEXT) * 8


@CODECS
@pytest.mark.parametrize("data", [b"", b"a", b"abc" * 50_000, TEXT, NOISE], ids=len)
def test_data_come_back_as_they_went_in(codec, data):
    packed = compress(codec, data)
    for form in (bytes, bytearray, memoryview):
        assert decompress(codec, form(packed), CAP) == data
        assert compress(codec, form(data)) == packed


@PACKED
@settings(max_examples=40)
@given(data=st.binary(min_size=1, max_size=2000))
def test_kafka_python_understands_both_directions(codec, data):
    encode, decode = ORACLES[codec]
    assert decode(compress(codec, data)) == data
    assert decompress(codec, encode(data), CAP) == data


@PACKED
def test_kafka_python_understands_large_data(codec):
    encode, decode = ORACLES[codec]
    assert decode(compress(codec, TEXT)) == TEXT
    assert decompress(codec, encode(TEXT), CAP) == TEXT


@CODECS
def test_the_cap_is_exact(codec):
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(InvalidRecord, match="more than"):
        decompress(codec, packed, len(TEXT) - 1)


@PACKED
def test_every_truncation_is_found(codec):
    packed = compress(codec, TEXT[:3000] + NOISE[:500])
    for size in range(len(packed)):
        if codec == Codec.SNAPPY and size == len(XERIAL_HEADER):
            continue  # xerial frames have no end mark, so this is a valid file without blocks
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:size], CAP)


@PACKED
def test_flipped_bits_raise_declared_errors_only(codec):
    packed = compress(codec, TEXT[:400])
    for bit in range(8 * len(packed)):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert len(decompress(codec, damaged, CAP)) <= CAP
        except ProtocolError as error:
            assert isinstance(error, CorruptMessage | InvalidRecord)


@PACKED
@given(data=st.binary(max_size=300))
def test_garbage_raises_declared_errors_only(codec, data):
    try:
        decompress(codec, data, CAP)
    except (CorruptMessage, InvalidRecord):
        pass


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_is_named(codec):
    for action in (lambda: compress(codec, b"a"), lambda: decompress(codec, b"a", CAP)):
        with pytest.raises(UnsupportedCompression, match="is unknown"):
            action()


@pytest.mark.parametrize(
    "codec, module", [(Codec.SNAPPY, "snappy"), (Codec.LZ4, "lz4.frame"), (Codec.ZSTD, "zstandard")]
)
def test_a_missing_package_is_named(codec, module, monkeypatch):
    packed = compress(codec, b"abc")
    monkeypatch.setattr("ottla.wire.compression._compressors", {})
    monkeypatch.setattr("ottla.wire.compression._decompressors", [])
    monkeypatch.setitem(sys.modules, module, None)
    for action in (lambda: compress(codec, b"a"), lambda: decompress(codec, packed, CAP)):
        package = module.removesuffix(".frame")
        with pytest.raises(UnsupportedCompression, match=f"package {package}, which is not"):
            action()


@pytest.mark.parametrize(
    "codec, levels",
    [(Codec.GZIP, (1, 9, -1)), (Codec.LZ4, (1, 9, 12, 17)), (Codec.ZSTD, (-5, 1, 19))],
)
def test_levels_are_kafkas(codec, levels):
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), CAP) == TEXT
    assert len(compress(codec, TEXT, levels[-2])) <= len(compress(codec, TEXT, levels[0]))


def test_zstd_contexts_of_a_few_levels_are_kept_and_used_again(monkeypatch):
    kept: dict[int, list[zstandard.ZstdCompressor]] = {}
    monkeypatch.setattr("ottla.wire.compression._compressors", kept)
    for level in range(1, 20):
        compress(Codec.ZSTD, b"a", level)
        assert level in kept and len(kept) <= ZSTD_LEVELS_KEPT
    kept.clear()
    levels = range(1, ZSTD_LEVELS_KEPT + 1)
    for level in levels:
        compress(Codec.ZSTD, b"a", level)
    before = {level: list(contexts) for level, contexts in kept.items()}
    assert [len(contexts) for contexts in before.values()] == [1] * ZSTD_LEVELS_KEPT
    for level in levels:
        compress(Codec.ZSTD, b"a", level)
    assert kept == before


def test_writers_of_java_may_put_gzip_members_and_frames_behind_each_other():
    for codec, pack in (
        (Codec.GZIP, gzip.compress),
        (Codec.LZ4, lz4.frame.compress),
        (Codec.ZSTD, zstandard.compress),
        (Codec.SNAPPY, lambda data: compress(Codec.SNAPPY, data)),
    ):
        packed = pack(TEXT) + pack(b"") + pack(NOISE)
        assert decompress(codec, packed, CAP) == TEXT + NOISE
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, len(TEXT + NOISE) - 1)


def test_many_tiny_gzip_members_take_time_in_proportion():
    assert decompress(Codec.GZIP, gzip.compress(b"a") * 20_000, CAP) == b"a" * 20_000


def test_gzip_with_a_name_and_a_comment_in_its_header_is_read():
    plain = gzip.compress(b"abc")
    named = plain[:3] + b"\x18" + plain[4:10] + b"name\0comment\0" + plain[10:]
    assert decompress(Codec.GZIP, named, CAP) == b"abc"


def test_snappy_is_written_as_java_writes_it_and_read_raw_as_well():
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(XERIAL_HEADER)
    assert len(snappy.decompress(packed[20 : 20 + int.from_bytes(packed[16:20], "big")])) == 32_768
    assert decompress(Codec.SNAPPY, snappy.compress(TEXT), CAP) == TEXT


@pytest.mark.parametrize("size", range(1, len(XERIAL_HEADER)))
def test_a_snappy_header_behind_a_block_may_not_be_cut(size):
    packed = compress(Codec.SNAPPY, TEXT)
    assert decompress(Codec.SNAPPY, packed + XERIAL_HEADER, CAP) == TEXT
    with pytest.raises(CorruptMessage, match="snappy"):
        decompress(Codec.SNAPPY, packed + XERIAL_HEADER[:size], CAP)


def test_a_snappy_block_cannot_declare_more_than_it_can_hold():
    announcement = b"\xff\xff\xff\xff\x0f"
    framed = XERIAL_HEADER + (8).to_bytes(4, "big") + announcement + b"abc"
    for data in (announcement + b"abc", framed):
        with pytest.raises(CorruptMessage, match="declares"):
            decompress(Codec.SNAPPY, data, 2**40)


@pytest.mark.parametrize("size", [0, -1, 2**31 - 1])
def test_a_snappy_block_length_is_checked(size):
    data = XERIAL_HEADER + size.to_bytes(4, "big", signed=True) + b"abc"
    with pytest.raises(CorruptMessage, match="a snappy block declares"):
        decompress(Codec.SNAPPY, data, CAP)


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("linked", [False, True])
def test_lz4_frames_of_any_shape_are_read(block_size, linked):
    packed = lz4.frame.compress(
        TEXT, block_size=block_size, block_linked=linked, content_checksum=True, block_checksum=True
    )
    assert decompress(Codec.LZ4, packed, CAP) == TEXT


def test_lz4_is_written_in_independent_blocks_of_64_kb_without_a_size():
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not info["block_linked"]
    assert info["block_size"] == 65_536
    assert info["content_size"] == 0


def test_an_lz4_frame_that_declares_too_much_is_read_to_its_true_end():
    packed = bytearray(lz4.frame.compress(b"abc", store_size=False))
    announced = lz4.frame.compress(bytes(5000), store_size=True)
    assert decompress(Codec.LZ4, announced, 5000) == bytes(5000)
    assert decompress(Codec.LZ4, packed, 3) == b"abc"


def zstd_frame(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)


def test_zstd_frames_of_any_shape_are_read():
    stream = zstandard.ZstdCompressor().compressobj()
    without_size = stream.compress(TEXT) + stream.flush()
    for packed in (
        without_size,
        zstd_frame(TEXT, write_checksum=True),
        zstd_frame(TEXT, write_content_size=False),
        zstd_frame(TEXT, level=19),
        b"\x50\x2a\x4d\x18\x03\0\0\0abc" + without_size,
    ):
        assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT
        with pytest.raises(InvalidRecord):
            decompress(Codec.ZSTD, packed, len(TEXT) - 1)


@pytest.mark.parametrize("dictionary", [0, 1, 2, 3])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("flag, size", [(0, 200), (1, 256), (1, 300), (2, 300), (3, 300)])
def test_zstd_headers_of_any_size_are_read(dictionary, single, flag, size):
    """The frame has one raw block, and a dictionary id of 0 that takes 0, 1, 2 or 4 bytes."""
    data = (bytes(range(100)) * 3)[:size]
    announced = size - 256 if flag == 1 else size
    header = bytes([flag << 6 | single << 5 | dictionary])
    header += b"" if single else b"\0"
    header += bytes((0, 1, 2, 4)[dictionary])
    header += announced.to_bytes((int(single), 2, 4, 8)[flag], "little") if single or flag else b""
    block = (size << 3 | 1).to_bytes(3, "little") + data
    packed = b"\x28\xb5\x2f\xfd" + header + block
    assert decompress(Codec.ZSTD, packed * 2, 2 * size) == data * 2
    with pytest.raises(InvalidRecord):
        decompress(Codec.ZSTD, packed, size - 1)
    with pytest.raises(CorruptMessage):
        decompress(Codec.ZSTD, packed[:-1], size)


def test_a_zstd_frame_that_declares_more_than_its_blocks_hold_is_refused():
    packed = bytearray(zstd_frame(bytes(100_000)))
    assert packed[4] >> 6 == 2, "the content size takes four bytes"
    packed[5:9] = (2**31).to_bytes(4, "little")
    with pytest.raises(CorruptMessage, match="declares"):
        decompress(Codec.ZSTD, packed, 2**40)


def test_a_zstd_frame_that_announces_too_much_is_not_decompressed(monkeypatch):
    """zstandard would allocate the announced size. The limit is for all frames together."""
    taken = []
    context = SimpleNamespace(
        decompress=lambda frame, max_output_size: taken.append(len(frame)) or bytes(600))
    monkeypatch.setattr(compression, "_decompressors", [context] * 2)
    frame = zstd_frame(bytes(600))
    with pytest.raises(TooMuchInside, match="more than the 599 bytes allowed"):
        decompress(Codec.ZSTD, frame, 599)
    assert not taken
    with pytest.raises(TooMuchInside, match="more than the 1199 bytes allowed"):
        decompress(Codec.ZSTD, frame * 2, 1199)
    assert taken == [len(frame)]


@pytest.mark.parametrize("size_max", [len(TEXT), CAP])
def test_a_damaged_zstd_frame_is_not_taken_for_one_that_is_too_large(size_max):
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    assert decompress(Codec.ZSTD, packed, size_max) == TEXT
    with pytest.raises(CorruptMessage, match="zstd data are damaged"):
        decompress(Codec.ZSTD, packed[:-1] + bytes([packed[-1] ^ 1]), size_max)


def test_a_zstd_window_beyond_the_limit_is_refused():
    params = zstandard.ZstdCompressionParameters(
        window_log=28, write_content_size=False, enable_ldm=False
    )
    stream = zstandard.ZstdCompressor(compression_params=params).compressobj()
    packed = stream.compress(TEXT) + stream.flush()
    with pytest.raises(CorruptMessage, match="damaged"):
        decompress(Codec.ZSTD, packed, CAP)


@pytest.mark.parametrize("held", [0, 1, 255, 256])
def test_a_zstd_size_of_two_bytes_counts_from_256(held):
    frame = b"\x28\xb5\x2f\xfd\x60" + (0).to_bytes(2, "little")      # announces 256 bytes
    packed = frame + (held << 3 | 1).to_bytes(3, "little") + bytes(held)
    if held == 256:
        assert decompress(Codec.ZSTD, packed, held) == bytes(held)
        return
    with pytest.raises(CorruptMessage, match=f"declares 256 bytes, but can hold only {held}"):
        decompress(Codec.ZSTD, packed, CAP)


def test_without_a_level_each_codec_has_kafkas_default():
    for codec, level in ((Codec.GZIP, 6), (Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3)):
        assert compress(codec, TEXT) == compress(codec, TEXT, level)
    assert compress(Codec.GZIP, TEXT) != compress(Codec.GZIP, TEXT, 1)
    assert len(compress(Codec.LZ4, TEXT)) > len(compress(Codec.LZ4, TEXT, 10))


@pytest.mark.parametrize("size", [0, 127, 128, 129, 16_383, 16_384, 16_512, 2_097_152])
def test_a_raw_snappy_block_has_its_size_in_groups_of_seven_bits(size):
    packed = snappy.compress(bytes(size))
    assert decompress(Codec.SNAPPY, packed, size) == bytes(size)
    if size:
        with pytest.raises(InvalidRecord, match="more than"):
            decompress(Codec.SNAPPY, packed, size - 1)


def test_a_snappy_block_may_be_as_small_as_the_format_allows():
    """Three bytes copy up to 64 bytes; the first copy needs a literal byte before it."""
    packed = snappy.compress(bytes(60_000))
    assert 60_000 / len(packed) > 20
    assert decompress(Codec.SNAPPY, packed, CAP) == bytes(60_000)


@pytest.mark.parametrize("length", [INPUT_STEP - 20, INPUT_STEP, 3 * INPUT_STEP])
def test_a_gzip_header_may_be_longer_than_a_step(length):
    plain = gzip.compress(b"abc")
    named = plain[:3] + b"\x08" + plain[4:10] + b"n" * length + b"\0" + plain[10:]
    assert decompress(Codec.GZIP, named, CAP) == b"abc"
    for size in (INPUT_STEP, len(named) - 1):
        with pytest.raises(CorruptMessage, match="gzip data are cut off"):
            decompress(Codec.GZIP, named[:min(size, len(named) - 1)], CAP)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD])
def test_the_bound_of_a_size_is_never_below_it(codec):
    for data in (b"a", bytes(300_000), TEXT, NOISE):
        packed = compress(codec, data)
        assert size_bound(codec, packed) >= len(data)


def test_what_is_not_compressed_is_bounded_by_itself():
    assert size_bound(Codec.NONE, b"abc") == 3


def test_a_bound_is_what_the_format_can_hold():
    bounds = [size_bound(codec, bytes(10)) for codec in (Codec.GZIP, Codec.LZ4, Codec.SNAPPY)]
    assert bounds == [10_320, 2_550, 220]
    frame = zstd_frame(bytes(10))
    assert size_bound(Codec.ZSTD, frame) == size_bound(Codec.ZSTD, frame * 2) // 2
    with pytest.raises(CorruptMessage):
        size_bound(Codec.ZSTD, bytes(10))


@pytest.mark.parametrize("last_bits", [0, 7, 15])
def test_frames_that_zstd_readers_skip_may_be_of_any_kind_and_size(last_bits):
    skipped = (0x184D2A50 + last_bits).to_bytes(4, "little") + (3).to_bytes(4, "little")
    packed = zstd_frame(b"abc")
    assert decompress(Codec.ZSTD, skipped + b"xyz" + packed, 3) == b"abc"
    assert decompress(Codec.ZSTD, packed + skipped + b"xyz", 3) == b"abc"
    for left in (b"", b"x", b"xy"):
        with pytest.raises(CorruptMessage, match="skippable"):
            decompress(Codec.ZSTD, packed + skipped + left, 3)
