"""Slice: the records of a time range, to look at or to keep."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines import query_run
from ottla.spark_interop.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def slice_topic(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    *,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    time_zone: str = "UTC",
    lateness: str | None = None,
    format: str = "raw",
    schema: Any = None,
    schemas: str | Path | None = None,
    output: str | Path = "-",
    limit: int | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Write the records of `topic` with timestamps from `since` (included) to `until` (excluded).

    If `output` is `-`, JSON lines go to standard output. Otherwise `output` is a path that does not
    exist yet. If that path ends in `.parquet`, the records are written as Parquet, otherwise as
    JSON lines. Times and `lateness` are as in `read_topic`. A JSON line has the format's columns,
    `_key`, `_partition`, `_offset`, `_timestamp`, `_headers`, and `_error`. In it, bytes are text
    if they are UTF-8, otherwise they are {"base64": …}; timestamps are in UTC. Lines are ordered
    by partition and offset. `limit` is the maximum number of records.

    Returns {"records", "bad"}. Raises PipelineError for a missing topic, a bad time or format, an
    output that already exists, or a full disk.
    """
    with query_run.telling(f"slice {topic}", progress, bootstrap):
        frame = read_topic(
            spark, Cluster.begun(bootstrap), topic, format=format, schema=schema, schemas=schemas,
            since=since, until=until, time_zone=time_zone, lateness=lateness,
        ).drop("_value")  # fmt: skip
        if limit is not None:
            frame = frame.orderBy("_partition", "_offset").limit(limit)
        return _written(spark, frame, output)


def _written(spark: SparkSession, frame: DataFrame, output: str | Path) -> dict[str, int]:
    try:
        if str(output).endswith(".parquet"):
            frame.write.mode("errorifexists").parquet(str(Path(output).absolute()))
            written = spark.read.parquet(str(Path(output).absolute()))
            return {"records": written.count(), "bad": written.where("_error IS NOT NULL").count()}
        rows = (
            in_utc(row.asDict(recursive=True), frame.schema)
            for row in frame.orderBy("_partition", "_offset").toLocalIterator()
        )
        if str(output) == "-":
            return _lines(rows, sys.stdout)
        try:
            with Path(output).open("x") as file:
                return _lines(rows, file)
        except FileExistsError:
            raise PipelineError(f"{output} already exists: name another output file") from None
    except Exception as error:
        raise query_run.explained(error) from error


def in_utc(value: Any, kind: Any) -> Any:
    """A value of a Spark type with its timestamps in UTC; pyspark returns them in the time zone of
    this machine, without naming it."""
    name = kind.typeName()
    if value is None:
        return None
    if name == "timestamp":
        return value.astimezone(UTC).replace(tzinfo=None)
    if name == "struct":
        return {each.name: in_utc(value[each.name], each.dataType) for each in kind.fields}
    if name == "array":
        return [in_utc(item, kind.elementType) for item in value]
    if name == "map":
        return {key: in_utc(item, kind.valueType) for key, item in value.items()}
    return value


def _lines(rows: Any, file: Any) -> dict[str, int]:
    report = {"records": 0, "bad": 0}
    for fields in rows:
        report["records"] += 1
        report["bad"] += fields["_error"] is not None
        file.write(json.dumps(fields, default=plain, ensure_ascii=False) + "\n")
    file.flush()
    return report


def plain(value: Any) -> Any:
    """Bytes and times in JSON form."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
