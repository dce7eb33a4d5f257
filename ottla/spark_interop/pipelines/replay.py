"""Replay: writes an archive back into a topic, each record exactly once and unchanged.

Key, value, headers, timestamp and partition are those of the archived record. `transactional` keeps
the progress under the replay's name. Another run with this name continues where the replay was
stopped. If the replay is complete, the run does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError, WrongOption
from ottla.spark_interop.pipelines import query_run, targets, transactional
from ottla.spark_interop.pipelines.archive import partitions_read, read_archive
from ottla.spark_interop.pipelines.files import Files
from ottla.spark_interop.pipelines.table import SETTINGS, Table
from ottla.spark_interop.times import milliseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY_MS = 86_400_000
DEFAULTS = {"cleanup.policy": "delete", "retention.ms": "-1"}  # for archives of older versions
NEEDED = {"key", "value", "partition", "offset", "timestamp"}


def replay(
    spark: SparkSession,
    path: str | Path,
    bootstrap: str | Cluster,
    topic: str,
    *,
    name: str | None = None,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    time_zone: str = "UTC",
    rate: float | None = None,
    timestamps: str = "original",
    create: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Write the records of an archive to `topic`; a later run continues where this one ended.

    `name` identifies the replay, by default `replay-TOPIC`. A later replay into the same topic
    under the same name skips the records that are written already. Under that name, a replay of
    another archive or of another range of times is refused. To write records again, or to write
    other records, use another name. `since` (included) and `until` (excluded) select records by
    timestamp; they are times as in `read_topic`. `rate` limits the records per second of the whole
    replay. `timestamps` is `original` or `now`; with `now`, records get the present time, and the
    header `ottla.timestamp` has the original timestamp in ms. With `create`, a missing topic is
    created with the settings and the number of partitions of the archived topic. With `dry_run`,
    records are counted, but not written.

    Returns {"records", "written", "already_there" (written by an earlier run), "restamped",
    "seconds", "partitions": {p: number of records}}. "restamped" counts the records with the
    present time instead of a timestamp up to 1970-01-01T00:00, which the client cannot send. Within
    a partition, records are written in the order of their offsets. Raises PipelineError if the
    topic is missing, has too few partitions, would delete the records, or is the one that was
    archived. Raises DataLost if files are missing or damaged. Records that were written before an
    error stay; once the cause is repaired, another run writes the rest.
    """
    check_options(rate, timestamps)
    begin = time.monotonic()
    with query_run.telling(f"replay {topic}", progress, bootstrap) as shown:
        cluster, files = Cluster.begun(bootstrap), Files(spark, path)
        table = Table.open(files, "archive")
        archived = table.about
        into = destination(cluster, topic, name, archived, _range(since, until, time_zone))
        refuse_own_topic(cluster, topic, archived)
        done = transactional.positions(into)
        try:
            with query_run.clock(shown):
                records = _between(read_archive(spark, path), since, until, time_zone)
                counts, oldest_ms = _counted(records, done)
        except Exception as error:
            raise query_run.explained(error) from error
        report: dict[str, Any] = {
            "records": sum(counts.values()), "written": 0, "already_there": 0, "restamped": 0,
            "partitions": dict(sorted(counts.items())),
        }  # fmt: skip
        if not dry_run or cluster.exists(topic) or not create:
            needed = max(counts, default=0) + 1
            if not cluster.exists(topic):       # partitions without records are needed, too
                needed = max(needed, partitions_read(table))
            prepare(cluster, topic, needed, archived,
                    oldest_ms if timestamps == "original" else None,
                    create and not dry_run)  # fmt: skip
        if not dry_run and counts:
            tasks = min(len(counts), spark.sparkContext.defaultParallelism)
            to = replace(into, rate=rate / tasks if rate else None)
            report |= _write(_rows(records, timestamps), to, sorted(counts), shown)
    report["seconds"] = round(time.monotonic() - begin, 3)
    return report


def _write(
    rows: DataFrame, to: transactional.Destination, lanes: list[int], shown: query_run.Progress
) -> dict[str, int]:
    """Writes the rows, and returns their figures for the report."""
    try:
        with query_run.counting(shown, growth(to, lanes) if shown.show else lambda: 0):
            written = transactional.write(rows, to)
        shown.update(transactional.total(written))
    except Exception as error:
        raise query_run.explained(error) from error
    finally:
        shown.done()
    kinds = {"written": "written", "already_there": "skipped", "restamped": "restamped"}
    return {name: transactional.total(written, kind) for name, kind in kinds.items()}


def growth(to: transactional.Destination, lanes: list[int]) -> Callable[[], int]:
    """A function that counts the offsets that were written in these partitions since the call of
    `growth`. It counts the records of all writers, also those of open and aborted transactions, and
    one marker for each transaction."""
    begun = to.cluster.ends(to.topic, committed=False, partitions=lanes)
    asking = replace(to.cluster, patience_seconds=0)

    def grown() -> int:
        ends = asking.ends(to.topic, committed=False, partitions=lanes)
        return sum(max(end - begun[lane], 0) for lane, end in ends.items())

    return grown


