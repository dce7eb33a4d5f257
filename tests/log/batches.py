"""Batches for the tests of the log."""

from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.records import Record, build_batch, read_records

NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamps: list[int] | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    **options: object,
) -> bytes:
    """A batch of these values. Their timestamps are a millisecond apart unless `timestamps` is
    given."""
    times = timestamps or [NOW_MS + at for at in range(len(values))]
    pairs = zip(times, values, strict=True)
    records = [Record(timestamp=time, value=value) for time, value in pairs]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,  # type: ignore[arg-type]
    )


def split(data: bytes) -> list[bytes]:
    """The whole batches in a log's bytes; an incomplete batch at the end is left out."""
    found, at = [], 0
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        found.append(data[at : at + size])
        at += size
    return found


def records_of(log: PartitionLog, start: int | None = None) -> list[Record]:
    """All records of a log, from an offset on, read as a consumer reads them."""
    offset = log.log_start_offset if start is None else start
    records: list[Record] = []
    while offset < log.log_end_offset:
        batches = split(log.read_bytes(offset, 1000))
        if not batches:
            break
        for data in batches:
            found = [record for record in read_records(data) if record.offset >= offset]
            records += found
            offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
    return records


def values_of(log: PartitionLog, start: int | None = None) -> list[bytes | None]:
    """The values of all records of a log, from an offset on."""
    return [record.value for record in records_of(log, start)]
