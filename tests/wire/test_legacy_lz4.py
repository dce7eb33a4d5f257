"""LZ4 frames in message format v0 have the wrong header checksum that Kafka wrote."""

from __future__ import annotations

import lz4.frame  # type: ignore[import-untyped]
import pytest

from ottla.wire.errors import CorruptMessage
from ottla.wire.legacy_lz4 import with_right_checksum, with_wrong_checksum, xxh32

FRAMES = {
    "plain": lz4.frame.compress(b"abc", store_size=False),
    "with its size": lz4.frame.compress(b"abc", store_size=True),
    "empty": lz4.frame.compress(b"", store_size=False),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_gets_the_checksum_that_its_readers_want(frame: bytes) -> None:
    end = 14 if frame[4] & 0x08 else 6
    wrong = with_wrong_checksum(frame)
    assert wrong[:end] == frame[:end] and wrong[end + 1 :] == frame[end + 1 :]
    assert wrong[end] == xxh32(frame[:end]) >> 8 & 0xFF != frame[end]
    assert with_right_checksum(wrong) == with_right_checksum(frame) == frame
    assert with_wrong_checksum(memoryview(wrong)) == wrong
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(wrong)


def test_a_frame_with_a_dictionary_has_its_checksum_behind_the_id() -> None:
    for flags, end in ((0x60, 6), (0x61, 10), (0x68, 14), (0x69, 18)):
        frame = b"\x04\x22\x4d\x18" + bytes([flags]) + bytes(40)
        assert with_right_checksum(frame)[end] == xxh32(frame[4:end]) >> 8 & 0xFF
        assert with_right_checksum(frame)[:end] == frame[:end]
        assert with_right_checksum(frame[: end + 1])[end] == xxh32(frame[4:end]) >> 8 & 0xFF
        with pytest.raises(CorruptMessage, match="header"):
            with_right_checksum(frame[:end])


@pytest.mark.parametrize("frame", [
    b"", b"\x04\x22\x4d", b"\x04\x22\x4d\x18\x60\x40", b"\x04\x22\x4d\x19\x60\x40\x00\x00",
])
def test_what_is_no_frame_is_corrupt(frame: bytes) -> None:
    for checksum in (with_right_checksum, with_wrong_checksum):
        with pytest.raises(CorruptMessage, match="do not begin with the header"):
            checksum(frame)


@pytest.mark.parametrize(("data", "expected"), [
    (b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF),
    (b"Nobody inspects the spammish repetition", 0xE2293B2F),       # hashed by lanes, words, bytes
])
def test_the_hash_is_xxh32(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected
