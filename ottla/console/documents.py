"""Documents as JSON. A thread encodes long documents in pieces, because no other Python code runs
while `json` encodes a piece. A list of ten thousand topics in one piece would take 30 ms.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

PIECE = 500
"""Rows per piece."""


async def encoded(document: Any) -> bytes:
    """The JSON of a document."""
    if is_long(document):
        return await asyncio.to_thread(bytes_of, document)
    return bytes_of(document)


def bytes_of(document: Any) -> bytes:
    """The JSON of a document, encoded in this thread."""
    return text_of(document).encode()


def is_long(document: Any) -> bool:
    """Whether the document has a long list, which is encoded in pieces."""
    if isinstance(document, dict):
        return any(map(is_long, document.values()))
    return isinstance(document, list) and len(document) > PIECE


def text_of(document: Any) -> str:
    """The JSON as text, without spaces."""
    if not is_long(document):
        return json.dumps(document, separators=(",", ":"))
    if isinstance(document, dict):
        fields = (f"{text_of(name)}:{text_of(value)}" for name, value in document.items())
        return f"{{{','.join(fields)}}}"
    pieces = (text_of(document[at : at + PIECE])[1:-1] for at in range(0, len(document), PIECE))
    return f"[{','.join(pieces)}]"


def event(name: str, value: Any) -> bytes:
    """A server-sent event with a value as JSON."""
    return framed(name, bytes_of(value))


def framed(name: str, data: bytes) -> bytes:
    """A server-sent event with these bytes as its data."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
