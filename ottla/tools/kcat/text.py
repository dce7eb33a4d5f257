"""How kcat writes records: formats, delimiters, JSON, and `-s` for packed values."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

from ottla.client.errors import ClientError
from ottla.tools.cli.record_format import TOKENS
from ottla.tools.kcat.options import Chosen, Misused

ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,3})|(.))", re.DOTALL)
NAMED = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
PACKED = "<>bBhHiIqQcs$"
KCAT_TOKENS = "sSRkKTtpoh%"
Show = Callable[[Any], bytes]


def escaped(text: str) -> bytes:
    """The bytes of a text in which escapes, such as \\n and \\xNN, are replaced."""
    out, at = [], 0
    for escape in ESCAPE.finditer(text):
        out.append(text[at : escape.start()].encode())
        if escape[1]:
            out.append(bytes([int(escape[1], 16) & 0xFF]))
        else:
            out.append(NAMED.get(escape[2], escape[2].encode()))
        at = escape.end()
    return b"".join([*out, text[at:].encode()])


class Unpacked:
    """Converts keys and values to text in the formats of -s."""

    def __init__(self, serdes: list[str]) -> None:
        self.key = self.value = ""
        for text in serdes:
            field, equals, format_ = text.partition("=")
            if not equals:
                self.key = self.value = text
            elif field in ("key", "value"):
                setattr(self, field, format_)
            else:
                raise Misused(f"-s {text}: expected key=… or value=…")
        for format_ in (self.key, self.value):
            wrong = set(format_) - set(PACKED)
            if wrong:
                raise Misused(f"-s {format_}: {min(wrong)!r} is not one of {' '.join(PACKED)}")

    def of(self, data: bytes | None, format_: str, what: str) -> bytes | None:
        """A key or value as kcat prints it: fields with spaces between them."""
        if data is None or not format_:
            return data
        order, at, out = ">", 0, []
        for letter in format_:
            if letter in "<>":
                order = letter
            elif letter == "s":
                out.append(data[at:])
                at = len(data)
            elif letter == "$":
                if at < len(data):
                    raise ClientError(
                        f"{what}: the format {format_!r} of -s does not use the last"
                        f" {len(data) - at} bytes")
            else:
                size = struct.calcsize(order + letter)
                if len(data) - at < size:
                    raise ClientError(
                        f"{what}: the format {format_!r} of -s needs {size} more bytes, but"
                        f" {len(data) - at} remain")
                [found] = struct.unpack_from(order + letter, data, at)
                out.append(found if letter == "c" else b"%d" % found)
                at += size
        return b" ".join(out)


def shower(chosen: Chosen, brokers: dict[tuple[str, int], int]) -> Show:
    """The function that converts a record to output. `brokers` has the partitions' leaders, which
    -J prints."""
    unpacked = Unpacked(chosen.serdes)
    null = b"NULL" if chosen.null else b""

    def parts(record: Any) -> tuple[bytes | None, bytes | None]:
        where = f"{record.topic} [{record.partition}] at offset {record.offset}"
        return (unpacked.of(record.key, unpacked.key, f"{where}: key"),
                unpacked.of(record.value, unpacked.value, f"{where}: value"))

    if chosen.json:
        return lambda record: enveloped(record, *parts(record), brokers)
    if chosen.format is not None:
        return formatted(chosen.format, parts, null)

    def plain(record: Any) -> bytes:
        key, value = parts(record)
        out = b""
        between = chosen.key_delimiter
        if between is not None:
            out += (key or null) + between
        return out + (value or null) + chosen.delimiter

    return plain


def formatted(
    text: str, parts: Callable[[Any], tuple[bytes | None, bytes | None]], null: bytes
) -> Show:
    """The function that converts a record to output in the format of -f."""
    pieces: list[bytes | str] = []
    at = 0
    for token in re.finditer(r"%(.)", text, re.DOTALL):
        if token[1] not in KCAT_TOKENS:
            raise Misused(f"Unsupported formatter: %{token[1]}")
        pieces += [escaped(text[at : token.start()]), token[1]]
        at = token.end()
    pieces.append(escaped(text[at:]))

    def piece_of(piece: str, record: Any, key: bytes | None, value: bytes | None) -> bytes:
        if piece in "ks":
            return (key if piece == "k" else value) or null     # kcat shows empty data as NULL too
        return TOKENS[piece](record)

    def show(record: Any) -> bytes:
        key, value = parts(record)
        return b"".join(
            piece if isinstance(piece, bytes) else piece_of(piece, record, key, value)
            for piece in pieces
        )

    return show


def enveloped(
    record: Any, key: bytes | None, value: bytes | None, brokers: dict[tuple[str, int], int]
) -> bytes:
    """The output of -J: one JSON object per line."""
    kinds = {0: "create", 1: "logappend"}
    fields: dict[str, Any] = {
        "topic": record.topic, "partition": record.partition, "offset": record.offset,
        "tstype": kinds.get(record.timestamp_type, "unknown"), "ts": record.timestamp,
        "broker": brokers.get((record.topic, record.partition), -1),
    }
    if record.headers:
        pairs: list[str | None] = []
        for name, held in record.headers:
            pairs += [name, None if held is None else readable(held)]
        fields["headers"] = pairs
    fields["key"] = None if key is None else readable(key)
    fields["payload"] = None if value is None else readable(value)
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def readable(data: bytes) -> str:
    """The bytes as text. Invalid bytes are replaced, since JSON cannot hold them."""
    return data.decode("utf-8", "replace")
