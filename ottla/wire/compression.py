"""The codecs of record batches: gzip, snappy, lz4 and zstd, with a limit on the decompressed size.

Sizes announced by the data are not trusted. For gzip and lz4, memory is allocated as output is
produced. For snappy and zstd, the announced size may not exceed what the compressed bytes can
produce. Packages are imported at first use, because a broker usually needs only some of the codecs.
Any thread may call this module; the packages release the interpreter lock.
References: gzip RFC 1952; snappy format description and the framing of snappy-java; LZ4 frame
format; Zstandard RFC 8878; KIP-110, KIP-390.
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from io import BytesIO
from typing import Any

from ottla.wire.errors import CorruptMessage, InvalidRecord, UnsupportedCompression

Data = bytes | bytearray | memoryview

# snappy-java: magic, version of the writer, oldest version that can read the data; then blocks,
# each preceded by its length.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_SIZE = 32_768  # what Java's clients write
SNAPPY_RATIO_MAX = 22  # a copy element of 3 bytes produces 64
GZIP_RATIO_MAX = 1032  # deflate: two bits can produce 258 bytes
LZ4_RATIO_MAX = 255  # each further byte of a match's length produces at most 255 bytes

LZ4_LEVEL_DEFAULT = 9  # Kafka's number for the fast compressor (compression.lz4.level)
INPUT_STEP = 65_536  # zlib copies the unused input of each step
OUTPUT_STEP = 262_144

ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE = 0x184D2A50  # the last four bits may have any value
ZSTD_BLOCK_SIZE_MAX = 131_072
ZSTD_WINDOW_MAX = 1 << 27  # the reference decoder's default
ZSTD_LEVEL_DEFAULT = 3
ZSTD_LEVELS_KEPT = 8


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooMuchInside(InvalidRecord):
    """Compressed data would decompress to more than the allowed size."""


def compress(codec: int, data: Data, level: int | None = None) -> bytes:
    """The records `data`, compressed as Java's clients would. `level`: None for the codec's
    default; ignored for snappy.

    Raises UnsupportedCompression for a codec that is unknown or whose package is not installed.
    """
    if codec == Codec.NONE:
        return bytes(data)
    return _lookup(COMPRESSORS, codec)(data, level)


def decompress(codec: int, data: Data, size_max: int) -> bytes:
    """The decompressed records of `data`.

    Raises TooMuchInside if they take more than `size_max` bytes; CorruptMessage if the data are
    damaged or cut off; UnsupportedCompression if the codec is unknown or its package is not
    installed.
    """
    if codec == Codec.NONE:
        _check_size(len(data), size_max)
        return bytes(data)
    plain = _lookup(DECOMPRESSORS, codec)(data, size_max)
    assert len(plain) <= size_max, "the decompressor returned more than size_max bytes"
    return plain


def size_bound(codec: int, data: Data) -> int:
    """An upper bound on the decompressed size of `data`. Callers use it to estimate how long
    they need to process a batch.

    Raises CorruptMessage for zstd with damaged frames.
    """
    if codec == Codec.ZSTD:
        return sum(bound for _, _, bound in _zstd_frames(memoryview(data)))
    return len(data) * RATIOS_MAX.get(codec, 1)


def _lookup(functions: dict[int, Callable[..., bytes]], codec: int) -> Callable[..., bytes]:
    if codec not in functions:
        raise UnsupportedCompression(f"codec number {codec} is unknown, the highest is 4 (zstd)")
    return functions[codec]


def _check_size(size: int, size_max: int) -> None:
    if size > size_max:
        raise TooMuchInside(f"records decompress to more than the {size_max} bytes allowed")


def _package(name: str) -> Any:
    try:
        return sys.modules.get(name) or __import__(name, fromlist=["*"])
    except ImportError as error:
        package = name.partition(".")[0]
        raise UnsupportedCompression(
            f"the codec needs the Python package {package}, which is not installed") from error


# --- gzip and lz4: concatenated members, each a stream -----------------------------------------

# Takes some input and an output limit; returns output, bytes consumed, whether the member ended.
Step = Callable[[memoryview, int], tuple[bytes, int, bool]]


def _decompress_members(data: Data, size_max: int, new: Callable[[], Step], name: str) -> bytes:
    view, position, size, ended = memoryview(data), 0, 0, True
    output = BytesIO()  # its getvalue makes no second copy
    while position < len(view) or not ended:
        if ended:
            step = new()
        piece, taken, ended = step(view[position : position + INPUT_STEP], OUTPUT_STEP)
        if not (piece or taken or ended):
            raise CorruptMessage(f"{name} data are cut off: they end after {len(view)} bytes")
        position += taken
        assert position <= len(view), "the decompressor read past the end of the data"
        size += len(piece)
        _check_size(size, size_max)
        if ended and size == len(piece) and position == len(view):
            return piece
        output.write(piece)
    if not view:
        raise CorruptMessage(f"{name} data are empty")
    return output.getvalue()


def _compress_gzip(data: Data, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, wbits=31)


def _decompress_gzip(data: Data, size_max: int) -> bytes:
    def new() -> Step:
        member = zlib.decompressobj(wbits=31)

        def step(piece: memoryview, room: int) -> tuple[bytes, int, bool]:
            output = member.decompress(piece, room)
            left = member.unused_data if member.eof else member.unconsumed_tail
            return output, len(piece) - len(left), member.eof

        return step

    try:
        return _decompress_members(data, size_max, new, "gzip")
    except zlib.error as error:
        raise CorruptMessage(f"gzip data are damaged: {error}") from error


def _compress_lz4(data: Data, level: int | None) -> bytes:
    frame = _package("lz4.frame")
    fast = level is None or level == LZ4_LEVEL_DEFAULT
    return bytes(
        frame.compress(
            data,
            compression_level=0 if fast else level,
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,  # Java's reader accepts independent blocks only
            store_size=False,
        )
    )


def _decompress_lz4(data: Data, size_max: int) -> bytes:
    frame = _package("lz4.frame")

    def new() -> Step:
        context = frame.create_decompression_context()

        def step(piece: memoryview, room: int) -> tuple[bytes, int, bool]:
            result: tuple[bytes, int, bool] = frame.decompress_chunk(
                context, piece, max_length=room
            )
            return result

        return step

    try:
        return _decompress_members(data, size_max, new, "lz4")
    except RuntimeError as error:
        raise CorruptMessage(f"lz4 data are damaged: {error}") from error


# --- snappy: raw as librdkafka writes it, or in the frames of snappy-java ---------------------


def _compress_snappy(data: Data, level: int | None) -> bytes:
    snappy = _package("snappy")
    view = memoryview(data)
    output = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[start : start + XERIAL_BLOCK_SIZE])
        output += (len(block).to_bytes(4, "big"), block)
    return b"".join(output)


def _decompress_snappy(data: Data, size_max: int) -> bytes:
    view = memoryview(data)
    if view[:8] != XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    output, left = [], size_max
    for block in _xerial_blocks(view):
        output.append(_decompress_snappy_block(block, left))
        left -= len(output[-1])
    return b"".join(output)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks; a header may occur between them if streams were concatenated."""
    position, header_size = 0, len(XERIAL_HEADER)
    while position < len(view):
        if view[position : position + 8] == XERIAL_MAGIC:
            if len(view) - position < header_size:
                raise CorruptMessage("snappy data are cut off inside their header")
            position += header_size
            continue
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(view) - position:
            raise CorruptMessage(
                f"a snappy block declares {size} bytes, but {max(len(view) - position, 0)} remain"
            )
        yield view[position : position + size]
        position += size


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    announced = shift = 0
    for byte in block[:5]:
        announced |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CorruptMessage("snappy block does not begin with its length")
    # The announced size is checked first, because the library allocates it.
    if announced > SNAPPY_RATIO_MAX * len(block):
        raise CorruptMessage(
            f"snappy block of {len(block)} bytes declares {announced} decompressed bytes,"
            " more than it can hold"
        )
    _check_size(announced, size_max)
    try:
        return bytes(_package("snappy").decompress(block))
    except UnsupportedCompression:
        raise
    except Exception as error:  # the package's exception type has changed between releases
        raise CorruptMessage(f"snappy data are damaged: {error}") from error


