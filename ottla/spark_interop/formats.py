"""Formats of record values: raw, text, json, avro, protobuf, as Spark columns and back.

A format turns a column of bytes into a struct of typed columns and an error text, which is null for
good records. It never drops a record: the caller's `mode` decides what happens to bad records.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from ottla.spark_interop import json_text, protobuf
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.schemas import Schemas
from ottla.spark_interop.value_format import (
    CONFLUENT_MAGIC,
    CONFLUENT_PREFIX,
    DECODED,
    PROBLEM,
    Format,
)

AVRO_END = b"\xff" * 10 + b"\x00"
"""Bytes that are appended to each value and decoded as a field of type `fixed`. If decoding a
record consumes fewer or more bytes than the value has, the field differs from AVRO_END or cannot be
decoded. A number that is cut off at the value's end and continues in these bytes is not valid
Avro."""


def struct_of(given: Format) -> Any:
    """The StructType of a json format. Raises PipelineError if the schema cannot be read."""
    from pyspark.sql.types import StructType

    if isinstance(given.schema, StructType):
        return given.schema
    text = given.text.strip()
    try:
        if text.startswith("{"):
            return StructType.fromJson(json.loads(text))
        return StructType.fromDDL(text)
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise PipelineError(f"the schema {text!r} cannot be read as DDL: {first}") from error


def decode(frame: Any, column: str, given: Format) -> Any:
    """The frame with the columns `__decoded` (for raw and text a plain value, otherwise a struct)
    and `_error` (text, null for good records). Records with a null value (tombstones) are good."""
    from pyspark.sql import functions as f

    value = f.col(column)
    if given.name == "raw":
        return frame.withColumn(DECODED, value).withColumn(PROBLEM, f.lit(None).cast("string"))
    if given.name == "text":
        return _decode_text(frame, value)
    if given.name == "json":
        return json_text.decode(frame, value, struct_of(given))
    if given.name == "avro":
        return _decode_avro(frame, value, given)
    return protobuf.decode(frame, column, given)


def _decode_text(frame: Any, value: Any) -> Any:
    from pyspark.sql import functions as f

    text = value.cast("string")
    wrong = text.isNotNull() & ~f.is_valid_utf8(text)
    return frame.withColumn(DECODED, f.when(~wrong, text)).withColumn(
        PROBLEM, f.when(wrong, f.lit("the value is not UTF-8"))
    )


def _decode_avro(frame: Any, value: Any, given: Format) -> Any:
    """Permissive from_avro returns a struct of nulls for bytes that are not Avro, and ignores bytes
    after a record. So each value is read as the first of two fields; the second is AVRO_END."""
    from pyspark.sql import functions as f

    if given.known is None:
        whole = _from_avro(value, given.text, given.text)
        problem = f.lit("the value does not match the Avro schema")
        return _with_avro(frame, value, whole, f.lit(None).cast("string"), problem)
    known = given.known
    reader = given.text if given.schema is not None else known.texts[known.newest]
    payload = f.expr(f"substring({value_name(value)}, {CONFLUENT_PREFIX + 1})")
    identity = schema_id(value_name(value))
    whole = None
    for number, text in sorted(known.texts.items()):
        one = _from_avro(payload, text, reader)
        whole = f.when(identity == number, one) if whole is None else whole.when(
            identity == number, one)
    problem = f.concat(f.lit("the value does not match Avro schema "), identity.cast("string"))
    return _with_avro(frame, value, whole, wire_problem(value_name(value), known), problem)


def _from_avro(payload: Any, writer: str, reader: str) -> Any:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    ended = f.concat(payload, f.lit(AVRO_END))
    return from_avro(
        ended, _avro_ended(writer), {"mode": "PERMISSIVE", "avroSchema": _avro_ended(reader)}
    )


def _avro_ended(schema: str) -> str:
    """The schema of a value followed by AVRO_END."""
    try:
        value = json.loads(schema)
    except ValueError as error:
        raise PipelineError(f"the Avro schema is not JSON: {error}") from error
    end = {"type": "fixed", "name": "ottla_end_type", "size": len(AVRO_END)}
    fields = [{"name": "value", "type": value}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "ottla_ended", "fields": fields})


def _with_avro(frame: Any, value: Any, whole: Any, prefix: Any, problem: Any) -> Any:
    from pyspark.sql import functions as f

    read = frame.withColumn(DECODED, whole)
    inside = f.col(DECODED)
    bad = inside["value"].isNull() | ~inside["end"].eqNullSafe(f.lit(AVRO_END))
    read = read.withColumn(PROBLEM, f.coalesce(prefix, f.when(value.isNotNull() & bad, problem)))
    return read.withColumn(DECODED, f.when(f.col(PROBLEM).isNull(), inside["value"]))


def value_name(value: Any) -> str:
    """The name of a plain column, for expressions in SQL."""
    return str(value._jc.toString())


def schema_id(column: str) -> Any:
    """The schema id of a value in Confluent's wire format, a bigint."""
    from pyspark.sql import functions as f

    return f.expr(f"cast(conv(hex(substring({column}, 2, 4)), 16, 10) as bigint)")


def wire_problem(column: str, known: Schemas) -> Any:
    """An error text if a value lacks a valid prefix of Confluent's wire format, else null."""
    from pyspark.sql import functions as f

    ids = ", ".join(map(str, known.texts))
    return f.expr(
        f"""CASE WHEN {column} IS NULL THEN NULL
        WHEN length({column}) < {CONFLUENT_PREFIX} OR hex(substring({column}, 1, 1)) != '00'
        THEN 'the value lacks the prefix of Confluent''s wire format: byte 0 and a schema id'
        WHEN cast(conv(hex(substring({column}, 2, 4)), 16, 10) as bigint) NOT IN ({ids})
        THEN concat('schema id ', conv(hex(substring({column}, 2, 4)), 16, 10),
        ' is unknown (known: {known.ids}); restart the query to read new schemas') END"""
    )


def encode(frame: Any, given: Format, columns: list[str], output: str) -> Any:
    """The frame with one more column, `output`: the bytes of a value that consists of `columns`.

    raw and text take exactly one column. Avro and protobuf with `schemas` write Confluent's wire
    format with the newest schema.
    """
    from pyspark.sql import functions as f

    if given.name in ("raw", "text"):
        if len(columns) != 1:
            raise PipelineError(
                f"the format {given.name} writes one column, but the value has {len(columns)}:"
                f" {', '.join(columns)}"
            )
        kind = "binary" if given.name == "raw" else "string"
        return frame.withColumn(output, f.col(columns[0]).cast(kind).cast("binary"))
    fields = f.struct(*[f.col(name) for name in columns])
    if given.name == "json":
        options = {"ignoreNullFields": "false"}
        return frame.withColumn(output, f.to_json(fields, options).cast("binary"))
    if given.name == "protobuf":
        return protobuf.encode(frame, given, columns, output)
    from pyspark.sql.avro.functions import to_avro

    if given.known is None:
        return frame.withColumn(output, to_avro(fields, given.text))
    number = given.known.newest
    prefix = f.lit(bytearray(struct.pack(">bI", CONFLUENT_MAGIC, number)))
    payload = to_avro(fields, given.known.texts[number])
    return frame.withColumn(output, f.concat(prefix, payload))
