from collections.abc import Iterable
from enum import IntEnum

class ControlType(IntEnum):
    """What a control record says about the transaction of its producer."""

    ABORT = 0
    COMMIT = 1

class Record:
    """One record: offset, timestamp in ms (-1 none), key and value (None is null), headers.

    An offset of -1 stands for the record's place in the batch that is built of it.
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

    Raises CorruptMessage or InvalidRecord for damage (the latter also where more than `size_max`
    bytes would come out of a codec), UnsupportedCompression for a codec that is not to be had.
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

    `last_offset` may lie behind the last record, and is needed where there is none; `max_timestamp`
    is that of the records unless given, which LogAppendTime wants. Raises ValueError for offsets
    that do not ascend, UnsupportedCompression for a codec that is not to be had.
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
    """What the record of a control batch says; None for a type that is not of transactions.

    Raises InvalidRecord where the key is too short to say it.
    """

def coordinator_epoch(record: Record) -> int:
    """Epoch of the coordinator that wrote this transaction marker; InvalidRecord if it has none."""
