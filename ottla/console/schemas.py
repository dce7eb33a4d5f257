"""Values in Confluent's wire format with an Avro schema, as JSON.

    | 0 (1 byte) | schema id (4 bytes, big-endian) | Avro ... |

Schemas come from a registry, or from a directory with a file for each id: `7.avsc`, there or in a
folder below it.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.client.errors import ClientError
from ottla.client.schema_registry import get

PREFIX = 5
DECODED_MAX = 1 << 20
"""Bytes of a value that is decoded."""
SCHEMAS_MAX = 1000
MISSING_SECONDS = 30.0
"""A schema that was not found is not asked for again so soon."""


class NotDecoded(ClientError):
    """A value has a schema, but cannot be read with it."""


class Schemas:
    """The schemas of a directory or of a registry. Threads share it."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.source, self.clock = source, clock
        self.lock = threading.Lock()
        self.known: dict[int, Any] = {}
        self.missing: dict[int, tuple[float, str]] = {}
        if not is_address(source) and not Path(source).is_dir():
            raise ClientError(f"--schemas {source}: there is no such directory")
        try:
            import fastavro
        except ImportError:
            raise ClientError("--schemas needs fastavro: pip install fastavro") from None
        self.library = fastavro

    def decoded(self, data: bytes | None) -> tuple[int, Any] | None:
        """The schema's id and the document; None for a value that is not in this format. Raises
        NotDecoded."""
        if data is None or not PREFIX < len(data) <= DECODED_MAX or data[0] != 0:
            return None
        [number] = struct.unpack_from(">I", data, 1)
        schema = self._schema(number)
        stream = io.BytesIO(data[PREFIX:])
        try:
            document = self.library.schemaless_reader(stream, schema, None)
        except Exception as wrong:          # whatever a library meets in foreign bytes
            raise NotDecoded(f"it is not Avro of schema {number}: {wrong}") from wrong
        if stream.read(1):
            raise NotDecoded(f"it is longer than Avro of schema {number}")
        return number, document

    def _schema(self, number: int) -> Any:
        with self.lock:
            if number in self.known:
                return self.known[number]
            asked_at, reason = self.missing.get(number, (float("-inf"), ""))
            if self.clock() - asked_at < MISSING_SECONDS:
                raise NotDecoded(reason)
            try:
                found = self._read(number)
            except (ClientError, OSError, ValueError, KeyError, TypeError) as failed:
                self._note(number, f"schema {number} is not known: {failed}")
            except Exception as wrong:      # fastavro's errors of schemas have no common base
                self._note(number, f"schema {number} is not an Avro schema: {wrong}")
            else:
                if len(self.known) >= SCHEMAS_MAX:
                    self.known.pop(next(iter(self.known)))
                self.known[number] = found
                return found
            raise NotDecoded(self.missing[number][1])

    def _note(self, number: int, reason: str) -> None:
        if len(self.missing) >= SCHEMAS_MAX:
            self.missing.pop(next(iter(self.missing)))
        self.missing[number] = (self.clock(), reason)

    def _read(self, number: int) -> Any:
        if is_address(self.source):
            answer = get(self.source.rstrip("/"), f"/schemas/ids/{number}")
            kind, text = answer.get("schemaType", "AVRO"), answer["schema"]
            if kind != "AVRO":
                raise ClientError(f"it is {kind}, not Avro")
        else:
            folder = Path(self.source)
            name = f"{number}.avsc"
            place = next((one for one in (folder / name, *sorted(folder.glob(f"*/{name}")))
                          if one.is_file()), None)
            if place is None:
                raise ClientError(f"{folder} has no {name}")
            text = place.read_text(encoding="utf-8")
        named: dict[str, Any] = {}
        schema = self.library.parse_schema(json.loads(text), named)
        if endless(schema, named):
            raise ClientError("it has an array of values without bytes, which may be endless")
        return schema


def is_address(source: str) -> bool:
    """Whether schemas come from a registry."""
    return source.startswith(("http://", "https://"))


def empty(schema: Any, named: dict[str, Any], within: tuple[int, ...] = ()) -> bool:
    """Whether a value of this schema may have no bytes at all."""
    if isinstance(schema, str):
        return schema == "null" or (schema in named and empty(named[schema], named, within))
    if not isinstance(schema, dict) or id(schema) in within:
        return False                        # a union has the number of its branch
    kind, inside = schema["type"], (*within, id(schema))
    if kind in ("record", "error"):
        return all(empty(one["type"], named, inside) for one in schema["fields"])
    return bool(kind == "null" or (kind == "fixed" and schema["size"] == 0))


def endless(schema: Any, named: dict[str, Any]) -> bool:
    """Whether an array's items may have no bytes: a few bytes would then stand for any number of
    them."""
    if isinstance(schema, list):
        return any(endless(one, named) for one in schema)
    if not isinstance(schema, dict):
        return False
    inside = [schema.get("items"), schema.get("values"),
              *(one["type"] for one in schema.get("fields", ()))]
    if schema["type"] == "array" and empty(schema["items"], named):
        return True
    return any(endless(one, named) for one in inside if one is not None)


def as_json(document: Any) -> str:
    """A document as JSON text: bytes as base64, times and decimals as text."""
    def other(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return str(value)

    return json.dumps(document, default=other, ensure_ascii=False)
