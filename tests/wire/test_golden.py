"""Frames recorded between stock clients and Apache Kafka decode, and encode back to their bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.wire.apis import APIS
from ottla.wire.errors import MalformedMessage
from ottla.wire.headers import RequestHeader, encode_response_header, response_header_size
from tests.golden.frames import Frame, files, frames

FILES = [name for name in files() if name != "17-sasl-token.jsonl.gz"]
UNKNOWN_TAGS = {("Produce", 9), ("Produce", 10), ("Produce", 11), ("Produce", 12), ("Produce", 13)}
UNKNOWN_TAGS |= {("Fetch", version) for version in range(12, 19)} | {("ApiVersions", 4)}
CUTS_MAX = 60
MUTATIONS = 8


def split(frame: Frame) -> tuple[bytes, bytes, bytes, Any, int]:
    """Returns the header, the header encoded again, the body, and the body's class and version."""
    api = APIS[frame.key]
    version = frame.version if frame.body_version is None else frame.body_version
    if frame.direction == "request":
        header, size = RequestHeader.decode(frame.frame)
        assert (header.api_key, header.version) == (frame.key, frame.version)
        again = header.encode()
        message_class = api.request
    else:
        size = response_header_size(frame.key, frame.version, frame.frame)
        correlation_id = int.from_bytes(frame.frame[:4], "big", signed=True)
        again = encode_response_header(frame.key, frame.version, correlation_id)
        message_class = api.response
    return frame.frame[:size], again, frame.frame[size:], message_class, version


@pytest.mark.parametrize("file_name", FILES)
def test_recorded_frames_encode_back_to_their_bytes(file_name: str) -> None:
    shorter = set()
    for frame in frames(file_name):
        header, header_again, body, message_class, version = split(frame)
        message = message_class.decode(body, version)
        again = message.encode(version)
        if frame.trailing_bytes:
            assert again == body[: -frame.trailing_bytes]
        elif header_again + again != frame.frame:
            # Fields of a future version are dropped; the rest is the same message.
            assert len(header_again + again) < len(frame.frame)
            assert message_class.decode(again, version) == message
            shorter.add((frame.api, frame.version))
        else:
            assert header_again == header
    assert shorter == {pair for pair in UNKNOWN_TAGS if pair[0] == frame.api}


@pytest.mark.parametrize("file_name", FILES)
def test_truncated_frames_raise_malformed_message(file_name: str) -> None:
    rng = random.Random(file_name)
    for frame in frames(file_name):
        _, _, body, message_class, version = split(frame)
        size = len(message_class.decode(body, version).encode(version))
        if size < len(body):
            continue        # unknown tags or trailing bytes: `size` is not the frame's end
        for cut in sorted(rng.sample(range(size), min(size, CUTS_MAX))):
            with pytest.raises(MalformedMessage):
                message_class.decode(body[:cut], version)


@pytest.mark.parametrize("file_name", FILES)
def test_mutated_frames_raise_nothing_but_malformed_message(file_name: str) -> None:
    rng = random.Random(file_name)
    for frame in frames(file_name):
        _, _, body, message_class, version = split(frame)
        for _ in range(MUTATIONS if body else 0):
            mutated = bytearray(body)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(mutated))
                run = rng.choice((1, 1, 2, 4))
                mutated[at : at + run] = rng.choice(
                    (rng.randbytes(run), b"\xff" * run, b"\x7f" * run, b"\x00" * run)
                )
            try:
                message_class.decode(bytes(mutated), version).encode(version)
            except MalformedMessage:
                pass


@pytest.mark.parametrize("file_name", FILES[:10])
def test_mutated_headers_raise_nothing_but_malformed_message(file_name: str) -> None:
    rng = random.Random(file_name)
    for frame in frames(file_name):
        if frame.direction == "request":
            mutated = bytearray(frame.frame[:40])
            mutated[rng.randrange(8, len(mutated))] = rng.randrange(256)
            try:
                RequestHeader.decode(bytes(mutated))
            except MalformedMessage:
                pass
