"""Dead letters: good records go to one topic, bad records go to another, with the reason.

A record is bad if it does not have the declared format, or if the pipeline's function raises an
exception for it. A dead letter is the unchanged bad record with these additional headers (text,
UTF-8):

    ottla.error              what is wrong
    ottla.exception          the name of the exception that the function raised; absent for records
                             that do not have the format
    ottla.source.topic       the record's topic, partition and offset
    ottla.source.partition
    ottla.source.offset
    ottla.app                the pipeline's name
    ottla.timestamp          the record's timestamp, in ms
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError, WrongOption
from ottla.spark_interop.pipelines import query_run, table, targets, transactional
from ottla.spark_interop.pipelines.files import Files
from ottla.spark_interop.topics import stream_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Function = Callable[[bytes | None, bytes | None], bytes | None]
REASON_MAX = 4_000  # characters: the topic limits the size of the record
OWN = ("_key", "_partition", "_offset", "_timestamp", "_headers", "_value", "_error")
SHARE_AFTER = 100  # smaller batches are not checked for their share of bad records


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

    A record is bad if it does not have the format, or if `function(key, value)` raises an
    exception; otherwise the function's result is the new value (without a function, the old value).
    Key, headers, timestamp and partition are kept; a bad record gets additional headers with the
    reason. Because partitions are kept, `to` and `dead_letters` need at least as many partitions
    as `topic`. If one of the two does not exist yet, it is created with the settings of `topic`
    (`dead_letters` without compaction). Good records, bad records and the progress are written in
    the same transactions. `share_max` (0 to 1) limits the share of bad records in a batch of 100
    records or more. If a batch exceeds it, the batch is not written and the pipeline ends: the
    format or the function may be wrong. `name` is the pipeline's name, by default `dead-letter-TO`.
    `every` is as in `archive`; `format`, `schema` and `schemas` are as in `read_topic`.

    Returns {"good", "bad", "restamped" (as in `replay`), "seconds"} of this run. Raises as
    `archive` does. Also raises PipelineError if the name or the checkpoint belongs to other topics;
    if a destination topic was created again; or if the compaction or (unless `allow_gaps`) the
    retention of a destination topic would delete the written records.
    """
    check_options(topic, to, dead_letters, share_max)
    begin = time.monotonic()
    with query_run.telling(f"dead letters of {topic}", progress, bootstrap) as shown:
        cluster = Cluster.begun(bootstrap)
        place = Files(spark, checkpoint)
        loss = {"failOnDataLoss": str(not allow_gaps).lower()}
        stream = stream_topic(      # refuses a wrong format, before any topic is created
            spark, cluster, topic, format=format, schema=schema, schemas=schemas,
            records_per_batch=records_per_batch, options=loss,
        )  # fmt: skip
        into = prepared(cluster, topic, (to, dead_letters), name, place, allow_gaps)
        report: dict[str, Any] = {"good": 0, "bad": 0, "restamped": 0}

        def write(batch: DataFrame, number: int) -> None:
            judged = judge(batch, function).persist()
            try:
                _check_share(judged, share_max, number)
                bad = judged.where("_error IS NOT NULL")
                letters = _rows(_letters(bad, topic, into.writer), True)
                good = _rows(judged.where("_error IS NULL"), False)
                done = transactional.write(good.unionByName(letters), into)
                aside = transactional.total(done, "aside")
                report["bad"] += aside
                report["good"] += transactional.total(done) - aside
                report["restamped"] += transactional.total(done, "restamped")
            finally:
                judged.unpersist()

        with place.lock(table.LOCK):
            query_run.drain(stream.writeStream.foreachBatch(write), place, "", every, shown,
                            watch=into.check, reach=into.reach)  # fmt: skip
    report["seconds"] = round(time.monotonic() - begin, 3)
    return report


def check_options(topic: str, to: str, dead_letters: str, share_max: float | None) -> None:
    """Raises PipelineError if two of the topics are the same, or the share is not from 0 to 1."""
    if to == dead_letters:
        raise PipelineError(f"good and bad records would both go to {to}: name two topics")
    if topic in (to, dead_letters):
        raise PipelineError(f"{topic} would be both read and written: name other topics")
    if share_max is not None and not 0 <= share_max <= 1:
        raise WrongOption(
            f"{share_max} is not valid for `share_max`: use a share from 0 to 1, such as 0.05",
            "share_max")


