"""Topics as typed frames: `read_topic`, `stream_topic`, `write_topic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop import formats
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.times import duration_ms, milliseconds
from ottla.spark_interop.value_format import DECODED, MODES, PROBLEM, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUEST_BYTES_MIN, BUFFER_BYTES_MIN = 1 << 20, 32 << 20  # the Java client's defaults
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
OWN = ("_key", "_partition", "_offset", "_timestamp", "_headers", "_value", "_error")


def read_topic(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    *,
    format: str | Format = "raw",
    schema: Any = None,
    schemas: str | Path | None = None,
    message: str | None = None,
    mode: str = "permissive",
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    time_zone: str = "UTC",
    lateness: str | None = None,
    isolation: str = "read_committed",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The present records of a topic as a frame with the format's columns, and in addition:

        _key        binary      null if the record has none
        _partition  int
        _offset     bigint
        _timestamp  timestamp   milliseconds; create or append time, by the topic's settings
        _headers    array<struct<key string, value binary>>, null if there are none
        _value      binary      the unchanged value
        _error      string      what is wrong with the value, or null; only with mode permissive

    `format`, `schema`, `schemas` and `message` are those of `value_format.Format`. `mode` decides
    about a value that does not have the format: `permissive` keeps the record, with nulls in
    the format's columns and with an `_error`; `failfast` ends the query with an error that names
    the record. `since` (included) and `until` (excluded) select records by timestamp. They are
    epoch milliseconds, a datetime, or ISO 8601 text, which is in `time_zone` unless it names
    a zone. Records may be out of order, so the query reads to the end of the topic to find
    all records before `until`. With `lateness`, e.g. `1h`, it stops reading a partition at
    the first record that is newer than `until` by this time or more. `isolation` is Kafka's
    isolation.level. `options` are options of Spark's source and take precedence.

    Raises PipelineError for a topic that does not exist, a schema that cannot be read, or an
    unknown format or mode.
    """
    from pyspark.sql import functions as f

    source = _source(bootstrap, topic, isolation)
    begin, end = (None if x is None else milliseconds(x, time_zone) for x in (since, until))
    if begin is not None and begin > 0:     # ListOffsets takes -1 for latest, -2 for earliest
        # ListOffsets finds the first record of this time or later. All records before it are older.
        source["startingTimestamp"] = str(begin)
        source["startingOffsetsByTimestampStrategy"] = "latest"
    if end is not None and lateness is not None and end + duration_ms(lateness) > 0:
        source["endingTimestamp"] = str(end + duration_ms(lateness))
    records = spark.read.format("kafka").options(**(source | dict(options or {}))).load()
    # Records may be out of order, so those outside the range of times are dropped here.
    if begin is not None:
        records = records.where(f.col("timestamp") >= f.timestamp_millis(f.lit(begin)))
    if end is not None:
        records = records.where(f.col("timestamp") < f.timestamp_millis(f.lit(end)))
    return typed(records, _format(format, schema, schemas, message).at(topic), mode)


