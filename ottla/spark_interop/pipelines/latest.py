"""Latest: keeps a topic as a table of the newest value of each key; a tombstone deletes its key.

Records that retention removes stay in the table. Deleted keys are removed from the table,
even if compaction removed their tombstones. Within a partition
the newest record is the one with the highest offset. A key may move to another partition
when partitions are added; then the record with the newest timestamp in all partitions is used.
`table` defines the layout and the commits; each batch rewrites the table.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.pipelines import query_run, transactional
from ottla.spark_interop.pipelines.archive import batch_offsets
from ottla.spark_interop.pipelines.files import Files
from ottla.spark_interop.pipelines.table import CHECKPOINT, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "partition", "offset", "timestamp")
TOMBSTONES = "tombstones"  # in the commit of a batch: the table has rows with a null value


def latest(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    path: str | Path,
    *,
    every: str | None = None,
    records_per_batch: int = 5_000_000,
    allow_gaps: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Keep a table at `path` with the newest record of each key of `topic`; a later run continues
    where this one ended.

    A tombstone deletes the row of its key. `every` and `records_per_batch` are as in
    `archive`. With `allow_gaps` the run continues if retention removed unread records. Records
    without a key cannot be in the table; they are only counted.

    Returns {"records" (read), "keys" (in the table), "without_key" (records), "moved_keys",
    "seconds"}. "moved_keys" is the number of keys that one micro-batch read from several
    partitions of the topic. The newest record of such a key is the one with the newest timestamp,
    because offsets of different partitions cannot be compared. Raises as `archive` does.
    """
    with query_run.telling(f"latest {topic}", progress, bootstrap) as shown:
        cluster = Cluster.begun(bootstrap)
        cluster.partitions(topic)
        files = Files(spark, path)
        about = cluster.identity(topic)
        begin = time.monotonic()
        source = cluster.spark_options() | {
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": str(records_per_batch),
            "failOnDataLoss": str(not allow_gaps).lower(),
        }
        stream = spark.readStream.format("kafka").options(**source).load()
        counts = {"records": 0, "without_key": 0, "moved_keys": 0}

        origin = transactional.Origin(cluster, topic, about["topic_id"])
        with Table.writing(files, "latest", about, origin) as target:

            def write(batch: DataFrame, number: int) -> None:
                if number not in target.batches:
                    news = _write_batch(spark, target, batch, number, records_per_batch)
                    for name, count in news.items():
                        counts[name] += count

            query_run.drain(stream.writeStream.foreachBatch(write), files, CHECKPOINT, every, shown,
                            watch=origin.check, reach=cluster.reach)  # fmt: skip
        keys = _keys(spark, target)
    seconds = round(time.monotonic() - begin, 3)
    return {**counts, "keys": keys, "seconds": seconds}


def read_latest(spark: SparkSession, path: str | Path) -> DataFrame:
    """The table that `latest` keeps at `path`: one row for each key.

    Columns: key binary, value binary, headers array<struct<key string, value binary>>, partition
    int, offset bigint, timestamp timestamp. Raises as `read_archive` does.
    """
    rows = Table.open(Files(spark, path), "latest").read(spark)
    return rows.where("value IS NOT NULL").select(*COLUMNS)


def _keys(spark: SparkSession, target: Table) -> int:
    """How many keys the table has."""
    if target.batches and target.batches[max(target.batches)].get(TOMBSTONES):
        return int(target.read(spark).where("value IS NOT NULL").count())
    return sum(entry.records for entry in target.live.values())


