"""Dead letters: records that fail go to a separate topic with the reason, the others pass.

A dead letter is the record as it was, with the headers (text, UTF-8)

    ottla.error              what is wrong
    ottla.exception          the name of the exception of a function, absent for bad formats
    ottla.source.topic       where it was
    ottla.source.partition
    ottla.source.offset
    ottla.app                the pipeline's name
    ottla.timestamp          its timestamp there, in ms
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines import query_run, table, transactional
from ottla.spark_interop.pipelines.files import Files
from ottla.spark_interop.topics import stream_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Function = Callable[[bytes | None, bytes | None], bytes | None]
SHARE_AFTER = 100  # records of a batch, before a share of bad ones means anything


def dead_letter(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    to: str,
    dead_letters: str,
    checkpoint: str | Path,
    *,
    function: Function | None = None,
    format: str = "raw",
    schema: Any = None,
    schemas: str | Path | None = None,
    name: str | None = None,
    share_max: float | None = None,
    every: str | None = None,
    records_per_batch: int = 200_000,
    allow_gaps: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Send the good records of `topic` to `to` and the bad ones to `dead_letters`, exactly once.

    A record is bad if it is not of the format, or if `function(key, value)` raises; else the
    function's result is the new value (without a function values stay as they are). Key, headers,
    timestamp and partition are kept, so `to` needs as many partitions; both topics are created if
    they do not exist yet. A batch of 100 records or more in which the share of bad ones exceeds
    `share_max` (0 to 1) is not written at all and ends the pipeline: then something else is wrong.
    Returns {"good", "bad", "restamped" (as in `replay`), "seconds"}, what this run wrote. Raises as
    `archive` does, and PipelineError where the name or the checkpoint is of another topic.
    """
    cluster, begin = Cluster.of(bootstrap), time.monotonic()
    app = name or f"dead-letter-{to}"
    count = len(cluster.partitions(topic))
    for other in (to, dead_letters):
        cluster.create(other, count)
        if len(cluster.partitions(other)) < count:
            raise PipelineError(f"{other} has fewer partitions than {topic}, which has {count}")
    loss = {"failOnDataLoss": str(not allow_gaps).lower()}
    stream = stream_topic(
        spark, cluster, topic, format=format, schema=schema, schemas=schemas,
        records_per_batch=records_per_batch, options=loss,
    )  # fmt: skip
    report: dict[str, Any] = {"good": 0, "bad": 0, "restamped": 0}
    about, place = cluster.identity(topic), Files(spark, checkpoint)
    table.claim(place, about)
    source = " ".join(about.values())
    goods = transactional.Destination(cluster, to, app, source=source)
    bads = transactional.Destination(cluster, dead_letters, f"{app}.dead", source=source)
    for into in (goods, bads):
        transactional.check(into)

    def write(batch: DataFrame, number: int) -> None:
        judged = judge(batch, function).persist()
        try:
            _check_share(judged, share_max, number)
            letters = _letters(judged.where("_error IS NOT NULL"), topic, app)
            for kind, rows, into in (
                ("good", _rows(judged.where("_error IS NULL")), goods),
                ("bad", letters, bads),
            ):
                done = transactional.write(rows, into)
                report[kind] += transactional.total(done)
                report["restamped"] += transactional.total(done, "restamped")
        finally:
            judged.unpersist()

    query = stream.writeStream.foreachBatch(write).trigger(**query_run.trigger_of(every))
    query = query.option("checkpointLocation", place.root).start()
    query_run.run(query, query_run.Progress(f"dead letters of {topic}", progress))
    report["seconds"] = round(time.monotonic() - begin, 3)
    return report


def judge(frame: DataFrame, function: Function | None) -> DataFrame:
    """A frame of `topics` with the function's result as `_value`, and `_error` and `_exception`
    (the name of its class) where it raised; for use in queries of one's own."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    own = ["_key", "_partition", "_offset", "_timestamp", "_headers", "_value", "_error"]
    frame = frame.select(*own)
    if function is None:
        return frame.withColumn("_exception", f.lit(None).cast("string"))

    def apply(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            column = {name: batch.column(i).to_pylist() for i, name in enumerate(own)}
            kinds: list[str | None] = [None] * batch.num_rows
            for row, (key, value) in enumerate(zip(column["_key"], column["_value"], strict=True)):
                if column["_error"][row] is None:
                    try:
                        column["_value"][row] = function(key, value)
                    except Exception as error:
                        column["_error"][row] = str(error) or type(error).__name__
                        kinds[row] = type(error).__name__
            arrays = [*batch.columns[:5], pyarrow.array(column["_value"], pyarrow.binary())]
            arrays += [pyarrow.array(x, pyarrow.string()) for x in (column["_error"], kinds)]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=[*own, "_exception"])

    schema = StructType([*frame.schema.fields, StructField("_exception", StringType())])
    return frame.mapInArrow(apply, schema)


def _check_share(judged: DataFrame, share_max: float | None, number: int) -> None:
    if share_max is None:
        return
    from pyspark.sql import functions as f

    bad = f.col("_error").isNotNull()
    row = judged.agg(f.count("*"), f.count_if(bad), f.any_value(f.col("_error"), True)).first()
    total, count, example = row if row is not None else (0, 0, None)
    if total >= SHARE_AFTER and count > share_max * total:
        raise PipelineError(
            f"{count} of {total} records of batch {number} are bad, more than {share_max:.0%}; "
            f"nothing of the batch was written. One of them: {example}"
        )


def _rows(good: DataFrame) -> DataFrame:
    return good.selectExpr(
        "_partition AS lane", "_offset + 1 AS position", "_key AS key", "_value AS value",
        "_headers AS headers", "_partition AS partition", "unix_millis(_timestamp) AS timestamp_ms",
    )  # fmt: skip


def _letters(bad: DataFrame, topic: str, app: str) -> DataFrame:
    from pyspark.sql import functions as f

    texts = {
        "ottla.error": f.col("_error"),
        "ottla.exception": f.col("_exception"),
        "ottla.source.topic": f.lit(topic),
        "ottla.source.partition": f.col("_partition"),
        "ottla.source.offset": f.col("_offset"),
        "ottla.app": f.lit(app),
        "ottla.timestamp": f.unix_millis("_timestamp"),
    }
    made = [
        f.struct(f.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))
        for name, text in texts.items()
    ]
    old = f.coalesce("_headers", f.expr("cast(array() AS array<struct<key:string,value:binary>>)"))
    present = f.filter(f.array(*made), lambda header: header["value"].isNotNull())
    return _rows(bad.withColumn("_headers", f.concat(old, present)))