# --- zstd ---------------------------------------------------------------------------------------


# A context serves one call at a time and is reused; if none is idle, another is created.
_compressors: dict[int, list[Any]] = {}
_decompressors: list[Any] = []


def _taken(idle: list[Any], new: Callable[[], Any]) -> Any:
    try:
        return idle.pop()
    except IndexError:
        return new()


def _compress_zstd(data: Data, level: int | None) -> bytes:
    wanted = ZSTD_LEVEL_DEFAULT if level is None else level
    if wanted not in _compressors and len(_compressors) >= ZSTD_LEVELS_KEPT:
        _compressors.clear()
    idle = _compressors.setdefault(wanted, [])
    context = _taken(idle, lambda: _package("zstandard").ZstdCompressor(level=wanted))
    try:
        return bytes(context.compress(data))
    finally:
        idle.append(context)


def _decompress_zstd(data: Data, size_max: int) -> bytes:
    context = _taken(
        _decompressors,
        lambda: _package("zstandard").ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX),
    )
    try:
        return _decompress_frames(context, memoryview(data), size_max)
    finally:
        _decompressors.append(context)


def _decompress_frames(context: Any, view: memoryview, size_max: int) -> bytes:
    output: list[bytes] = []
    size = 0
    for frame, announced, bound in _zstd_frames(view):
        if announced is not None and announced > bound:
            raise CorruptMessage(
                f"zstd frame declares {announced} bytes, but can hold only {bound}"
            )
        _check_size(size + (announced or 0), size_max)
        room = min(bound, size_max - size + 1)
        try:
            output.append(context.decompress(frame, max_output_size=room))
        except _package("zstandard").ZstdError as error:
            if room < bound and "full frame" in str(error):
                _check_size(size + room, size_max)
            raise CorruptMessage(f"zstd data are damaged: {error}") from error
        size += len(output[-1])
        _check_size(size, size_max)
    if not view:
        raise CorruptMessage("zstd data are empty")
    return output[0] if len(output) == 1 else b"".join(output)


def _zstd_frames(view: memoryview) -> Iterator[tuple[memoryview, int | None, int]]:
    """Each frame, the size that it announces (None if it announces none), and the maximum
    decompressed size of its blocks.

    | magic 4 | descriptor 1 | window 0-1 | dictionary 0-4 | content size 0-8 | blocks | crc 0-4 |
    block: | last 1 bit, type 2 bits (raw, run, compressed), size 21 bits; little-endian | content |
    """
    position = 0
    while position < len(view):
        start = position
        magic = _little(view, position, 4)
        if magic & ~0xF == ZSTD_SKIPPABLE:
            position += 8 + _little(view, position + 4, 4)
            if position > len(view):
                raise CorruptMessage("zstd data are cut off inside a skippable frame")
            continue
        if magic != ZSTD_MAGIC:
            raise CorruptMessage(
                f"zstd frame begins with {magic:#010x}, not with zstd's magic {ZSTD_MAGIC:#010x}"
            )
        descriptor = _little(view, position + 4, 1)
        single = descriptor >> 5 & 1
        content_size_size = (single, 2, 4, 8)[descriptor >> 6]
        position += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
        announced = None
        if content_size_size:
            announced = _little(view, position, content_size_size)
            announced += 256 if content_size_size == 2 else 0
        position, bound = _zstd_blocks(view, position + content_size_size)
        position += 4 if descriptor & 4 else 0
        if position > len(view):
            raise CorruptMessage("zstd data are cut off inside a frame")
        yield view[start:position], announced, bound


def _zstd_blocks(view: memoryview, position: int) -> tuple[int, int]:
    """The end position of a frame's blocks, and the maximum decompressed size of the blocks."""
    bound = last = 0
    while not last:
        block = _little(view, position, 3)
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == 1 else size)
        bound += size if kind < 2 else ZSTD_BLOCK_SIZE_MAX
    return position, bound


def _little(view: memoryview, position: int, size: int) -> int:
    if position + size > len(view):
        raise CorruptMessage("zstd data are cut off inside a frame")
    return int.from_bytes(view[position : position + size], "little")


RATIOS_MAX: dict[int, int] = {
    Codec.GZIP: GZIP_RATIO_MAX, Codec.SNAPPY: SNAPPY_RATIO_MAX, Codec.LZ4: LZ4_RATIO_MAX,
}  # fmt: skip
COMPRESSORS: dict[int, Callable[[Data, int | None], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
DECOMPRESSORS: dict[int, Callable[[Data, int], bytes]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
