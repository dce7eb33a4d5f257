"""Segments on disk: which ones hold a range of offsets, and their committed batches.

A segment does not grow any more once the next one exists. Retention or compaction may delete or
replace its file at any time. A reader that has opened the file can still read all of it; a missing
file raises `SegmentGone`. The last segment still grows, so it is read only up to the last stable
offset that the leader reported. All batches below this offset are complete in the files of every
in-sync replica.

Kafka's file formats: `.log` has batches; `.index` has pairs of int32 (relative offset, position);
`.txnindex` has 34 bytes for each aborted transaction (version, producer id, first, last and last
stable offset).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from io import FileIO
from itertools import pairwise
from pathlib import Path

from ottla.wire.batch import HEADER_BYTES, BatchHeader
from ottla.wire.errors import CorruptMessage
from ottla.wire.records import ControlType, control_type, read_records

INDEX_ENTRY = struct.Struct(">ii")
ABORTED_ENTRY = struct.Struct(">hqqqq")
CHUNK_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30


class SegmentGone(Exception):
    """A task cannot read its offsets from the file: the file was deleted after the driver had
    listed it, has batches of an older format, or is on a network file system that does not show the
    newest batches yet."""


class UnindexedAbort(CorruptMessage):
    """Records of an aborted transaction were read, because the transaction index does not list
    it."""


@dataclass(frozen=True)
class Segment:
    """A segment: its file, and its offsets from `start` up to but excluding `end`."""

    path: str
    start: int
    end: int
    growing: bool = False
    """Whether it is the partition's last segment; only its offsets below `end` may be read."""


@dataclass(frozen=True)
class Aborted:
    """An aborted transaction: the producer's batches from `first` to `last` are skipped."""

    producer_id: int
    first: int
    last: int


def partition_directory(
    log_dirs: list[str], topic: str, partition: int, in_sync: Collection[int]
) -> Path | None:
    """The first directory of the partition that belongs to an in-sync replica; None if none does.

    Directories of other replicas may lack committed records, or contain uncommitted records.
    """
    for directory in log_dirs:
        path = Path(directory) / f"{topic}-{partition}"
        if path.is_dir() and node_id(Path(directory)) in in_sync:
            return path
    return None


