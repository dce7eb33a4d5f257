"""The description of a topic's values: their format and schema. `formats` reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.spark_interop import schemas as schema_store
from ottla.spark_interop.errors import PipelineError, WrongOption

FORMATS = ("raw", "text", "json", "avro", "protobuf")
MODES = ("permissive", "failfast")
DECODED, PROBLEM = "__decoded", "_error"
CONFLUENT_MAGIC = 0
CONFLUENT_PREFIX = 5


@dataclass(frozen=True)
class Format:
    """The format of a topic's values.

    `name` is one of raw, text, json, avro, protobuf. `schema` is for json a StructType or a DDL
    text, for avro an Avro schema as JSON, and for protobuf the text of a .proto file. It may also
    be the path of a file that contains one of these texts. `schemas` is a directory of schemas, or
    the address of a registry. With `schemas`, values are in Confluent's wire format, each with the
    id of its schema; `schema` may then be the one with which all values are read (Avro's reader
    schema). `subject` is the subject in the registry, by default `TOPIC-value`. `message` is the
    full name of the protobuf message, by default the first message of the file.
    """

    name: str = "raw"
    schema: Any = None
    schemas: str | Path | None = None
    subject: str | None = None
    message: str | None = None
    known: schema_store.Schemas | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise WrongOption(
                f"{self.name!r} is not valid for `format`: the formats are {', '.join(FORMATS)}",
                "format")
        if self.name in ("raw", "text") and (self.schema or self.schemas):
            raise WrongOption(
                f"the format {self.name} has no schema: name another format with `format` (json,"
                " avro, protobuf), or leave out `schema` and `schemas`", "format", "schema",
                "schemas",
            )
        if self.name == "json" and self.schema is None:
            raise WrongOption(
                "`schema` is missing: the format json needs one, e.g. 'carrier STRING, delay INT'",
                "schema")
        if self.name in ("avro", "protobuf") and self.schema is None and self.schemas is None:
            raise WrongOption(
                f"the format {self.name} needs `schema`, or `schemas` (a directory or a registry)",
                "schema", "schemas",
            )

    def at(self, topic: str) -> Format:
        """This format with the schemas of the topic's subject loaded."""
        if self.schemas is None or self.known is not None:
            return self
        subject = self.subject or f"{topic}-value"
        known = schema_store.load(self.schemas, subject, self.name)
        return Format(self.name, self.schema, self.schemas, subject, self.message, known)

    @property
    def text(self) -> str:
        """The schema as text, read from the file if `schema` is a path."""
        given = self.schema
        if isinstance(given, Path) or (
            isinstance(given, str) and given.endswith((".avsc", ".proto", ".ddl", ".json"))
        ):
            try:
                return Path(given).read_text()
            except (OSError, UnicodeDecodeError) as error:
                why = error if isinstance(error, OSError) else "it is not UTF-8"
                raise PipelineError(f"the schema {given} cannot be read: {why}") from error
        return str(given)
