"""The seeds from which the fuzzers begin. Most of them are frames that stock clients and Apache
Kafka sent."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.wire.compression import Codec, compress
from ottla.wire.records import ControlType, Record, build_batch, build_marker
from tests.golden.frames import Frame, files, frames

SEED_SIZE_MAX = 4096
"""Larger seeds slow a fuzzer down and add nothing that smaller ones do not have."""


def recorded(direction: str | None = None) -> Iterator[Frame]:
    """Yields the recorded frames of at most SEED_SIZE_MAX bytes, of one direction or of both."""
    for name in files():
        for frame in frames(name):
            if direction in (None, frame.direction) and len(frame.frame) <= SEED_SIZE_MAX:
                yield frame


def message_seeds() -> list[bytes]:
    """For `messages`: the kind, the API key and the version before the whole frame."""
    return [
        struct.pack(">Bhh", frame.direction == "response", frame.key, frame.version) + frame.frame
        for frame in recorded()
        if frame.key >= 0
    ]


def batches() -> list[bytes]:
    """Record batches of every codec and kind, and batches that stock clients produced."""
    records = [
        Record(-1, 1_700_000_000_000 + at, b"k%d" % at, b"v" * 9, [("h", b"x")])
        for at in range(3)
    ]
    made = [build_batch(records, codec=codec) for codec in Codec]
    made.append(build_batch(
        records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    ))  # fmt: skip
    made.append(build_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1,
    ))  # fmt: skip
    return made + [
        frame.frame[at:]
        for frame in recorded("request")
        if frame.key == 0 and (at := batch_start(frame.frame)) >= 0
    ]


def batch_start(frame: bytes) -> int:
    """Where the first record batch of a produce request begins; -1 if there is none."""
    for at in range(len(frame) - 61):
        size = int.from_bytes(frame[at + 8 : at + 12], "big")
        if frame[at : at + 8] == bytes(8) and frame[at + 16] == 2 and 49 <= size <= len(frame) - at:
            return at
    return -1


def batch_seeds() -> list[bytes]:
    """For `record_batches` and `legacy`: a byte of options before the batch."""
    return [bytes([option]) + data for data in batches() for option in (0, 5)]


def legacy_seeds() -> list[bytes]:
    """For `legacy`: message sets of formats v0 and v1, and batches to be converted down."""
    from ottla.wire.legacy import down_convert

    old = [
        bytes([magic]) + down_convert(data, magic)
        for data in batches()[: len(Codec)]
        for magic in (0, 1)
    ]
    return old + batch_seeds()


def codec_seeds() -> list[bytes]:
    """For `codecs`: the codec's number before the compressed data."""
    texts = (b"", b"abc" * 50, bytes(range(256)) * 5)
    return [bytes([codec]) + compress(codec, text) for codec in Codec for text in texts]


def sized(frame: bytes) -> bytes:
    """A frame after its length, as on a connection."""
    return struct.pack(">i", len(frame)) + frame


def stream_seeds() -> list[bytes]:
    """For `listeners`: a byte that chooses the listener and whether the client speaks TLS, then
    frames with their lengths."""
    requests = [frame for frame in recorded("request") if len(frame.frame) < 600]
    plain = [b"\0" + sized(frame.frame) for frame in requests if frame.key >= 0]
    inside_tls = [b"\x82" + seed[1:] for seed in plain]
    logins = [frame.frame for frame in requests if frame.key in (17, 18, 36)]
    pairs = [
        bytes([listener]) + sized(a) + sized(b)
        for listener in (1, 3, 0x83)
        for a in logins[::3]
        for b in logins[::5]
    ]
    tokens = [frame.frame for frame in requests if frame.key == -1]
    shakes = [frame.frame for frame in requests if frame.key == 17 and frame.version == 0]
    bare = [
        bytes([listener]) + sized(shake) + sized(token)
        for listener in (1, 0x83) for shake in shakes[:4] for token in tokens
    ]
    before_tls = [b"\2" + client_hello(), b"\2GET / HTTP/1.1\r\n\r\n"]
    return plain[::4] + inside_tls[2::4] + pairs + bare + before_tls


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    import ssl

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()
