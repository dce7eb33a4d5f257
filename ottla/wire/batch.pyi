from collections.abc import Iterator
from enum import IntEnum

from ottla.wire.records import Record

HEADER_BYTES: int
"""Bytes before a batch's records."""
DECOMPRESSED_SIZE_MAX: int
"""The default limit for the decompressed size of one batch, in bytes."""

class TimestampType(IntEnum):
    """The meaning of a batch's timestamps (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

class BatchLimits:
    """The limits that a topic sets for a batch, and the properties of the last checked batch.

    Sizes are in bytes, times in ms. `codec` is the codec of the topic's compression.type, -1 for
    the producer's codec; `level` is its compression level. `record_size_max` limits the records of
    compressed batches. `offset_delta_of_max_timestamp` and `max_timestamp` describe the last batch
    that passed the check; they are -1 if none of its records has a timestamp.
    """

    batch_size_max: int
    decompressed_size_max: int
    now_ms: int
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    log_append_time: bool
    compacted: bool
    zstd: bool
    record_size_max: int
    codec: int
    level: int | None
    @property
    def offset_delta_of_max_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def __init__(
        self,
        *,
        batch_size_max: int = 1_048_588,
        decompressed_size_max: int = 134_217_728,
        now_ms: int = 0,
        timestamp_before_ms_max: int = ...,
        timestamp_after_ms_max: int = 3_600_000,
        log_append_time: bool = False,
        compacted: bool = False,
        zstd: bool = True,
        record_size_max: int = 2_147_483_647,
        codec: int = -1,
        level: int | None = None,
    ) -> None: ...

def check(batch: bytearray | memoryview, limits: BatchLimits) -> None:
    """Checks the one batch that a client produced; corrects its timestamp type and its maximum
    timestamp.

    Raises CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge or
    UnsupportedCompression; the bytes are then unchanged.
    """

def recompress(batch: bytearray, limits: BatchLimits) -> bytearray:
    """The batch that `check` has just accepted, in the codec of `limits`; the argument itself if
    the batch has that codec already.

    The records keep their bytes; in the header only length, codec and checksum change. Raises
    MessageTooLarge if the result exceeds `batch_size_max`, UnsupportedCompression if the codec's
    package is not installed.
    """

class BatchHeader:
    """The header of a batch of format v2: a view of bytes that belong to another object.

    Raises CorruptMessage for fewer than HEADER_BYTES bytes. Nothing else is checked: neither the
    format (`magic`), nor whether the batch is whole.
    """

    @property
    def magic(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the whole batch, by its length field."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    def __init__(self, data: bytes | bytearray | memoryview) -> None: ...

class BatchView(BatchHeader):
    """One whole batch: its header fields as attributes, its records on demand.

    Raises CorruptMessage unless the bytes are exactly one batch of format v2. Only `crc_holds` and
    `records` check the checksum.
    """

    @property
    def data(self) -> memoryview: ...
    def crc_holds(self) -> bool:
        """Whether the bytes match the checksum in the header."""

    def with_codec(self, codec: int, level: int | None = None, size_max: int = ...) -> bytes:
        """The same batch in another codec; raises the errors of read_records."""

    def records(self, size_max: int = ...) -> list[Record]:
        """The batch's records as a list; raises the errors of read_records."""

def batches(data: bytes | bytearray | memoryview) -> Iterator[BatchView]:
    """Views of the consecutive batches in `data`, up to the first one that is cut off.

    Raises CorruptMessage for bytes whose length or format no batch can have.
    """
