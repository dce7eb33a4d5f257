"""The lines of `ottla log dump` for a segment, or for a snapshot of KRaft's metadata."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.tools.batch_reader import Batch, LegacyBatch, codec_name, read_batches
from ottla.tools.json_form import as_json, text_of
from ottla.tools.kraft_records import quorum_record
from ottla.wire.batch import BatchView
from ottla.wire.checksum import crc32_of
from ottla.wire.errors import InvalidRecord, ProtocolError
from ottla.wire.records import Record, control_type, coordinator_epoch

if TYPE_CHECKING:
    from ottla.tools.decoders import Decoder
    from ottla.tools.findings import DumpFindings

INT_MAX = 2**31 - 1
SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
TIMESTAMP_TYPES = {None: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def java_bool(value: bool) -> str:
    """A boolean as Java prints it."""
    return "true" if value else "false"


def java_optional(value: int | None) -> str:
    """An OptionalLong as Java prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def dump_log(
    path: str, options: Namespace, decoder: Decoder | None, findings: DumpFindings
) -> Iterator[str]:
    """A line for every batch. With --deep-iteration or a decoder, also a line for every record.
    Raises OSError, ValueError, DamagedFile, NotDecodable.

    Damage and offsets that are not consecutive go to `findings`.
    """
    yield first_line(path)
    deep = options.deep_iteration or decoder is not None
    end, previous = 0, -1
    size = os.stat(path).st_size        # before reading: a broker may append batches meanwhile
    pairs: dict[int, int] = {}
    for position, batch in read_batches(path, options.max_bytes):
        end = position + batch.size
        is_valid = batch.crc_holds()
        yield batch_line(batch, position, is_valid)
        if not is_valid:
            findings.damage(path)
        if not deep:
            continue
        try:
            records = batch.records()
        except ProtocolError as error:
            findings.damage(
                path, f"{path}: the batch at byte {position} cannot be read: {error}")
            continue
        for record in records:
            if record.offset != previous + 1:
                pairs[previous] = record.offset
            previous = record.offset
            yield record_line(batch, record, options.skip_record_metadata, decoder)
    trailing = size - end
    if trailing > 0 and options.max_bytes == INT_MAX:
        findings.damage(path)
        yield f"Found {trailing} invalid bytes at the end of {os.path.basename(path)}"
    if pairs:
        lines = [f"  {before} is followed by {after}" for before, after in sorted(pairs.items())]
        title = f"Non-consecutive offsets in {os.path.abspath(path)}"
        findings.texts.append("\n".join([title, *lines]))


def first_line(path: str) -> str:
    """The first line about a file: the offset in its name."""
    name = os.path.basename(path)
    if name.endswith(".checkpoint"):
        if name == "bootstrap.checkpoint":
            return "KRaft bootstrap snapshot"
        match = SNAPSHOT_NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"{path} is not the name of a snapshot: expected offset-epoch.checkpoint"
            )
        return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"
    base = name.split(".")[0]
    if not base.isdecimal():
        raise ValueError(
            f"{path} is not a segment: its name must begin with the first offset, in 20 digits"
        )
    return f"Log starting offset: {int(base)}"


def batch_line(batch: Batch, position: int, is_valid: bool) -> str:
    """A batch's header."""
    if isinstance(batch, LegacyBatch):
        front, magic = f"offset: {batch.last_offset}", batch.magic
    else:
        magic = 2
        front = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.record_count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {java_bool(batch.transactional)} "
            f"isControl: {java_bool(batch.control)} "
            f"deleteHorizonMs: {java_optional(batch.delete_horizon_ms)}"
        )
    return (
        f"{front} position: {position} {TIMESTAMP_TYPES[batch.timestamp_type]}: "
        f"{batch.max_timestamp} size: {batch.size} magic: {magic} "
        f"compresscodec: {codec_name(batch.codec)} crc: {batch.crc} "
        f"isvalid: {java_bool(is_valid)}"
    )


def record_line(
    batch: Batch, record: Record, without_metadata: bool, decoder: Decoder | None
) -> str:
    """A record's key and value. Its metadata comes first, unless `without_metadata` is set."""
    line = "" if without_metadata else "| " + record_metadata(batch, record)
    if decoder is None or (isinstance(batch, BatchView) and batch.control):
        return line
    key, value = decoder(record)
    shown = [text for text in (key and f"key: {key}", value and f"payload: {value}") if text]
    if key == "":
        shown.insert(0, "key: ")
    if value == "":
        shown.append("payload: ")
    if not shown:
        return line
    return ("| " if without_metadata else line + " ") + " ".join(shown)


def record_metadata(batch: Batch, record: Record) -> str:
    """A record's metadata, without its key and value."""
    timestamp = record.timestamp
    if batch.timestamp_type == 1:
        timestamp = batch.max_timestamp
    line = (
        f"offset: {record.offset} {TIMESTAMP_TYPES[batch.timestamp_type]}: {timestamp} "
        f"keySize: {size_of(record.key)} valueSize: {size_of(record.value)}"
    )
    if isinstance(batch, LegacyBatch):
        valid, crc = batch.crc_holds(), batch.crc
        if batch.codec:
            valid, crc = True, inner_crc(batch, record)
        return f"{line} isValid: {java_bool(valid)} crc: {crc}"
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & INT_MAX
    line += f" sequence: {sequence} headerKeys: [{','.join(key for key, _ in record.headers)}]"
    return line + control_text(record) if batch.control else line


def size_of(data: bytes | None) -> int:
    """The size in bytes; -1 for null."""
    return -1 if data is None else len(data)


def inner_crc(batch: LegacyBatch, record: Record) -> int:
    """The checksum of a message inside a compressed message."""
    body = bytes([batch.magic, 0])
    if batch.magic:
        body += record.timestamp.to_bytes(8, "big", signed=True)
    for data in (record.key, record.value):
        body += size_of(data).to_bytes(4, "big", signed=True) + (data or b"")
    return crc32_of(body)


def control_text(record: Record) -> str:
    """The content of a control record."""
    try:
        kind = control_type(record)
        if kind is not None:
            return f" endTxnMarker: {kind.name} coordinatorEpoch: {coordinator_epoch(record)}"
    except InvalidRecord as error:
        return f" controlType: {error}"
    number = int.from_bytes((record.key or b"")[2:4], "big")
    found = quorum_record(number, record)
    if found is None:
        return f" controlType: UNKNOWN({number})"
    label, message, version = found
    return f" {label} {text_of(as_json(message, version))}"