def judge(frame: DataFrame, function: Function | None) -> DataFrame:
    """The columns OWN of `frame`, which `read_topic` or `stream_topic` has returned, with the
    function's result as `_value`. If the function raised an exception, `_error` has its text and
    `_exception` the name of its class. Use `judge` in queries of your own."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    frame = frame.select(*OWN)
    if function is None:
        return frame.withColumn("_exception", f.lit(None).cast("string"))

    schema = StructType([*frame.schema.fields, StructField("_exception", StringType())])
    return frame.mapInArrow(lambda batches: judged_batches(batches, function), schema)


def judged_batches(batches: Iterator[Any], function: Function) -> Iterator[Any]:
    """Arrow batches of the columns OWN, with the results and exceptions of the function."""
    import pyarrow

    for batch in batches:
        # Timestamps are not converted: Python has no times after the year 9999.
        keys, values, errors = (
            batch.column(OWN.index(name)).to_pylist() for name in ("_key", "_value", "_error")
        )
        kinds: list[str | None] = [None] * batch.num_rows
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            if errors[row] is None:
                try:
                    values[row] = function(key, value)
                except Exception as error:
                    errors[row] = (str(error) or type(error).__name__)[:REASON_MAX]
                    kinds[row] = type(error).__name__
        arrays = [*batch.columns[:5], pyarrow.array(values, pyarrow.binary())]
        arrays += [pyarrow.array(x, pyarrow.string()) for x in (errors, kinds)]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[*OWN, "_exception"])


def _check_share(judged: DataFrame, share_max: float | None, number: int) -> None:
    if share_max is None:
        return
    from pyspark.sql import functions as f

    bad = f.col("_error").isNotNull()
    row = judged.agg(f.count("*"), f.count_if(bad), f.any_value(f.col("_error"), True)).first()
    total, count, example = row if row is not None else (0, 0, None)
    if total >= SHARE_AFTER and count > share_max * total:
        raise PipelineError(
            f"{count} of {total} records of batch {number} are bad, more than {share_max:.0%}, so "
            f"nothing of the batch was written. One of the bad records: {example}"
        )


def prepared(
    cluster: Cluster,
    topic: str,
    names: tuple[str, str],
    name: str | None,
    place: Files,
    allow_gaps: bool,
) -> transactional.Destination:
    """The destination. Its two topics exist afterwards, and match the checkpoint."""
    to, dead_letters = names
    about, into = claim_of(cluster, topic, names, name)
    table.check_claim(place, about, into)
    count, like = len(cluster.partitions(topic)), targets.settings_like(cluster, topic)
    older = _older(cluster, topic, into, place)
    # Compaction must not remove bad records that have the same key.
    for each, policy in (to, {}), (dead_letters, {"cleanup.policy": "delete"}):
        # With allow_gaps, records that an existing target would delete count as a gap.
        has_older = _none if allow_gaps and cluster.exists(each) else older
        targets.prepare(cluster, each, count, like | policy, has_older)
    into = transactional.begun_with(into)
    if not allow_gaps:
        targets.refuse_unread(cluster, topic, into, place)
    table.claim(place, about, into)
    return into


def claim_of(
    cluster: Cluster, topic: str, names: tuple[str, str], name: str | None
) -> tuple[dict[str, Any], transactional.Destination]:
    """What the checkpoint records, and the topics that the pipeline writes."""
    to, dead_letters = names
    about = cluster.identity(topic)
    into = transactional.Destination(
        cluster, to, name or f"dead-letter-{to}", source=" ".join(about.values()),
        source_cluster=about["cluster"], aside=dead_letters,
        origin=transactional.Origin(cluster, topic, about["topic_id"]),
    )  # fmt: skip
    return about | {"to": to, "dead_letters": dead_letters, "name": into.writer}, into


def _older(
    cluster: Cluster, topic: str, into: transactional.Destination, checkpoint: Files
) -> targets.RetentionCheck:
    """A check for records that are not read yet, but older than a target's retention."""
    both = cluster.exists(into.topic) and cluster.exists(str(into.aside))
    done = targets.read_up_to(into, checkpoint) if both else {}
    return targets.older_in_topic(cluster, topic, done)


def _none(_: int) -> bool:
    return False


def _rows(judged: DataFrame, aside: bool) -> DataFrame:
    return judged.selectExpr(
        "_partition AS lane", "_offset + 1 AS position", "_key AS key", "_value AS value",
        "_headers AS headers", "_partition AS partition", "unix_millis(_timestamp) AS timestamp_ms",
        f"{str(aside).lower()} AS aside",
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
    return bad.withColumn("_headers", f.concat(old, present))
