from collections.abc import Iterable
from enum import IntEnum

class ControlType(IntEnum):
    """The effect of a control record on its producer's transaction."""

    ABORT = 0
    COMMIT = 1

class Record:
    """One record: offset, timestamp in ms (-1 none), key and value (None is null), headers.

    With offset -1 the record gets the next offset of the batch that is built.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __init__(
        self,
        offset: int = -1,
        timestamp: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None: ...

def read_records(data: bytes | bytearray | memoryview, size_max: int = ...) -> list[Record]:
    """The records of exactly one batch, of any codec; offsets may have gaps.

    Raises CorruptMessage or InvalidRecord if the batch is damaged, InvalidRecord also if it
    decompresses to more than `size_max` bytes, UnsupportedCompression if its codec is unknown or
    not installed.
    """

def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    timestamp_type: int = 0,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """One batch of these records, whose offsets ascend from `base_offset` or are -1.

    `last_offset` may be above the last record's offset, and is required without records. The
    default of `max_timestamp` is the records' highest timestamp; with LogAppendTime, pass the
    append time. Raises ValueError if offsets do not ascend, UnsupportedCompression if the codec is
    unknown or not installed.
    """

def build_marker(
    control_type: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that ends a producer's transaction in one partition."""

def control_type(record: Record) -> ControlType | None:
    """The type of a control batch's record; None for a type unrelated to transactions.

    Raises InvalidRecord if the key is too short to have a type.
    """

def coordinator_epoch(record: Record) -> int:
    """The epoch of the coordinator that wrote this transaction marker. Raises InvalidRecord if the
    marker has none."""
