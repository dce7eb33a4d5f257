"""Fuzzers for ottla.wire: messages, headers, batches, codecs, and the message formats before
batches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from ottla.wire.apis import APIS
from ottla.wire.batch import BatchLimits, BatchView, batches, check, recompress
from ottla.wire.checksum import crc32c_of
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.errors import MalformedMessage, ProtocolError, UnencodableMessage
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.legacy import codec_of, down_convert, read_message_set, up_convert
from ottla.wire.records import control_type, coordinator_epoch, read_records

KEYS = sorted(APIS)
PLAIN_SIZE_MAX = 1 << 20
NOW_MS = 1_700_000_000_000


def messages(data: bytes) -> None:
    """Any request or response is malformed, or is the same after it is encoded and decoded
    again."""
    if len(data) < 5:
        return
    kind, key, version = struct.unpack_from(">Bhh", data)
    api = APIS[KEYS[key % len(KEYS)]] if key not in APIS else APIS[key]
    version = api.versions[version % len(api.versions)]
    frame, message_class = data[5:], api.response if kind & 1 else api.request
    try:
        if kind & 1:
            size = response_header_size(api.key, version, frame)
        else:
            size = RequestHeader.decode(frame)[1]
        message = message_class.decode(frame[size:], version)
    except MalformedMessage:
        return
    try:
        again = message.encode(version)
    except UnencodableMessage:
        return
    back = message_class.decode(again, version)
    # A quota that is NaN is not equal to itself.
    assert back == message or repr(back) == repr(message), (api.name, version)


def record_batches(data: bytes) -> None:
    """A produced batch with a corrected checksum: if it is accepted, its records can be read and
    recompressed."""
    if not data:
        return
    options, body = data[0], bytearray(data[1:])
    if len(body) > 21 and not options & 128:
        body[17:21] = crc32c_of(bytes(body[21:])).to_bytes(4, "big")
    for view in whole_views(bytes(body)):
        quietly(view.records, PLAIN_SIZE_MAX)
    quietly(read_records, bytes(body), PLAIN_SIZE_MAX)
    limits = BatchLimits(
        decompressed_size_max=PLAIN_SIZE_MAX, now_ms=NOW_MS, log_append_time=bool(options & 1),
        compacted=bool(options & 2), zstd=not options & 4, timestamp_after_ms_max=1 << 62,
        codec=(options >> 3 & 7) % (len(Codec) + 1) - 1,
    )  # fmt: skip
    try:
        check(body, limits)
    except ProtocolError:
        return
    records = read_records(bytes(body), PLAIN_SIZE_MAX)
    assert [record.offset for record in records] == list(range(len(records)))
    for record in records:
        quietly(control_type, record)
        quietly(coordinator_epoch, record)
    again = recompress(bytearray(body), limits)
    assert read_records(bytes(again), PLAIN_SIZE_MAX) == records
    assert BatchView(bytes(again)).crc_holds()


def whole_views(data: bytes) -> list[BatchView]:
    """The batches in some bytes, up to the first damaged batch."""
    found: list[BatchView] = []
    try:
        found.extend(batches(data))
    except ProtocolError:
        pass
    return found


def quietly(function: Callable[..., object], *arguments: object) -> object:
    """The result of a call; None if the call refuses the bytes with ProtocolError."""
    try:
        return function(*arguments)
    except ProtocolError:
        return None


def codecs(data: bytes) -> None:
    """Compressed data are refused, or have at most the allowed size. Data that are compressed and
    decompressed stay the same."""
    if not data:
        return
    codec, body = Codec(data[0] % len(Codec)), data[1:]
    try:
        plain = decompress(codec, body, PLAIN_SIZE_MAX)
    except ProtocolError:
        plain = body
    assert len(plain) <= max(PLAIN_SIZE_MAX, len(body))
    assert decompress(codec, compress(codec, plain), PLAIN_SIZE_MAX) == plain


def legacy(data: bytes) -> None:
    """Message sets of formats v0 and v1 are refused, or converted up into batches. Batches are
    refused, or converted down into message sets that can be read."""
    if not data:
        return
    options, body = data[0], data[1:]
    quietly(codec_of, body)
    quietly(partial(read_message_set, body, size_max=PLAIN_SIZE_MAX))
    try:
        up = up_convert(body, size_max=PLAIN_SIZE_MAX, codec=None)
    except ProtocolError:
        up = b""
    for view in whole_views(up if up else body):
        for magic in (0, 1):
            try:
                down = down_convert(view.data, magic, first_offset=options, size_max=PLAIN_SIZE_MAX)
            except ProtocolError:
                continue
            read_message_set(down, size_max=PLAIN_SIZE_MAX)

