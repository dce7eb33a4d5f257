"""Entries and snapshots of a cluster's metadata log, as they are stored in ZooKeeper.

An entry is one write: a line of JSON that names the writer, then one line for each record, encoded
as in `records`. The whole text is compressed with zstd. A snapshot has the same form, split into
pieces.

    {"format":1,"controller":1,"epoch":7,"batch":"5f…","offset":120,"records":2}
    ["ConfigSet",{…}]
    ["TopicDeleted",{…}]

`offset` is the number of records before the entry; for a snapshot, the number of records that it
replaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ottla.replication.records import (
    GARBAGE,
    UnreadableMetadata,
    decode_record,
    encode_record,
)
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.errors import CorruptMessage, ErrorCode, InvalidRecord, ProtocolError

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataRecord

FORMAT = 1
ENTRY_SIZE_MAX = 512 << 10
"""The largest compressed entry. The multi that writes it must fit into ZooKeeper's jute.maxbuffer,
which is 1 MiB by default."""
ENTRY_RAW_SIZE_MAX = 4 << 20
PIECE_SIZE_MAX = 512 << 10
SNAPSHOT_RAW_SIZE_MAX = 1 << 30


class EntryTooLarge(ProtocolError):
    """A decision does not fit into one entry."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The writer of an entry, and its place in the log. `batch` is random: a controller that does
    not know whether its write succeeded recognises its entry by `batch`."""

    format: int
    controller: int
    epoch: int
    batch: str
    offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry with its number and the ZooKeeper transaction that created it."""

    number: int
    czxid: int
    header: EntryHeader
    records: tuple[MetadataRecord, ...]


def encode_entry(header: EntryHeader, encoded: Iterable[bytes]) -> bytes:
    """The bytes of an entry with these encoded records. Raises EntryTooLarge."""
    raw = _lines(header, encoded)
    packed = compress(Codec.ZSTD, raw)
    if len(raw) > ENTRY_RAW_SIZE_MAX or len(packed) > ENTRY_SIZE_MAX:
        raise EntryTooLarge(
            f"The change takes {len(packed)} bytes in the cluster's metadata log ({len(raw)} bytes"
            f" before compression). An entry of the log may take at most {ENTRY_SIZE_MAX} bytes"
            f" ({ENTRY_RAW_SIZE_MAX} bytes before compression). Split the change into several"
            " requests."
        )
    return packed


def decode_entry(number: int, czxid: int, data: bytes) -> Entry:
    """Decode what `encode_entry` wrote. Raises UnreadableMetadata."""
    header, records = _read(f"entry {number} of the metadata log", data, ENTRY_RAW_SIZE_MAX)
    return Entry(number, czxid, header, records)


def encode_snapshot(header: EntryHeader, records: Iterable[MetadataRecord]) -> list[bytes]:
    """A snapshot as pieces, each small enough for a node."""
    packed = compress(Codec.ZSTD, _lines(header, map(encode_record, records)))
    return [packed[at : at + PIECE_SIZE_MAX] for at in range(0, len(packed), PIECE_SIZE_MAX)]


def decode_snapshot(
    entry: int, pieces: Sequence[bytes]
) -> tuple[EntryHeader, tuple[MetadataRecord, ...]]:
    """Decode what `encode_snapshot` wrote. Raises UnreadableMetadata."""
    name = f"the snapshot at entry {entry} of the metadata log"
    return _read(name, b"".join(pieces), SNAPSHOT_RAW_SIZE_MAX)


def _lines(header: EntryHeader, encoded: Iterable[bytes]) -> bytes:
    first = json.dumps(asdict(header), separators=(",", ":")).encode()
    return b"\n".join([first, *encoded])


def _read(
    name: str, data: bytes, size_max: int
) -> tuple[EntryHeader, tuple[MetadataRecord, ...]]:
    try:
        first, *lines = decompress(Codec.ZSTD, data, size_max).split(b"\n")
        header = EntryHeader(**json.loads(first))
        numbers = (header.format, header.controller, header.epoch, header.offset, header.records)
        if any(type(each) is not int for each in numbers) or type(header.batch) is not str:
            raise TypeError(f"a field of the header has a wrong type: {header}")
    except (CorruptMessage, InvalidRecord, *GARBAGE) as error:
        raise UnreadableMetadata(f"{name} is not readable: {error!r}") from error
    if header.format != FORMAT:
        raise UnreadableMetadata(
            f"{name} has format {header.format}, but this broker reads only format {FORMAT}:"
            " upgrade this broker"
        )
    if header.records != len(lines):
        raise UnreadableMetadata(
            f"{name} has {len(lines)} records instead of {header.records}"
        )
    try:
        return header, tuple(decode_record(line) for line in lines)
    except UnreadableMetadata as error:
        raise UnreadableMetadata(f"{name}: {error}") from error
