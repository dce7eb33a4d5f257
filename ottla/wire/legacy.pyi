from ottla.wire.records import Record

def read_message_set(
    data: bytes | bytearray | memoryview, *, size_max: int = ...
) -> list[Record]:
    """The records of a message set v0 or v1, with the offsets that they have in the log.

    Compressed and plain messages may follow each other; one that is cut off at the end is left out.
    `size_max` bounds what each compressed message unfolds to. Raises CorruptMessage, InvalidRecord
    or UnsupportedCompression.
    """

def codec_of(data: bytes | bytearray | memoryview) -> int:
    """The codec of a produced message set v0 or v1, of which only a lone message has one."""

def up_convert(
    data: bytes | bytearray | memoryview,
    *,
    size_max: int = ...,
    codec: int | None = None,
    level: int | None = None,
) -> bytes:
    """A produced message set as one record batch, whose offsets count from 0.

    It is compressed by `codec`, or as it came; `check` of the batch then judges timestamps, keys
    and size as of any batch. A set without a whole message gives b"", as Kafka appends nothing
    then; bytes of format v2 come back as they are. Raises CorruptMessage, InvalidRecord, also where
    more than `size_max` bytes would come out of a codec, and UnsupportedCompression.
    """

def down_convert(
    data: bytes | bytearray | memoryview,
    magic: int,
    *,
    first_offset: int = 0,
    size_max: int = ...,
    enough: int = ...,
) -> bytes:
    """Stored batches as a message set v0 or v1, for Fetch below version 2 or 4.

    Records below `first_offset` are left out, except inside compressed batches that also hold
    others, where clients skip them; so are control batches and a batch that is cut off. Nothing may
    be left (b""): then read on, or the client never gets past these offsets. No further batch is
    begun once there are `enough` bytes. zstd, which these clients cannot read, becomes gzip. Raises
    CorruptMessage or InvalidRecord for batches that are damaged.
    """
