"""Reads the recorded frames beside this file; README.md describes them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Frame:
    """One frame, which begins with its header: the four bytes of its length are left out."""

    api: str
    key: int
    """-1 for a SASL token, which travels without a header."""
    version: int
    direction: str
    """"request" or "response"."""
    client: str
    """Who sent the request or got the response."""
    broker: str
    """Version of Apache Kafka at the other end."""
    frame: bytes
    body_version: int | None = None
    """The version of the body where it differs from the request's."""
    trailing_bytes: int = 0
    """Bytes after the end of the message, sent by the client."""


def files() -> list[str]:
    """The names of the files, one for each API, in the order of their keys."""
    return sorted(path.name for path in FOLDER.glob("*.jsonl.gz"))


def frames(file_name: str) -> Iterator[Frame]:
    """The frames of one file."""
    with gzip.open(FOLDER / file_name, "rt") as lines:
        for line in lines:
            fields = json.loads(line)
            yield Frame(frame=base64.b64decode(fields.pop("frame_base64")), **fields)
