"""The lines of `ottla log dump` for the small files: transaction indexes, producer snapshots,
and checkpoints. Kafka's tool does not print the checkpoints.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.log.files import aborted_sizes, closed_logs, topic_ids
from ottla.log.files.checkpoints import Partition, decode_offsets
from ottla.log.files.names import COPIED_GAPS
from ottla.log.files.snapshots import ENTRY, HEADER
from ottla.log.storage.void_copies import BEGUN_WITHOUT
from ottla.tools.dump_log import java_optional
from ottla.wire.checksum import crc32c_of

if TYPE_CHECKING:
    from ottla.log.files.closed_logs import ClosedLog

TRANSACTION = struct.Struct(">hqqqq")
TRANSACTION_VERSION = 0
SNAPSHOT_VERSION = 1
INT_MAX = 2**31 - 1
SMALL_FILE_BYTES_MAX = 1 << 28
TEXTS = (
    "partition.metadata", COPIED_GAPS, BEGUN_WITHOUT, "meta.properties", "quorum-state",
)  # fmt: skip
CLOSED_FIELDS = (
    "logStartOffset", "logEndOffset", "leaderEpoch", "segments", "bytes", "firstSegmentTimestamp",
    "transactionIndexBytes", "firstOpenTransaction",
)


def read_small(path: str) -> bytes:
    """Reads a whole file. Raises OSError, or ValueError if the file is too large."""
    size = os.stat(path).st_size
    if size > SMALL_FILE_BYTES_MAX:
        raise ValueError(f"{path} has {size} bytes, too many for an index, snapshot or checkpoint")
    with open(path, "rb") as file:
        return file.read()


def dump_transactions(path: str) -> Iterator[str]:
    """The aborted transactions of a segment."""
    data = read_small(path)
    whole = len(data) // TRANSACTION.size * TRANSACTION.size
    for version, producer_id, first, last, stable in TRANSACTION.iter_unpack(data[:whole]):
        if version != TRANSACTION_VERSION:
            raise ValueError(f"{path}: an entry has version {version}, but only version 0 is known")
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}"
        )
    if whole < len(data):
        raise ValueError(f"{path}: {len(data) - whole} bytes at the end are not a complete entry")


def dump_snapshot(path: str) -> Iterator[str]:
    """The producers in a producer snapshot."""
    data = read_small(path)
    if len(data) < HEADER.size:
        raise ValueError(f"{path} has {len(data)} bytes, too few for a producer snapshot")
    version, crc, count = HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"{path} has version {version}, but only version 1 of a producer snapshot"
                         " is known")
    if crc != crc32c_of(data[6:]):
        raise ValueError(
            f"{path} is corrupt (CRC is no longer valid). Stored crc: {crc}. "
            f"Computed crc: {crc32c_of(data[6:])}"
        )
    if count < 0 or len(data) != HEADER.size + count * ENTRY.size:
        raise ValueError(
            f"{path} has {len(data)} bytes, which do not fit its count of {count} producers")
    for fields in ENTRY.iter_unpack(data[HEADER.size :]):
        producer, epoch, sequence, offset, delta, timestamp, coordinator, start = fields
        line = (
            f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator} "
            f"currentTxnFirstOffset: {java_optional(None if start < 0 else start)} "
            f"lastTimestamp: {timestamp}"
        )
        if offset >= 0:
            first = (sequence - delta) & INT_MAX
            line += (
                f" firstSequence: {first} lastSequence: {sequence} lastOffset: {offset} "
                f"offsetDelta: {delta} timestamp: {timestamp}"
            )
        yield line


def dump_checkpoint(path: str) -> Iterator[str]:
    """A checkpoint, `meta.properties` or a partition's small file. Raises ValueError for other
    files."""
    name = os.path.basename(path)
    if name == "leader-epoch-checkpoint":
        yield from dump_epochs(path)
    elif name.endswith("-offset-checkpoint"):
        for (topic, partition), offset in decode_offsets(read_small(path)).items():
            yield f"topic: {topic} partition: {partition} offset: {offset}"
    elif name == closed_logs.CLOSED_LOGS:
        for (topic, partition), log in read_closed(path).items():
            topic_id, *numbers = log
            fields = zip(CLOSED_FIELDS, numbers, strict=True)
            yield (
                f"topic: {topic} partition: {partition} topicId: {topic_ids.id_text(topic_id)} "
                + " ".join(f"{field}: {number}" for field, number in fields)
            )
    elif name == topic_ids.TOPIC_IDS:
        for topic, each in topic_ids.decode(read_small(path)).items():
            yield f"topic: {topic} topicId: {topic_ids.id_text(each)}"
    elif name == aborted_sizes.ABORTED_SIZES:
        for (topic, partition), sizes in aborted_sizes.decode(read_small(path)).items():
            for base_offset, size in sizes.items():
                yield f"topic: {topic} partition: {partition} segment: {base_offset} size: {size}"
    elif name in TEXTS:
        yield from read_small(path).decode().splitlines()
    else:
        raise ValueError(f"Ignoring unknown file {path}")


def read_closed(path: str) -> dict[Partition, ClosedLog]:
    """The logs that a clean stop closed. Raises OSError, ValueError."""
    try:
        return closed_logs.decode(read_small(path))
    except IndexError:
        raise ValueError(f"{path} has fewer entries than its count says") from None


def dump_epochs(path: str) -> Iterator[str]:
    """The first offset of each leader epoch."""
    lines = read_small(path).decode().split("\n")
    if lines[0].strip() != "0" or len(lines) < 2 or not lines[1].strip().isdecimal():
        raise ValueError(f"{path} is not a leader epoch checkpoint of version 0")
    entries = [line.split() for line in lines[2:] if line]
    if len(entries) != int(lines[1]) or any(len(entry) != 2 for entry in entries):
        raise ValueError(
            f"{path}: expected {lines[1]} lines after the count, each with a leader epoch and its"
            " first offset")
    for epoch, offset in entries:
        yield f"leaderEpoch: {epoch} startOffset: {offset}"
