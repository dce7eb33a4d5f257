"""Protobuf values in Spark, by the official Python library: no jar, no generated classes.

A .proto text is compiled to a descriptor set once, in the driver; the workers create the message
class from it. A record is converted to JSON, which Spark reads as typed columns with the schema
derived from the descriptor.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.client import protobuf
from ottla.client.protobuf import (
    NESTING_MAX,
    TIMESTAMP,
    BadProto,
    is_map,
    kind_of,
    message_path,
    plain,
)
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.value_format import (
    CONFLUENT_MAGIC,
    CONFLUENT_PREFIX,
    DECODED,
    PROBLEM,
    Format,
)

JSON_TEXT = "__json"


@contextmanager
def for_pipelines() -> Iterator[None]:
    """Turns errors in a .proto text into PipelineError."""
    try:
        yield
    except BadProto as wrong:
        raise PipelineError(str(wrong)) from wrong


def compile_proto(text: str, name: str = "schema.proto") -> bytes:
    """The FileDescriptorSet of a .proto text. Raises PipelineError if the text is not valid."""
    with for_pipelines():
        return protobuf.compile_proto(text, name)


def message_class(compiled: bytes, name: str | None, path: tuple[int, ...] = (0,)) -> Any:
    """The class of a message. Raises PipelineError if there is no such message."""
    with for_pipelines():
        return protobuf.message_class(compiled, name, path)


def spark_type(descriptor: Any, depth: int = 0) -> Any:
    """The StructType of a message. Raises PipelineError if it nests too deeply or contains
    itself."""
    from pyspark.sql import types as t

    if depth > NESTING_MAX:
        raise PipelineError(
            f"message type {descriptor.full_name} is nested more than {NESTING_MAX} levels deep")
    plain = {
        "double": t.DoubleType(), "float": t.FloatType(), "bool": t.BooleanType(),
        "string": t.StringType(), "enum": t.StringType(), "bytes": t.BinaryType(),
        "int32": t.IntegerType(), "int64": t.LongType(), "uint32": t.LongType(),
        "uint64": t.DecimalType(20, 0),
    }  # fmt: skip

    def of(item: Any) -> Any:
        if item.message_type is None:
            return plain[kind_of(item)]
        if item.message_type.full_name == TIMESTAMP:
            return t.TimestampType()
        return spark_type(item.message_type, depth + 1)

    fields = []
    for item in descriptor.fields:
        if is_map(item):
            pair = item.message_type.fields_by_name
            kind = t.MapType(t.StringType(), of(pair["value"]))
        else:
            kind = t.ArrayType(of(item)) if item.is_repeated else of(item)
        fields.append(t.StructField(item.name, kind))
    return t.StructType(fields)


def reader(compiled: dict[int, bytes], name: str | None, framed: bool) -> Callable[[bytes], str]:
    """A function that converts a value to JSON; it raises ValueError with the reason."""

    expected = message_class(compiled[max(compiled)], name).DESCRIPTOR.full_name

    def read(value: bytes) -> str:
        at, number = 0, 0
        path: tuple[int, ...] = (0,)
        if framed:
            if len(value) < CONFLUENT_PREFIX or value[0] != CONFLUENT_MAGIC:
                raise ValueError(
                    "the value lacks the prefix of Confluent's wire format: byte 0 and a schema id"
                )
            number = struct.unpack(">I", value[1:5])[0]
            if number not in compiled:
                known = ", ".join(map(str, sorted(compiled)))
                raise ValueError(
                    f"schema id {number} is unknown (known: {known}); restart the query to read "
                    "new schemas"
                )
        try:
            if framed:
                path, at = message_path(value, CONFLUENT_PREFIX)
            kind = protobuf.message_class(compiled[number], None if framed else name, path)
            if kind.DESCRIPTOR.full_name != expected:
                raise ValueError(
                    f"its message type is {kind.DESCRIPTOR.full_name}, expected {expected}")
            return json.dumps(plain(kind.FromString(value[at:])))
        except Exception as error:
            raise ValueError(
                f"the value does not match protobuf schema {number}: {error}") from error

    return read


def _compiled(given: Format) -> dict[int, bytes]:
    texts = {0: given.text} if given.known is None else dict(given.known.texts)
    return {number: compile_proto(text, f"{number}.proto") for number, text in texts.items()}


def decode(frame: Any, column: str, given: Format) -> Any:
    """Decodes protobuf values; see `formats.decode` for the result."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    compiled = _compiled(given)
    newest = 0 if given.known is None else given.known.newest
    schema = spark_type(message_class(compiled[newest], given.message).DESCRIPTOR)
    read = reader(compiled, given.message, given.known is not None)

    def to_json(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            texts: list[str | None] = []
            problems: list[str | None] = []
            for value in batch.column(batch.schema.get_field_index(column)).to_pylist():
                text = problem = None
                try:
                    text = None if value is None else read(value)
                except ValueError as error:
                    problem = str(error)
                texts.append(text)
                problems.append(problem)
            arrays = [*batch.columns, *(pyarrow.array(x, "string") for x in (texts, problems))]
            yield pyarrow.RecordBatch.from_arrays(
                arrays, names=[*batch.schema.names, JSON_TEXT, PROBLEM]
            )

    extra = [StructField(JSON_TEXT, StringType()), StructField(PROBLEM, StringType())]
    wide = frame.mapInArrow(to_json, StructType([*frame.schema.fields, *extra]))
    return wide.withColumn(DECODED, f.from_json(JSON_TEXT, schema)).drop(JSON_TEXT)


def encode(frame: Any, given: Format, columns: list[str], output: str) -> Any:
    """Encodes columns as protobuf values; see `formats.encode` for the result."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StructField, StructType

    number = 0 if given.known is None else given.known.newest
    compiled = _compiled(given)[number]
    name, prefix = given.message, b""
    if given.known is not None:
        if name is not None:
            raise PipelineError(
                "`schemas` and `message` exclude each other: with `schemas`, values are"
                " written as the first message type of the newest schema file"
            )
        prefix = struct.pack(">bIb", CONFLUENT_MAGIC, number, 0)
    message_class(compiled, name)  # raises an error now rather than in a task

    def to_bytes(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from google.protobuf import json_format

        kind = message_class(compiled, name)
        for batch in batches:
            texts = batch.column(batch.schema.get_field_index(JSON_TEXT)).to_pylist()
            values = [
                prefix + json_format.Parse(text, kind()).SerializeToString() for text in texts
            ]
            kept = batch.drop_columns([JSON_TEXT])
            yield pyarrow.RecordBatch.from_arrays(
                [*kept.columns, pyarrow.array(values, "binary")], names=[*kept.schema.names, output]
            )

    fields = f.struct(*[f.col(column) for column in columns])
    wide = frame.withColumn(JSON_TEXT, f.to_json(fields))
    return wide.mapInArrow(
        to_bytes, StructType([*frame.schema.fields, StructField(output, BinaryType())])
    )
