"""Protobuf values in Spark, by the official Python library: no jar, no generated classes.

A .proto text is compiled to a descriptor set once, in the driver; the workers create the message
class from it. A record is converted to JSON and from that to typed columns, which Spark reads with
the schema derived from the descriptor.
"""

from __future__ import annotations

import base64
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.value_format import (
    CONFLUENT_MAGIC,
    CONFLUENT_PREFIX,
    DECODED,
    PROBLEM,
    Format,
)

JSON_TEXT = "__json"
NESTING_MAX = 16
TIMESTAMP = "google.protobuf.Timestamp"


def compile_proto(text: str, name: str = "schema.proto") -> bytes:
    """The FileDescriptorSet of a .proto text, imports of google/protobuf included, as bytes.

    Raises PipelineError with protoc's own message where it does not compile, or imports others.
    """
    import grpc_tools
    from grpc_tools import protoc

    standard = str(Path(grpc_tools.__file__).parent / "_proto")
    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as directory:
        source, made = Path(directory) / name, Path(directory) / "made"
        source.write_text(text)
        arguments = ["protoc", f"-I{directory}", f"-I{standard}", "--include_imports"]
        if protoc.main([*arguments, f"--descriptor_set_out={made}", str(source)]) != 0:
            raise PipelineError(f"{name} does not compile; protoc's message is above")
        return made.read_bytes()


@cache
def message_class(compiled: bytes, name: str | None, path: tuple[int, ...] = (0,)) -> Any:
    """The class of a message: by its full name, or by its path of indexes in the last file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(compiled)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    if name is None:
        last = files.file[-1]
        item, names = last.message_type[path[0]], [last.message_type[path[0]].name]
        for index in path[1:]:
            item = item.nested_type[index]
            names.append(item.name)
        name = ".".join([last.package, *names] if last.package else names)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError as error:
        raise PipelineError(f"the schema has no message {name}") from error


def spark_type(descriptor: Any, depth: int = 0) -> Any:
    """The StructType of a message; PipelineError where messages contain themselves."""
    from pyspark.sql import types as t

    if depth > NESTING_MAX:
        raise PipelineError(f"messages nest deeper than {NESTING_MAX}: {descriptor.full_name}")
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


def kind_of(item: Any) -> str:
    """double, float, bool, string, enum, bytes, int32, int64, uint32 or uint64."""
    kinds = {1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "double", 6: "float",
             7: "bool", 8: "enum", 9: "string"}  # fmt: skip
    return "bytes" if item.type == item.TYPE_BYTES else kinds[item.cpp_type]


def is_map(item: Any) -> bool:
    """Whether a field is a map<…>."""
    return item.message_type is not None and item.message_type.GetOptions().map_entry


def plain(message: Any) -> dict[str, Any]:
    """A message as input for json.dumps and Spark's from_json: numbers stay numbers."""
    return {item.name: _field(message, item) for item in message.DESCRIPTOR.fields}


def _field(message: Any, item: Any) -> Any:
    value = getattr(message, item.name)
    if is_map(item):
        inner = item.message_type.fields_by_name["value"]
        return {str(key): _single(one, inner) for key, one in value.items()}
    if item.is_repeated:
        return [_single(one, item) for one in value]
    if item.has_presence and not message.HasField(item.name):
        return None
    return _single(value, item)


def _single(value: Any, item: Any) -> Any:
    if item.message_type is not None:
        if item.message_type.full_name == TIMESTAMP:
            return value.ToJsonString()
        return plain(value)
    kind = kind_of(item)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "enum":
        known = item.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 35:
            raise ValueError("a number is too long")


def message_path(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The message's path of indexes in Confluent's wire format, and where the payload begins."""
    count, at = _varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= NESTING_MAX:
        raise ValueError(f"a path of {count} indexes")
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    return tuple(path), at


def reader(compiled: dict[int, bytes], name: str | None, framed: bool) -> Callable[[bytes], str]:
    """A function from a value to JSON; it raises ValueError with what is wrong."""

    expected = message_class(compiled[max(compiled)], name).DESCRIPTOR.full_name

    def read(value: bytes) -> str:
        at, number = 0, 0
        path: tuple[int, ...] = (0,)
        if framed:
            if len(value) < CONFLUENT_PREFIX or value[0] != CONFLUENT_MAGIC:
                raise ValueError(
                    "the value is not in Confluent's wire format: it does not begin with byte 0 "
                    "and an id"
                )
            number = struct.unpack(">I", value[1:5])[0]
            if number not in compiled:
                known = ", ".join(map(str, sorted(compiled)))
                raise ValueError(
                    f"schema id {number} is unknown (known: {known}); a query that starts again "
                    f"takes new schemas"
                )
        try:
            if framed:
                path, at = message_path(value, CONFLUENT_PREFIX)
            kind = message_class(compiled[number], None if framed else name, path)
            if kind.DESCRIPTOR.full_name != expected:
                raise ValueError(f"a {kind.DESCRIPTOR.full_name}, expected {expected}")
            return json.dumps(plain(kind.FromString(value[at:])))
        except Exception as error:
            raise ValueError(f"the value is not protobuf of schema {number}: {error}") from error

    return read


def _compiled(given: Format) -> dict[int, bytes]:
    texts = {0: given.text} if given.known is None else dict(given.known.texts)
    return {number: compile_proto(text, f"{number}.proto") for number, text in texts.items()}


def decode(frame: Any, column: str, given: Format) -> Any:
    """As formats.decode."""
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
    """As formats.encode."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StructField, StructType

    number = 0 if given.known is None else given.known.newest
    compiled = _compiled(given)[number]
    name, prefix = given.message, b""
    if given.known is not None:
        if name is not None:
            raise PipelineError("with schemas the first message of the newest file is written")
        prefix = struct.pack(">bIb", CONFLUENT_MAGIC, number, 0)
    message_class(compiled, name)  # an error now rather than in a task

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
