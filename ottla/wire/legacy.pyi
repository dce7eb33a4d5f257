from ottla.wire.records import Record

def read_message_set(
    data: bytes | bytearray | memoryview, *, size_max: int = ...
) -> list[Record]:
    """The records of a message set v0 or v1, with the offsets that they have in the log.

    The set may contain compressed and plain messages; a message that is cut off at the end is left
    out. `size_max` limits the decompressed size of each compressed message. Raises CorruptMessage,
    InvalidRecord or UnsupportedCompression.
    """

def codec_of(data: bytes | bytearray | memoryview) -> int:
    """The codec of a produced message set v0 or v1; a compressed set is a single message."""

def up_convert(
    data: bytes | bytearray | memoryview,
    *,
    size_max: int = ...,
    codec: int | None = None,
    level: int | None = None,
) -> bytes:
    """A produced message set as one record batch whose offsets start at 0.

    The batch is compressed with `codec`, by default with the codec of the set. Timestamps, keys and
    size are not checked: `check` does this for the batch. A set without a complete message gives
    b"", because Kafka appends nothing then; bytes of format v2 are returned unchanged. Raises
    CorruptMessage, UnsupportedCompression or InvalidRecord; InvalidRecord also if the records
    decompress to more than `size_max` bytes.
    """

def down_convert(
    data: bytes | bytearray | memoryview,
    magic: int,
    *,
    first_offset: int = 0,
    size_max: int = ...,
    enough: int = ...,
) -> bytes:
    """Stored batches as a message set: v0 for Fetch below version 2, v1 for Fetch 2 and 3.

    Control batches, a batch that is cut off, and records below `first_offset` are left out. But a
    compressed batch that reaches `first_offset` keeps all its records: clients skip the earlier
    ones. If the result is empty (b""), the caller must convert the batches that follow: otherwise
    the client never gets past these offsets. After `enough` bytes, no further batch is converted.
    zstd, which these clients cannot read, becomes gzip. Raises CorruptMessage or InvalidRecord for
    damaged batches.
    """
