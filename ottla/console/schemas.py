"""Values in Confluent's wire format with an Avro or a Protobuf schema, as JSON.

    | 0 (1 byte) | schema id (4 bytes, big-endian) | Avro, or message indexes and Protobuf ... |

Schemas come from a registry, or from a directory with a file for each id, such as `7.avsc` or
`8.proto`. The file is in the directory itself or in a folder below it.
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
from typing import Any, NamedTuple

from ottla.client.errors import ClientError
from ottla.client.protobuf import compile_proto, message_class, message_path, plain
from ottla.client.schema_registry import get
from ottla.wire.environment import pip_install

PREFIX = 5
DECODED_MAX = 1 << 20
"""The size in bytes of the largest value that is decoded."""
SCHEMAS_MAX = 1000
MISSING_SECONDS = 30.0
"""After this time a missing schema is requested again."""


SUFFIXES = {"avsc": "AVRO", "proto": "PROTOBUF"}
Reader = Callable[[bytes], Any]


class NotDecoded(ClientError):
    """A value names a schema that is unknown or invalid, or that the value does not match."""


class Decoded(NamedTuple):
    """A value: the id and the kind of its schema, and the document."""

    schema: int
    kind: str
    document: Any


class Schemas:
    """The schemas of a directory or of a registry. Safe for use by threads."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.source, self.clock = source, clock
        self.lock = threading.Lock()
        self.known: dict[int, tuple[str, Reader]] = {}
        self.missing: dict[int, tuple[float, str]] = {}
        if not is_address(source) and not Path(source).is_dir():
            raise ClientError(f"--schemas {source}: the directory does not exist")
        try:
            import fastavro
        except ImportError:
            raise ClientError(f"--schemas needs fastavro: {pip_install('fastavro')}") from None
        self.library = fastavro

    def decoded(self, data: bytes | None) -> Decoded | None:
        """The content of a value; None if the value is not in Confluent's wire format, or is too
        large. Raises NotDecoded."""
        if data is None or not PREFIX < len(data) <= DECODED_MAX or data[0] != 0:
            return None
        [number] = struct.unpack_from(">I", data, 1)
        kind, read = self._schema(number)
        try:
            return Decoded(number, kind, read(data[PREFIX:]))
        except Exception as wrong:          # a library may raise any error for foreign bytes
            raise NotDecoded(
                f"the bytes are not a valid {kind} value of schema {number}: {wrong}") from wrong

    def _schema(self, number: int) -> tuple[str, Reader]:
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
            except Exception as wrong:      # fastavro's schema errors have no common base class
                self._note(number, f"schema {number} is not valid: {wrong}")
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

    def _read(self, number: int) -> tuple[str, Reader]:
        if is_address(self.source):
            answer = get(self.source.rstrip("/"), f"/schemas/ids/{number}")
            kind, text = answer.get("schemaType", "AVRO"), answer["schema"]
        else:
            kind, text = file_of(Path(self.source), number)
        if kind == "PROTOBUF":
            return "protobuf", protobuf_reader(compile_proto(text, f"{number}.proto"))
        if kind != "AVRO":
            raise ClientError(f"the schema is {kind}, neither Avro nor Protobuf")
        return "avro", self._avro_reader(json.loads(text))

    def _avro_reader(self, parsed: Any) -> Reader:
        named: dict[str, Any] = {}
        schema = self.library.parse_schema(parsed, named)
        if endless(schema, named):
            raise ClientError(
                "the schema has an array whose items take no bytes, so the array may be endless"
            )

        def read(payload: bytes) -> Any:
            stream = io.BytesIO(payload)
            document = self.library.schemaless_reader(stream, schema, None)
            if stream.read(1):
                raise ValueError("there are more bytes after the Avro value")
            return document

        return read


def protobuf_reader(compiled: bytes) -> Reader:
    """A reader of a schema's messages. A payload begins with Confluent's message indexes."""
    message_class(compiled, None)           # raises schema errors here, not at the first value

    def read(payload: bytes) -> Any:
        path, at = message_path(payload, 0)
        message = message_class(compiled, None, path).FromString(payload[at:])
        return plain(message, defaults=False)

    return read


def file_of(folder: Path, number: int) -> tuple[str, str]:
    """The kind and the text of a schema in a directory. Raises ClientError, OSError."""
    for suffix, kind in SUFFIXES.items():
        name = f"{number}.{suffix}"
        for place in (folder / name, *sorted(folder.glob(f"*/{name}"))):
            if place.is_file():
                return kind, place.read_text(encoding="utf-8")
    names = " or ".join(f"{number}.{suffix}" for suffix in SUFFIXES)
    raise ClientError(f"{folder} has no file {names}")


def is_address(source: str) -> bool:
    """Whether schemas come from a registry."""
    return source.startswith(("http://", "https://"))


def empty(schema: Any, named: dict[str, Any], within: tuple[int, ...] = ()) -> bool:
    """Whether a value of this schema may take no bytes at all."""
    if isinstance(schema, str):
        return schema == "null" or (schema in named and empty(named[schema], named, within))
    if not isinstance(schema, dict) or id(schema) in within:
        return False                        # a union takes a byte for the number of its branch
    kind, inside = schema["type"], (*within, id(schema))
    if kind in ("record", "error"):
        return all(empty(one["type"], named, inside) for one in schema["fields"])
    return bool(kind == "null" or (kind == "fixed" and schema["size"] == 0))


def endless(schema: Any, named: dict[str, Any]) -> bool:
    """Whether the schema has an array whose items may take no bytes. A few bytes would then encode
    any number of items."""
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