def stream_topic(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    *,
    format: str | Format = "raw",
    schema: Any = None,
    schemas: str | Path | None = None,
    message: str | None = None,
    mode: str = "permissive",
    starting: str = "earliest",
    records_per_batch: int | None = 1_000_000,
    isolation: str = "read_committed",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A topic as a stream, with the columns and formats of `read_topic`.

    `starting` is earliest, latest, or offsets in Spark's JSON, as functions of the module
    `offsets` return them. It applies to the first run of a query; later runs continue from the
    checkpoint. `records_per_batch` limits a micro-batch (Spark's maxOffsetsPerTrigger). With
    None, one batch reads everything that is there, which may need too much memory in the first run
    on a large topic. Raises as `read_topic` does.
    """
    source = _source(bootstrap, topic, isolation) | {"startingOffsets": starting}
    if records_per_batch is not None:
        source["maxOffsetsPerTrigger"] = str(records_per_batch)
    reader = spark.readStream.format("kafka").options(**(source | dict(options or {})))
    return typed(reader.load(), _format(format, schema, schemas, message).at(topic), mode)


def write_topic(
    frame: DataFrame,
    bootstrap: str | Cluster,
    topic: str,
    *,
    format: str | Format = "json",
    schema: Any = None,
    schemas: str | Path | None = None,
    message: str | None = None,
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    checkpoint: str | Path | None = None,
    compression: str = "lz4",
    options: Mapping[str, str] | None = None,
) -> Any:
    """Write the rows of a frame as records through Spark's sink: at least once, with acks=all.

    `key` names the column of record keys (binary or text), `headers` a column of the type of
    `_headers`, and `partition` an int column. The value consists of the columns whose names do
    not begin with `_`, without those that `headers` and `partition` name. The formats raw and
    text take exactly one column: they also leave out the column that `key` names, unless it
    is the only one. The format json needs no schema for writing. To write exactly once, see
    `pipelines.transactional`. For a batch frame, the function returns None when all rows are
    written. A streaming frame needs `checkpoint`; the result is the StreamingQuery, started with
    Spark's default trigger.

    Raises PipelineError for a missing topic or column, or if no column is left for the value.
    """
    cluster = Cluster.reached(bootstrap)
    cluster.partitions(topic)
    # The Java client's own limit must not be lower than the topic's.
    bytes_max = int(cluster.settings(topic)["max.message.bytes"].value)
    if format == "json" and schema is None:
        schema = "ignored STRING"
    given = _format(format, schema, schemas, message).at(topic)
    rows = records_of(frame, given, key=key, headers=headers, partition=partition)
    sink = cluster.spark_options() | {
        "topic": topic,
        "kafka.acks": "all",
        "kafka.compression.type": compression,
        "kafka.max.request.size": str(max(bytes_max, REQUEST_BYTES_MIN)),
        "kafka.buffer.memory": str(max(2 * bytes_max, BUFFER_BYTES_MIN)),
        "includeHeaders": "true",
    }
    sink |= dict(options or {})
    if frame.isStreaming:
        if checkpoint is None:
            raise PipelineError(
                "a streaming frame needs checkpoint=PATH, a directory that only this query uses"
            )
        writer = rows.writeStream.format("kafka").options(**sink)
        return writer.option("checkpointLocation", str(checkpoint)).start()
    rows.write.format("kafka").options(**sink).save()
    return None


def records_of(
    frame: DataFrame,
    given: Format,
    *,
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
) -> DataFrame:
    """The columns key, value, and optionally headers and partition, for Spark's sink."""
    from pyspark.sql import functions as f

    named = {name: column for name, column in
             (("key", key), ("headers", headers), ("partition", partition)) if column}  # fmt: skip
    missing = [column for column in named.values() if column not in frame.columns]
    if missing:
        raise PipelineError(
            f"column {', '.join(missing)} not found; the columns are {', '.join(frame.columns)}"
        )
    reserved = {column for column in (headers, partition) if column}
    values = [name for name in frame.columns if not name.startswith("_") and name not in reserved]
    if given.name in ("raw", "text") and len(values) > 1 and key in values:
        values.remove(str(key))
    if not values:
        raise PipelineError(
            f"no column is left for the value: the frame has {', '.join(frame.columns)}. The"
            " columns of `headers` and `partition`, and columns that begin with _, are left out"
            " of the value"
        )
    encoded = formats.encode(frame, given, values, "__value")
    columns = [f.col("__value").alias("value")]
    if "key" in named:
        columns.append(f.col(named["key"]).cast(_key_type(frame, named["key"])).alias("key"))
    if "headers" in named:
        columns.append(f.col(named["headers"]).alias("headers"))
    if "partition" in named:
        columns.append(f.col(named["partition"]).cast("int").alias("partition"))
    return encoded.select(*columns)


def _key_type(frame: DataFrame, column: str) -> str:
    return "binary" if frame.schema[column].dataType.typeName() == "binary" else "string"


def typed(records: DataFrame, given: Format, mode: str = "permissive") -> DataFrame:
    """The records of Spark's kafka source (or of an archive) with the columns of `read_topic`."""
    from pyspark.sql import functions as f

    if mode not in MODES:
        raise PipelineError(f"{mode!r} is not a mode; the modes are {', '.join(MODES)}")
    clash = [name for name in _names(given) if name in OWN]
    if clash:
        raise PipelineError(
            f"the schema has a column {clash[0]}, but this name is reserved for the record's own"
            " fields"
        )
    read = formats.decode(records, "value", given)
    decoded: Any = f.col(DECODED)
    if mode == "failfast":
        where = f.concat_ws("-", "topic", "partition")
        text = f.concat(
            f.lit("bad record at "), where, f.lit(" offset "), "offset", f.lit(": "), PROBLEM
        )
        # The error is in a filter, because Spark may skip a column that the query does not use.
        failed = f.raise_error(text).cast("boolean")
        read = read.where(f.when(f.col(PROBLEM).isNotNull(), failed).otherwise(True))
    values = [decoded.alias("value")]
    if given.name not in ("raw", "text"):
        values = [
            decoded[item.name].alias(item.name) for item in read.schema[DECODED].dataType.fields
        ]
    own = [
        f.col("key").alias("_key"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
        f.col("timestamp").alias("_timestamp"),
        f.col("headers").alias("_headers"),
        f.col("value").alias("_value"),
        f.col(PROBLEM),
    ]
    return read.select(*values, *(own if mode == "permissive" else own[:-1]))


def _names(given: Format) -> list[str]:
    return list(formats.struct_of(given).names) if given.name == "json" else []


def _source(bootstrap: str | Cluster, topic: str, isolation: str) -> dict[str, str]:
    if isolation not in ISOLATION_LEVELS:
        raise PipelineError(
            f"{isolation!r} is not an isolation level: expected {' or '.join(ISOLATION_LEVELS)}"
        )
    cluster = Cluster.reached(bootstrap)
    cluster.partitions(topic)  # the source would wait long for a topic that does not exist
    return cluster.spark_options() | {
        "subscribe": topic,
        "includeHeaders": "true",
        "kafka.isolation.level": isolation,
    }


def _format(
    given: str | Format, schema: Any, schemas: str | Path | None, message: str | None
) -> Format:
    if isinstance(given, Format):
        return given
    return Format(given, schema, schemas, None, message)
