from collections.abc import Iterator
from enum import IntEnum

from ottla.wire.records import Record

HEADER_BYTES: int
"""Bytes before a batch's records."""
DECOMPRESSED_SIZE_MAX: int
"""Bytes that one batch may decompress to, unless a caller says otherwise."""

class TimestampType(IntEnum):
    """What the timestamps of a batch mean (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

class BatchLimits:
    """What a topic allows in a batch, and what the last checked batch was found to be.

    Sizes in bytes, times in ms. `offset_delta_of_max_timestamp` and `max_timestamp` are of the
    last batch that passed; -1 where no record has a timestamp. `codec` is the one that the topic
    wants, -1 for the producer's, `level` its level; `record_size_max` bounds the records of
    compressed batches.
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
    """Checks the one batch that a client produced; sets its timestamp type and maximum if need be.

    Raises CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge or
    UnsupportedCompression, and leaves the bytes alone then.
    """

def recompress(batch: bytearray, limits: BatchLimits) -> bytearray:
    """The batch that `check` has just passed, with the codec of `limits`; itself if it has it.

    The records keep their bytes; of the header length, codec and checksum change. Raises
    MessageTooLarge where it outgrows `batch_size_max`, UnsupportedCompression where the codec's
    package is missing.
    """

class BatchHeader:
    """The header of a batch of format v2, in the first bytes of somebody's.

    Raises CorruptMessage where there are fewer than HEADER_BYTES. Nothing else is checked: neither
    the format (`magic`), nor whether the batch is whole.
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
    """One whole batch in somebody's bytes: its header as attributes, its records on demand.

    Raises CorruptMessage where the bytes are not exactly one batch of format v2. The checksum is
    not looked at until `crc_holds` or `records` is called.
    """

    @property
    def data(self) -> memoryview: ...
    def crc_holds(self) -> bool:
        """Whether the bytes have the checksum that they say."""

    def with_codec(self, codec: int, level: int | None = None, size_max: int = ...) -> bytes:
        """The same batch in another codec; errors as read_records."""

    def records(self, size_max: int = ...) -> list[Record]:
        """Its records; errors as ottla.wire.records.read_records."""

def batches(data: bytes | bytearray | memoryview) -> Iterator[BatchView]:
    """Views of the batches that lie in `data` one behind the other, up to one that is cut off.

    Raises CorruptMessage for a length or format that no batch has.
    """