def check_options(rate: float | None, timestamps: str | None) -> None:
    """Raises PipelineError for a rate or a choice of timestamps that is not valid."""
    if timestamps not in (None, "original", "now"):
        raise WrongOption(
            f"`timestamps` must be original or now, not {timestamps!r}", "timestamps")
    if rate is not None and not rate > 0:
        raise WrongOption("`rate` (records per second) must be above 0", "rate")


def destination(
    cluster: Cluster, topic: str, name: str | None, archived: dict[str, Any], times: str
) -> transactional.Destination:
    """The topic to write, for the archive that `archived` describes; `times` names the range.

    Positions in one archive or range mean nothing in another one. Two archives of one topic are
    different sources, too: one of them may begin later, or lack records of a gap.
    """
    of = " ".join(archived.get(name, "") for name in ("topic", "topic_id", "cluster"))
    return transactional.Destination(
        cluster, topic, name or f"replay-{topic}",
        source=f"archive {archived['id']} of {of}{times}" if "id" in archived
        else f"archive of {of}{times}",
        formerly=f"archive of {of}{times}", source_cluster=archived.get("cluster", ""),
    )  # fmt: skip


def refuse_other_source(
    cluster: Cluster, topic: str, archived: dict[str, Any], given: Mapping[str, Any]
) -> None:
    """Raises PipelineError if a replay of this name has written other records to the topic. `given`
    are the options of `replay`."""
    times = _range(given.get("since"), given.get("until"), given.get("time_zone") or "UTC")
    transactional.positions(destination(cluster, topic, given.get("name"), archived, times))


def refuse_own_topic(cluster: Cluster, topic: str, archived: dict[str, Any]) -> None:
    """Raises PipelineError if the topic is the one from which the archive was made."""
    if archived.get("topic_id") == cluster.topic_ids([topic])[topic] is not None:
        raise PipelineError(
            f"the archive was made from {topic}, so {topic} would have the records twice: name"
            f" another topic, or delete {topic} and replay with --create"
        )


def _counted(records: DataFrame, done: dict[int, int]) -> tuple[dict[int, int], int | None]:
    """The number of records in each partition, and the oldest timestamp (epoch ms) of the records
    that are not written yet."""
    from pyspark.sql import functions as f

    unwritten = f.lit(True)
    for partition, position in done.items():
        unwritten = unwritten & ~((f.col("partition") == partition) & (f.col("offset") < position))
    oldest = f.unix_millis(f.min(f.when(unwritten, f.col("timestamp")))).alias("oldest")
    rows = records.groupBy("partition").agg(f.count("*").alias("n"), oldest).collect()
    times = [row.oldest for row in rows if row.oldest is not None]
    return {row.partition: row.n for row in rows}, min(times, default=None)


def prepare(
    cluster: Cluster,
    topic: str,
    partitions: int,
    archived: dict[str, Any],
    oldest_ms: int | None,
    create: bool,
) -> None:
    """Creates the topic with the settings of the archived topic, or checks it. An archive often has
    more records than its topic had at any time, so no retention by size is set."""
    like = DEFAULTS | archived.get(SETTINGS, {}) | {"retention.bytes": "-1"}
    has_older = None if oldest_ms is None else (lambda time_ms: oldest_ms < time_ms)
    targets.prepare(cluster, topic, partitions, like, has_older, create=create)


def _range(
    since: str | datetime | int | None, until: str | datetime | int | None, time_zone: str
) -> str:
    """The range of a replay in the name of its source; "" if the replay has no bounds."""
    bounds = ["" if x is None else str(milliseconds(x, time_zone)) for x in (since, until)]
    return f", times {' to '.join(bounds)}" if any(bounds) else ""


def _between(
    records: DataFrame,
    since: str | datetime | int | None,
    until: str | datetime | int | None,
    time_zone: str,
) -> DataFrame:
    from pyspark.sql import functions as f

    missing = NEEDED - set(records.columns)
    if missing:
        raise PipelineError(f"the files have no column {', '.join(sorted(missing))}")
    for bound, is_lower in ((since, True), (until, False)):
        if bound is not None:
            at = f.timestamp_millis(f.lit(milliseconds(bound, time_zone)))
            records = records.where(
                f.col("timestamp") >= at if is_lower else f.col("timestamp") < at
            )
            # With this condition Spark does not even list date= directories outside the range.
            if "date" in records.columns:
                day = f.date_from_unix_date(f.lit(milliseconds(bound, time_zone) // DAY_MS))
                records = records.where(f.col("date") >= day if is_lower else f.col("date") <= day)
    return records


def _rows(records: DataFrame, timestamps: str) -> DataFrame:
    from pyspark.sql import functions as f

    columns = ["partition AS lane", "offset + 1 AS position", "key", "value", "partition"]
    if timestamps == "original":
        return records.selectExpr(*columns, "headers", "unix_millis(timestamp) AS timestamp_ms")
    at = f.struct(
        f.lit("ottla.timestamp").alias("key"),
        f.expr("cast(cast(unix_millis(timestamp) AS STRING) AS BINARY)").alias("value"),
    )
    old = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    return records.withColumn("headers", f.concat(old, f.array(at))).selectExpr(*columns, "headers")
