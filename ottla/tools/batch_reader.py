"""Reads the batches of log files in all formats, written by Ottla or by Apache Kafka.

Reading does not disturb a broker that has the file open. Memory is limited by the largest batch,
and lengths that exceed the file are not trusted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.wire.batch import BatchView, TimestampType
from ottla.wire.checksum import crc32_of
from ottla.wire.compression import Codec
from ottla.wire.errors import ProtocolError, UnsupportedCompression
from ottla.wire.legacy import read_message_set

if TYPE_CHECKING:
    from ottla.wire.records import Record

START = struct.Struct(">qiiBI")         # offset, length, epoch or checksum, magic, unused
START_SIZE = 17
LOG_OVERHEAD = 12
LEGACY_OVERHEAD = 14
BUFFER_BYTES = 1 << 20


class DamagedFile(Exception):
    """The bytes at `position` cannot be a batch."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(slots=True)
class LegacyBatch:
    """A message of format v0 or v1. With a codec, it contains a set of messages."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def base_offset(self) -> int:
        """The offset in the first 8 bytes. If this message contains other messages, this is the
        offset of the last of them."""
        return int.from_bytes(self.data[:8], "big", signed=True)

    @property
    def last_offset(self) -> int:
        return self.base_offset

    @property
    def magic(self) -> int:
        return self.data[16]

    @property
    def crc(self) -> int:
        return int.from_bytes(self.data[12:16], "big")

    @property
    def codec(self) -> int:
        return self.data[17] & 7

    @property
    def timestamp_type(self) -> TimestampType | None:
        """None in v0, which has no timestamps."""
        return TimestampType(self.data[17] >> 3 & 1) if self.magic else None

    @property
    def max_timestamp(self) -> int:
        return int.from_bytes(self.data[18:26], "big", signed=True) if self.magic else -1

    def crc_holds(self) -> bool:
        """Whether the bytes match their checksum."""
        return crc32_of(self.data[16:]) == self.crc

    def records(self) -> list[Record]:
        """The message itself, or the messages inside it. Raises ProtocolError."""
        return read_message_set(self.data)


Batch = BatchView | LegacyBatch


def read_batches(
    path: str, size_max: int | None = None, position: int = 0, slice_max: int | None = None
) -> Iterator[tuple[int, Batch]]:
    """Yields the batches of a file with their positions. Stops before an incomplete batch.

    Begins at `position` and reads up to `slice_max` bytes, all within the first `size_max` bytes of
    the file; None means no limit. Raises OSError, or DamagedFile for bytes that cannot be a batch.
    """
    with open(path, "rb", buffering=BUFFER_BYTES) as file:
        end = os.fstat(file.fileno()).st_size
        if size_max is not None:
            end = min(end, size_max)
        if slice_max is not None:
            end = min(end, position + slice_max)
        file.seek(position)
        while position + START_SIZE <= end:
            start = file.read(START_SIZE)
            if len(start) < START_SIZE:
                return
            _, length, _, magic, _ = START.unpack(start + bytes(4))
            if length < LEGACY_OVERHEAD:
                raise DamagedFile(
                    f"{path} at byte {position}: a batch declares {length} bytes, fewer than "
                    f"the minimum of {LEGACY_OVERHEAD}",
                    position,
                )
            if position + LOG_OVERHEAD + length > end:
                return
            data = start + file.read(LOG_OVERHEAD + length - START_SIZE)
            yield position, as_batch(data, magic, path, position)
            position += LOG_OVERHEAD + length


def as_batch(data: bytes, magic: int, path: str, position: int) -> Batch:
    """Parses a batch. Raises DamagedFile."""
    if magic < 2:
        if magic == 1 and len(data) < LOG_OVERHEAD + LEGACY_OVERHEAD + 8:
            raise DamagedFile(
                f"{path} at byte {position}: a message of format v1 has only {len(data)} bytes,"
                " but its header alone needs more", position)
        return LegacyBatch(data)
    try:
        return BatchView(data)
    except ProtocolError as error:
        raise DamagedFile(f"{path} at byte {position}: {error}", position) from error


def codec_name(codec: int) -> str:
    """Kafka's name of the codec. Raises UnsupportedCompression."""
    try:
        return Codec(codec).name.lower()
    except ValueError:
        raise UnsupportedCompression(f"compression codec number {codec} is unknown") from None
