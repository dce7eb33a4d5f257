"""The LZ4 frames of message format v0, whose header checksum is wrong on purpose (KAFKA-3160).

The checksum has to cover the frame's descriptor, which follows the frame's magic. Kafka's first LZ4
writers included the magic, too, and clients that read v0 require this wrong checksum. Formats v1
and v2 have the correct one (KIP-57).

    | magic 4 | flags 1 | block size 1 | content size 0 or 8 | dictionary 0 or 4 | checksum 1 | ...
              '---------------------- the right checksum covers these --------'
    '-------------------------------- v0's covers these ----------------------'

References: LZ4 frame format 1.6; xxHash specification, XXH32.
"""

from ottla.wire.errors import CorruptMessage

MAGIC = b"\x04\x22\x4d\x18"
CONTENT_SIZE = 0x08
DICTIONARY = 0x01
MASK = 0xFFFFFFFF


def with_right_checksum(frame: bytes | memoryview) -> bytes:
    """The frame with the standard header checksum, whichever checksum it came with."""
    end = _descriptor_end(frame)
    return bytes(frame[:end]) + _checksum(bytes(frame[4:end])) + bytes(frame[end + 1 :])


def with_wrong_checksum(frame: bytes | memoryview) -> bytes:
    """The frame with the header checksum that clients of message format v0 require."""
    end = _descriptor_end(frame)
    return bytes(frame[:end]) + _checksum(bytes(frame[:end])) + bytes(frame[end + 1 :])


def _descriptor_end(frame: bytes | memoryview) -> int:
    if len(frame) < 7 or frame[:4] != MAGIC:
        raise CorruptMessage("lz4 data do not begin with the header of an LZ4 frame")
    end = 6 + (8 if frame[4] & CONTENT_SIZE else 0) + (4 if frame[4] & DICTIONARY else 0)
    if end >= len(frame):
        raise CorruptMessage("the LZ4 frame is cut off inside its header")
    return end


def _checksum(descriptor: bytes) -> bytes:
    return bytes([xxh32(descriptor) >> 8 & 0xFF])


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0."""
    prime1, prime2, prime3 = 2654435761, 2246822519, 3266489917
    prime4, prime5 = 668265263, 374761393
    whole = len(data) // 16 * 16
    if whole:
        lanes = [(prime1 + prime2) & MASK, prime2, 0, -prime1 & MASK]
        for at in range(0, whole, 4):
            lane = lanes[at // 4 % 4] + int.from_bytes(data[at : at + 4], "little") * prime2
            lanes[at // 4 % 4] = _rotated(lane, 13) * prime1 & MASK
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = prime5
    value += len(data)
    at = whole
    while at + 4 <= len(data):
        value = _rotated(value + int.from_bytes(data[at : at + 4], "little") * prime3, 17) * prime4
        at += 4
    for byte in data[at:]:
        value = _rotated(value + byte * prime5, 11) * prime1
    value &= MASK
    value = (value ^ value >> 15) * prime2 & MASK
    value = (value ^ value >> 13) * prime3 & MASK
    return value ^ value >> 16


def _rotated(value: int, by: int) -> int:
    value &= MASK
    return (value << by | value >> 32 - by) & MASK
