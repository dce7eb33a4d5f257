"""Bytes of a record as text that a page can show (JSON, text or hex), and how many bytes they are.

Pages put the text into text nodes, so it is never markup. Pages show control characters as symbols.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from ottla.console.schemas import NotDecoded, Schemas, as_json

SHOWN_MAX = 16 << 10
"""Bytes of a key or value in a list of records; a download has all bytes."""
HEADERS_MAX = 100
JSON_MAX = 1 << 20
JSON_STARTS = b'{["0123456789-tfn'


def shown(
    data: bytes | None, most: int = SHOWN_MAX, schemas: Schemas | None = None
) -> dict[str, Any] | None:
    """How a key or a value is shown: its kind, its text, its size, whether the text is truncated.
    With `schemas`, also the id of the value's schema, or why the value cannot be decoded."""
    if data is None:
        return None
    about: dict[str, Any] = {}
    if schemas is not None:
        try:
            if (found := schemas.decoded(data)) is not None:
                whole = as_json(found.document)
                return {"kind": found.kind, "text": whole[:most], "bytes": len(data),
                        "cut": len(whole) > most, "schema": found.schema}
        except NotDecoded as wrong:
            about = {"problem": str(wrong)}
    text, cut = data[:most], len(data) > most
    kind, said = "text", decoded(text, cut)
    if said is None or not readable(said):
        kind, said = "hex", text[: most // 4].hex(" ")
        cut = len(data) > most // 4
    elif not cut and is_json(text):
        kind = "json"
    return {"kind": kind, "text": said, "bytes": len(data), "cut": cut, **about}


def kind_of(data: bytes) -> str:
    """The kind of a key or value: json, text or hex. Examines the first JSON_MAX bytes only."""
    found = shown(data, JSON_MAX)
    assert found is not None
    return str(found["kind"])


def decoded(data: bytes, cut: bool) -> str | None:
    """The text; None if the data are not UTF-8. An incomplete last character is omitted."""
    for missing in range(4 if cut else 1):
        try:
            return data[: len(data) - missing].decode()
        except UnicodeDecodeError:
            continue
    return None


def readable(text: str) -> bool:
    """Whether a text has few control characters: otherwise it is binary."""
    sample = text[:2000]
    controls = sum(
        unicodedata.category(each) == "Cc" and each not in "\t\n\r" for each in sample
    )
    return controls * 10 <= len(sample)


def is_json(data: bytes) -> bool:
    """Whether these bytes are a JSON document."""
    if data.lstrip()[:1] not in [bytes([each]) for each in JSON_STARTS]:
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def document_of(data: bytes | None) -> Any:
    """The JSON document in some bytes; None if there is none, or if it exceeds JSON_MAX."""
    if not data or len(data) > JSON_MAX:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def headers_shown(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]]:
    """The first headers of a record."""
    return [
        {"name": name, "value": shown(value, 1024)} for name, value in (headers or [])[:HEADERS_MAX]
    ]
