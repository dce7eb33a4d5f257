"""Entries and snapshots as bytes: they are bounded, have one form, and are read only if nothing is
missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from ottla.replication import entries
from ottla.replication.entries import (
    EntryHeader,
    EntryTooLarge,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from ottla.replication.metadata import ConfigSet
from ottla.replication.records import UnreadableMetadata, encode_record
from ottla.wire.compression import Codec, compress, decompress

SETTING = ConfigSet("topic", "t", "retention.ms", "5")
HEADER = EntryHeader(1, 2, 7, "5f", 120, 2)
TEXT = (
    b'{"format":1,"controller":2,"epoch":7,"batch":"5f","offset":120,"records":2}\n'
    + b"\n".join([encode_record(SETTING)] * 2)
)


def test_an_entry_is_a_header_and_a_line_for_each_record() -> None:
    data = encode_entry(HEADER, [encode_record(SETTING)] * 2)
    assert decompress(Codec.ZSTD, data, 1 << 20) == TEXT
    entry = decode_entry(9, 77, data)
    assert (entry.number, entry.czxid, entry.header) == (9, 77, HEADER)
    assert entry.records == (SETTING, SETTING)


@pytest.mark.parametrize("name", ["ENTRY_RAW_SIZE_MAX", "ENTRY_SIZE_MAX"])
def test_an_entry_may_be_as_large_as_the_limits(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lines = [encode_record(SETTING)] * 2
    size = len(TEXT) if name == "ENTRY_RAW_SIZE_MAX" else len(encode_entry(HEADER, lines))
    monkeypatch.setattr(entries, name, size)
    assert decode_entry(1, 1, encode_entry(HEADER, lines)).header == HEADER
    monkeypatch.setattr(entries, name, size - 1)
    with pytest.raises(
        EntryTooLarge, match=rf"\b{size} bytes.* may take .*\b{size - 1}\b.*Split the change"
    ):
        encode_entry(HEADER, lines)


def test_an_entry_that_decompresses_to_more_than_the_limit_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = compress(Codec.ZSTD, TEXT)
    monkeypatch.setattr(entries, "ENTRY_RAW_SIZE_MAX", len(TEXT))
    decode_entry(1, 1, data)
    monkeypatch.setattr(entries, "ENTRY_RAW_SIZE_MAX", len(TEXT) - 1)
    with pytest.raises(UnreadableMetadata, match="entry 1 of the metadata log is not readable"):
        decode_entry(1, 1, data)


def packed(change: dict[str, Any], without: str = "") -> bytes:
    header = {key: value for key, value in (asdict(HEADER) | change).items() if key != without}
    return compress(Codec.ZSTD, json.dumps(header).encode() + b"\n" + TEXT.partition(b"\n")[2])


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "is not readable"), (b"else", "is not readable"),
    (compress(Codec.ZSTD, b""), "is not readable"), (compress(Codec.ZSTD, b"[]"), "not readable"),
    *((packed({name: "1"}), "not readable")
      for name in ("format", "controller", "epoch", "offset", "records")),
    (packed({"batch": 5}), "not readable"), (packed({"format": True}), "not readable"),
    (packed({"epoch": 1.0}), "not readable"), (packed({"more": 1}), "not readable"),
    (packed({}, "batch"), "not readable"), (packed({}, "offset"), "not readable"),
    (packed({"format": 0}), "has format 0, but this broker reads only format 1"),
    (packed({"format": 2}), "has format 2, but this broker reads only format 1"),
    (packed({"records": 1}), "has 2 records instead of 1"),
    (packed({"records": 3}), "has 2 records instead of 3"),
    (compress(Codec.ZSTD, TEXT.replace(b"ConfigSet", b"Unheard")), "entry 4 .*Unheard"),
])  # fmt: skip
def test_what_no_controller_has_written_is_not_read(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableMetadata, match=reason):
        decode_entry(4, 1, data)
    with pytest.raises(UnreadableMetadata):
        decode_snapshot(4, [data])


@pytest.mark.parametrize("size", [1, 7, 1 << 19])
def test_a_snapshot_is_cut_into_pieces_that_fit_into_nodes(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(entries, "PIECE_SIZE_MAX", size)
    pieces = encode_snapshot(HEADER, [SETTING] * 2)
    whole = b"".join(pieces)
    assert len(pieces) == -(-len(whole) // size)
    assert all(len(piece) == size for piece in pieces[:-1]) and 0 < len(pieces[-1]) <= size
    assert decode_snapshot(1, pieces) == (HEADER, (SETTING, SETTING))
    with pytest.raises(UnreadableMetadata, match="the snapshot at entry 1"):
        decode_snapshot(1, pieces[:-1])


def test_an_entry_and_its_checks_fit_into_what_zookeeper_takes() -> None:
    """jute.maxbuffer is 1 MiB by default."""
    assert entries.ENTRY_SIZE_MAX == entries.PIECE_SIZE_MAX == 524_288
    assert entries.ENTRY_RAW_SIZE_MAX == 4_194_304