def _write_batch(
    spark: SparkSession, target: Table, batch: DataFrame, number: int, records_max: int
) -> dict[str, int]:
    from pyspark.sql import functions as f

    # Rows are reduced to one per key before the join, so that fewer rows are shuffled.
    newest = batch.groupBy("key")
    row = f.struct(*[name for name in COLUMNS if name != "key"])
    news = newest.agg(
        f.max_by(row, "offset").alias("row"),
        (f.min("partition") != f.max("partition")).alias("moved"),
        f.count("*").alias("records"),
    )
    news = news.persist()
    try:
        total = f.coalesce(f.sum("records"), f.lit(0))
        counted = news.agg(
            total.alias("records"),
            f.coalesce(f.sum(f.when(f.col("key").isNull(), f.col("records"))), f.lit(0)),
            f.count_if(f.col("moved") & f.col("key").isNotNull()),
        ).first()
        stage = target.stage()
        records, _, moved = counted or (0, 0, 0)
        keyed = (_newest_by_time(batch) if moved else news).where("key IS NOT NULL")
        keyed = keyed.select("key", "row.*")
        started, ended = batch_offsets(target.files, number)
        offsets = sum(end - started.get(partition, 0) for partition, end in ended.items())
        old = _old(spark, target, offsets != records) if target.live else None
        if old is not None and len(ended) > 1:
            keyed = _without_older(keyed, old)
        # The batch probably has not read to the end of the topic.
        cut = len(ended) > 1 and offsets >= records_max - len(ended)
        _merged(old, keyed, cut).write.parquet(target.files.at(stage))
    finally:
        news.unpersist()
    # Keep empty files, too: a table without keys gets its columns from them.
    added = target.adopt(
        stage, f"b{number:08}", lambda *of: {"0": [0, 0, target.files.rows(*of)]}, keep_empty=True
    )
    target.commit(added, list(target.live), {number: {TOMBSTONES: True} if cut else {}})
    return dict(zip(("records", "without_key", "moved_keys"), counted or (0, 0, 0), strict=True))


def _newest_by_time(batch: DataFrame) -> DataFrame:
    """One row for each key. Each partition's last record of the key is taken (by offset), and of
    these the one with the newest timestamp."""
    from pyspark.sql import functions as f

    row = f.struct(*[name for name in COLUMNS if name != "key"])
    newest = batch.groupBy("key", "partition").agg(f.max_by(row, "offset").alias("row"))
    return newest.groupBy("key").agg(f.max_by("row", "row.timestamp").alias("row"))


def _without_older(news: DataFrame, old: DataFrame) -> DataFrame:
    """The new rows, except those that are older than the table's row of the same key, if that row
    came from another partition."""
    from pyspark.sql import functions as f

    new = news.select("key", f.col("partition").alias("at"), f.col("timestamp").alias("then"))
    newer = (f.col("partition") != f.col("at")) & (f.col("timestamp") > f.col("then"))
    return news.join(old.join(new, "key").where(newer).select("key"), "key", "left_anti")


def _merged(old: DataFrame | None, news: DataFrame, keep_tombstones: bool) -> DataFrame:
    """The table with the new rows: a new row replaces the old row of its key, a tombstone deletes
    it, and keys without a new row keep their old one.

    The next batch of a topic with several partitions may have a record that is older than the
    tombstone of its key. So tombstones are kept until a batch has read to the end of the topic.
    """
    if old is not None:
        news = old.join(news.select("key"), "key", "left_anti").unionByName(news)
    kept = news if keep_tombstones else news.where("value IS NOT NULL")
    return kept.select(*COLUMNS)


def _old(spark: SparkSession, target: Table, has_holes: bool) -> DataFrame:
    """The table before this batch, without keys that a compacted topic no longer has.

    Such a key had a tombstone that compaction removed before this batch could read it. The
    tombstone left an offset without a record, so the topic is searched for missing keys only if
    the batch has such offsets (`has_holes`).
    """
    from pyspark.sql import functions as f

    old, origin = target.read(spark).select(*COLUMNS), target.origin
    if origin is None or not has_holes:
        return old
    cluster, topic = origin.cluster, origin.topic
    if "compact" not in cluster.settings(topic)["cleanup.policy"].value:
        return old
    starts = f.create_map(*[f.lit(x) for pair in cluster.starts(topic).items() for x in pair])
    reader = spark.read.format("kafka").options(**cluster.spark_options())
    reader = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    keys = reader.load().select("key").distinct().withColumn("there", f.lit(True))
    # Rows from before the log's start stay: retention or DeleteRecords removed their records.
    kept = f.col("there") | (f.col("offset") < starts[f.col("partition")])
    return old.join(keys, "key", "left").where(kept).select(*COLUMNS)