def node_id(log_dir: Path) -> int | None:
    """The broker that owns a log directory, by its `meta.properties`; None if unknown."""
    try:
        lines = (log_dir / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    properties = dict(line.split("=", 1) for line in lines if "=" in line)
    number = properties.get("node.id", properties.get("broker.id", "")).strip()
    return int(number) if number.isdigit() else None


def topic_id(directory: Path) -> str | None:
    """The topic id in `partition.metadata`, in Kafka's form; None without the file."""
    try:
        lines = (directory / "partition.metadata").read_text().splitlines()
    except OSError:
        return None
    pairs = dict(line.split(": ", 1) for line in lines if ": " in line)
    return pairs.get("topic_id")


def segments_below(directory: Path, end: int) -> list[Segment]:
    """All segments with offsets below `end`, in order.

    `end` must not be beyond the last stable offset, and must be determined before the files are
    listed.
    """
    bases = sorted(int(f.stem) for f in directory.glob("*.log") if f.stem.isdigit())
    found = [
        Segment(str(directory / f"{base:020}.log"), base, after)
        for base, after in pairwise([*bases, end])
        if base < end
    ]
    if found and found[-1].start == bases[-1]:
        found[-1] = replace(found[-1], growing=True)
    return found


def size_of(segment: Segment) -> int:
    """Bytes of a segment; 0 if it no longer exists."""
    try:
        return Path(segment.path).stat().st_size
    except FileNotFoundError:
        return 0


def aborted_transactions(directory: Path) -> list[Aborted]:
    """All aborted transactions in the partition's transaction indexes."""
    found = []
    for file in sorted(directory.glob("*.txnindex")):
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            continue
        whole = len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
        for _, producer_id, first, last, _ in ABORTED_ENTRY.iter_unpack(data[:whole]):
            found.append(Aborted(producer_id, first, last))
    return found


def position_of(segment: Segment, offset: int) -> int:
    """A position in the file at or before the batch with this offset, by the offset index."""
    try:
        data = Path(segment.path).with_suffix(".index").read_bytes()
    except FileNotFoundError:
        return 0
    low, high, best = 0, len(data) // INDEX_ENTRY.size, 0
    while low < high:
        middle = (low + high) // 2
        relative, position = INDEX_ENTRY.unpack_from(data, middle * INDEX_ENTRY.size)
        if segment.start + relative <= offset and (relative or not middle):
            best, low = position, middle + 1
        else:  # beyond the offset, or in the zeros after the last entry
            high = middle
    return best


def committed_batches(
    segment: Segment, start: int, end: int, aborted: list[Aborted]
) -> Iterator[memoryview]:
    """The batches with offsets from `start` to `end`, except control and aborted batches.

    Reads chunks of CHUNK_BYTES, or one batch if it is larger. Raises SegmentGone if the file is
    missing, a growing segment ends before `end`, or a batch has a format before v2; CorruptMessage
    if a length is impossible or the file ends inside a batch; UnindexedAbort if a marker shows that
    yielded batches were aborted although the transaction index does not list their transaction. A
    broker that was killed, or whose disk was full, may not have written the index entry.
    """
    undecided: set[int] = set()             # producers with batches since their last marker
    dropped: dict[int, list[Aborted]] = {}
    for one in aborted:
        dropped.setdefault(one.producer_id, []).append(one)
    with _opened(segment) as file:
        for batch in _batches(file, segment.path, position_of(segment, start)):
            header = BatchHeader(batch)
            base, producer_id = header.base_offset, header.producer_id
            if base >= end:
                return
            aborted_here = header.transactional and any(
                one.first <= base <= one.last for one in dropped.get(producer_id, ())
            )
            if header.control:
                if producer_id in undecided and _aborts(batch):
                    raise UnindexedAbort(
                        f"{segment.path}: the transaction of producer {producer_id} that ends at"
                        f" offset {base} was aborted, but is not in the transaction index; read"
                        " the topic from the broker once, so that the broker repairs the index"
                    )
                undecided.discard(producer_id)
            elif header.last_offset >= start and not aborted_here:
                if header.transactional:
                    undecided.add(producer_id)
                yield batch
            if header.next_offset >= end:
                return                      # the bytes after this batch may be incomplete
    if segment.growing:
        raise SegmentGone(f"{segment.path} ends before offset {end}")


def _aborts(batch: memoryview) -> bool:
    return any(control_type(each) == ControlType.ABORT for each in read_records(batch))


def _opened(segment: Segment) -> FileIO:
    try:
        return FileIO(segment.path)
    except FileNotFoundError:
        raise SegmentGone(segment.path) from None


def _batches(file: FileIO, path: str, position: int) -> Iterator[memoryview]:
    """Every batch from a position to the end of the file."""
    wanted = CHUNK_BYTES
    while True:
        file.seek(position)
        chunk = memoryview(file.read(wanted))
        used = 0
        for batch, used in batches_in(chunk, path, position):  # noqa: B007
            yield batch
        if used:
            position += used
            wanted = CHUNK_BYTES
        elif not chunk:
            return
        elif len(chunk) < wanted or wanted > CHUNK_BYTES:
            raise CorruptMessage(f"{path} ends inside the batch at position {position}")
        else:
            # one batch that is larger than a chunk
            wanted = _size(chunk, 0, f"{path} at byte {position}")


def batches_in(
    chunk: memoryview, where: str, position: int = 0
) -> Iterator[tuple[memoryview, int]]:
    """The whole batches at the beginning of a chunk, each with the position after it in the chunk.
    For errors, `where` and `position` say where the chunk begins."""
    used = 0
    while len(chunk) - used >= HEADER_BYTES:
        size = _size(chunk, used, f"{where} at byte {position + used}")
        if size > len(chunk) - used:
            return
        yield chunk[used : used + size], used + size
        used += size


def _size(chunk: memoryview, at: int, where: str) -> int:
    """The size of the batch that begins at `at`, after checking its length field."""
    header = BatchHeader(chunk[at:])
    if header.magic < 2:
        raise SegmentGone(f"{where}: the batch has format v{header.magic}, expected v2")
    if not HEADER_BYTES <= header.size <= BATCH_BYTES_MAX:
        raise CorruptMessage(
            f"{where}: the batch's size is {header.size} bytes, expected {HEADER_BYTES} to"
            f" {BATCH_BYTES_MAX}"
        )
    return header.size
