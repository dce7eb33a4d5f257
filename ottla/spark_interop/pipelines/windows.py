"""Windows: aggregates by windows of event time, from a topic to a topic or to Parquet.

A row of the result is a window of a group; `read_windows` lists the columns. In a topic, key and
value are JSON. The key is the window and the group, so a compacted topic keeps the newest result of
each window and group. In Parquet all windows are final.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop import formats
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError, WrongColumn, WrongOption
from ottla.spark_interop.pipelines import query_run, transactional
from ottla.spark_interop.pipelines.archive import read_offsets
from ottla.spark_interop.pipelines.files import Files, Readable
from ottla.spark_interop.pipelines.table import (
    CHECKPOINT,
    TARGETS,
    Table,
    check_targets,
    target_ids,
)
from ottla.spark_interop.times import duration_ms, interval
from ottla.spark_interop.topics import stream_topic
from ottla.spark_interop.value_format import Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINAL, LANES = "final", "lanes"  # notes of the table
AFTER_ALL_MS = 9_000_000_000_000_000  # after every window; times 1,000 it still fits into 64 bits
BOUNDS = ("window_start", "window_end")


def windows(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    path: str | Path,
    *,
    window: str,
    aggregates: Mapping[str, str],
    time_column: str = "_timestamp",
    by: Sequence[str] = (),
    slide: str | None = None,
    session_gap: bool = False,
    watermark: str = "1 hour",
    format: str = "json",
    schema: Any = None,
    schemas: str | Path | None = None,
    to: str | None = None,
    name: str | None = None,
    updates: bool = False,
    final: bool = False,
    every: str | None = None,
    records_per_batch: int = 1_000_000,
    allow_gaps: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Aggregate the new records of `topic` by windows; a later run continues where this one ended.

    `path` keeps the state, and also the result unless `to` names a topic for it. `window` is a
    length like `1h` or `1 hour`; if windows overlap, `slide` is the time between their starts. `by`
    names the columns that define a group. With `session_gap` a window ends when its group has had
    no events for the length of `window`. `aggregates` maps result columns to SQL expressions, as in
    `{"flights": "count(*)"}`, over the format's columns and `_timestamp`, `_partition` and so on.
    `time_column` names a timestamp column. Once an event is newer than a window's end by
    `watermark`, the window is final, and is written. Later rows of this window are late: they are
    dropped and counted. `updates` (only with `to`) writes each change of a window. With `final` the
    run closes all windows at its end; `path` then accepts no more records.

    Returns {"records" (read), "bad" (not in the format), "without_time", "late" (rows of one task,
    window and group count as one), "written", "watermark" (a time; null if no row has had a time
    yet), "seconds"}. Raises as `archive` does. Also raises PipelineError if an expression or a
    column is invalid; if the checkpoint is lost, but its windows are already in `to`; if earlier
    runs on the same path had other options; or if `path` accepts no more records.
    """
    check_options(topic, to, updates, final, every)
    check_windows(window, slide, session_gap, by, aggregates)
    begin = time.monotonic()
    settings = settings_of({
        "window": window, "slide": slide, "by": by, "aggregates": aggregates, "to": to,
        "name": name, "time_column": time_column, "watermark": watermark,
        "session_gap": session_gap, "updates": updates, "format": format, "schemas": schemas,
    }) | {"schema": _schema_text(Format(format, schema, schemas))}  # fmt: skip
    report: dict[str, Any] = {"records": 0, "bad": 0, "without_time": 0, "late": 0, "written": 0}
    with query_run.telling(f"windows {topic}", progress, bootstrap) as shown:
        cluster = Cluster.begun(bootstrap)
        stream = stream_topic(
            spark, cluster, topic, format=format, schema=schema, schemas=schemas,
            records_per_batch=records_per_batch,
            options={"failOnDataLoss": str(not allow_gaps).lower()},
        )  # fmt: skip
        lengths = settings["window"], settings.get("slide") or None, session_gap
        figures = _aggregated(stream, lengths, time_column, by, aggregates, settings["watermark"])
        identity = cluster.identity(topic)
        origin = transactional.Origin(cluster, topic, identity["topic_id"])
        with Table.writing(Files(spark, path), "windows", identity | settings, origin) as target:
            check_final(target.files, target.about, origin, final)
            write = (_to_parquet(target, report) if to is None
                     else _to_topic(target, to, settings["name"], by, report))  # fmt: skip
            writer = figures.writeStream.outputMode("update" if updates else "append")
            run_queries(writer.foreachBatch(write), target, every, shown, report, final)
    return report | {"seconds": round(time.monotonic() - begin, 3)}


def run_queries(
    writer: Any,
    target: Table,
    every: str | None,
    shown: query_run.Progress,
    report: dict[str, Any],
    final: bool,
) -> None:
    """Runs the queries of `windows`, and adds their figures to the report."""
    origin = target.origin
    assert origin is not None
    watched: dict[str, Any] = {"watch": origin.check, "reach": origin.cluster.reach}
    query_run.drain(
        writer, target.files, CHECKPOINT, every, shown, _counting(report), **watched
    )
    if final and not shown.interrupted and _close_all(target):
        query_run.drain(writer, target.files, CHECKPOINT, every, shown, **watched)
    report["watermark"] = known_watermark(target.files)


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a table records. The schema is left out, because a JVM may be needed to
    read it. A later run on the same path must have the same values.

    `slide` has no effect on windows with `session_gap`. A former version recorded it nevertheless,
    so it is not compared."""
    to, session_gap = options["to"] or "", options["session_gap"]
    slide = {} if session_gap else {"slide": interval(options["slide"] or "")}
    return {
        "window": interval(options["window"]), "session_gap": session_gap, **slide,
        "watermark": interval(options["watermark"]),
        "time_column": options["time_column"], "by": list(options["by"]),
        "aggregates": dict(options["aggregates"]), "format": options["format"],
        "schemas": str(options["schemas"] or ""), "updates": options["updates"],
        "to": to, "name": to and (options["name"] or f"windows-{to}"),
    }  # fmt: skip


def _schema_text(given: Format) -> str:
    """A schema's content for comparison, whether it was given as text or as a file."""
    if given.schema is None:
        return ""
    if given.name != "json":
        return given.text.strip()
    return ", ".join(
        f"{item.name} {item.dataType.simpleString()}{'' if item.nullable else ' NOT NULL'}"
        for item in formats.struct_of(given).fields
    )


def check_final(
    files: Readable, about: Mapping[str, Any], origin: transactional.Origin, final: bool
) -> None:
    """Raises PipelineError if all windows are closed but there are, or may be, more records."""
    if not about.get(FINAL):
        return
    ends = {str(p): end for p, end in origin.cluster.ends(origin.topic).items()}
    if not final or ends != read_offsets(files, CHECKPOINT):
        raise PipelineError(
            f"an earlier run with `final` closed the windows at {files.root}, so they ignore later "
            "records: name another path to aggregate the topic again"
        )


def _close_all(target: Table) -> bool:
    """Puts an empty batch into the checkpoint, with a watermark later than every window. The next
    query runs it like a batch that a killed driver had begun. Returns False if there is nothing to
    close."""
    last = query_run.newest(target.files, CHECKPOINT, "offsets")
    if last is None:
        return False
    lines = target.files.read(f"{CHECKPOINT}/offsets/{last}").splitlines()
    metadata = json.loads(lines[1])
    if metadata["batchWatermarkMs"] == AFTER_ALL_MS:
        return False
    target.note({FINAL: True})
    lines[1] = json.dumps(metadata | {"batchWatermarkMs": AFTER_ALL_MS})
    target.files.write(f"{CHECKPOINT}/offsets/{last + 1}", "\n".join(lines))
    return True


def known_watermark(files: Readable) -> str | None:
    """The newest watermark in the checkpoint, in Spark's form, apart from the one that closes all
    windows. None if no batch has had a row with a time.

    A batch begins with the watermark in `offsets`, and ends with the one in `commits`. Spark's
    report of a batch has only the watermark in `offsets`; the next batch reports the other one. But
    after the batch that a killed run had begun there may be no next batch, so the files are read.
    """
    last = query_run.newest(files, CHECKPOINT, "offsets")
    found = [0]
    for number in () if last is None else (last - 1, last):
        for kind, name in ("offsets", "batchWatermarkMs"), ("commits", "nextBatchWatermarkMs"):
            path = f"{CHECKPOINT}/{kind}/{number}"
            if number >= 0 and files.exists(path):
                metadata = json.loads(files.read(path).splitlines()[1])
                found.append(int(metadata.get(name, 0)))
    reached_ms = max(ms for ms in found if ms != AFTER_ALL_MS)
    if not reached_ms:
        return None
    at = datetime.fromtimestamp(reached_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_time_column(name: str, kind: str) -> None:
    """Raises WrongColumn unless a column of this Spark type can be the event time."""
    if not kind.lower().startswith("timestamp"):
        raise WrongColumn(
            f"`time_column`: {name} is of type {kind.upper()}, but the event time must be a"
            f" TIMESTAMP: declare {name} as TIMESTAMP in the schema, or name another column;"
            " without `time_column`, the event time is the record's timestamp", "time_column"
        )


def check_options(
    topic: str, to: str | None, updates: bool, final: bool, every: str | None
) -> None:
    """Raises PipelineError for options that contradict each other."""
    if updates and to is None:
        raise WrongOption(
            "`updates` needs a topic: name one with `to`. Without `to`, only final windows are"
            " written, as Parquet files", "updates", "to")
    if final and every is not None:
        raise WrongOption(
            "with `final`, the run ends at the end of the topic: leave out `every`", "final",
            "every")
    if to == topic:
        raise PipelineError(f"{topic} would be both read and written: name another topic")


def check_windows(
    window: str, slide: str | None, session_gap: bool, by: Sequence[str],
    aggregates: Mapping[str, str],
) -> None:
    """Raises WrongOption for windows that Spark does not have, and for two columns of the result
    with the same name."""
    if session_gap and slide:
        raise WrongOption(
            "windows with `session_gap` do not overlap: leave out `slide`, or `session_gap`",
            "session_gap", "slide")
    if session_gap and not by:
        raise WrongOption(
            "`session_gap` needs groups: name their columns with `by`", "session_gap", "by")
    if slide and _is_longer(slide, window):
        raise WrongOption(
            f"`slide` {slide} is longer than `window` {window}, so records between two windows"
            " would be in no window: give a shorter `slide`", "slide", "window")
    taken = {name.lower() for name in (*BOUNDS, *(by or ()))}
    if twice := [name for name in aggregates or () if name.lower() in taken]:
        raise WrongOption(
            f"the result has a column {twice[0]} already: give another name to it in `aggregates`",
            "aggregates")


def _is_longer(one: str, other: str) -> bool:
    """Whether an interval is longer than another one; False if only Spark can tell."""
    try:
        return duration_ms(one) > duration_ms(other)
    except PipelineError:
        return False


def _counting(report: dict[str, Any]) -> Any:
    """Returns a function that adds the figures of each batch's progress to the report."""

    def count(told: dict[str, Any]) -> None:
        seen = told.get("observedMetrics", {}).get("input")
        if seen is not None:
            for key in ("records", "bad", "without_time"):
                report[key] += seen[key] or 0
        report["late"] += sum(s["numRowsDroppedByWatermark"] for s in told["stateOperators"])

    return count


def read_windows(spark: SparkSession, path: str | Path) -> DataFrame:
    """The final windows at a path: one row for each window of each group (the values of `by`).

    Columns: window_start and window_end (timestamp, UTC), the columns of `by`, and one column for
    each aggregate. Raises PipelineError if the path has no table of windows, DataLost if a file is
    missing or has another size than when it was written.
    """
    return Table.open(Files(spark, path), "windows").read(spark)


def _aggregated(
    stream: DataFrame,
    lengths: tuple[str, str | None, bool],
    time_column: str,
    by: Sequence[str],
    aggregates: Mapping[str, str],
    watermark: str,
) -> DataFrame:
    from pyspark.sql import functions as f

    window, slide, session_gap = lengths
    if not aggregates:
        raise PipelineError("name at least one aggregate, e.g. records = count(*)")
    if (kind := dict(stream.dtypes).get(time_column)) is not None:
        check_time_column(time_column, kind)
    try:
        at = f.col(time_column)
        events = stream.observe(
            "input",
            f.count("*").alias("records"),
            f.count_if(f.col("_error").isNotNull()).alias("bad"),
            f.count_if(f.col("_error").isNull() & at.isNull()).alias("without_time"),
        )
        events = events.where(f.col("_error").isNull() & at.isNotNull())
        events = events.withWatermark(time_column, watermark)
        spans = f.session_window(at, window) if session_gap else f.window(at, window, slide)
        figures = [f.expr(sql).alias(name) for name, sql in aggregates.items()]
        rows = events.groupBy(spans.alias("w"), *by).agg(*figures)
    except Exception as error:
        raise query_run.explained(error) from error
    return rows.select(
        f.col("w.start").alias(BOUNDS[0]), f.col("w.end").alias(BOUNDS[1]), *by, *aggregates
    )


def _same_life(target: Table, into: transactional.Destination) -> None:
    """Raises PipelineError if the progress topic has positions but there is no checkpoint.
    Positions are batch numbers, and a new checkpoint would number its batches from 0 again."""
    begun = target.files.exists(f"{CHECKPOINT}/offsets")
    if not begun and transactional.positions(replace(into, source="")):  # from any path
        raise PipelineError(
            f"{into.topic} has windows of `{into.writer}`, but {target.files.root} has no "
            f"checkpoint of `{into.writer}`: restore that directory, or give the pipeline another "
            "name (--name, name=) and topic"
        )


def destination(
    about: Mapping[str, Any], to: str, name: str, origin: transactional.Origin
) -> transactional.Destination:
    """The topic of the result, for the table that `about` describes."""
    return transactional.Destination(
        origin.cluster, to, name, source=f"windows {about.get('id', '')}",
        source_cluster=about["cluster"], origin=origin,
    )  # fmt: skip


def lanes_of(target: Table, into: transactional.Destination) -> int:
    """The number of lanes. The table keeps the number that was recorded before the first write: if
    partitions are added, a key stays in its lane and partition."""
    if not target.about.keys() >= {LANES, TARGETS}:
        # TARGETS comes last: without it, no run has written yet. A former version wrote it first.
        lanes = len(into.cluster.partitions(into.topic))
        ids = target.about.get(TARGETS) or target_ids(into)
        target.note({LANES: lanes, TARGETS: ids})
    return int(target.about[LANES])


def _to_topic(
    target: Table, to: str, name: str, by: Sequence[str], report: dict[str, Any]
) -> Any:
    origin = target.origin
    assert origin is not None
    into = destination(target.about, to, name, origin)
    partitions = len(origin.cluster.partitions(origin.topic))
    check_targets(target.files, target.about, into)
    into.cluster.create(into.topic, partitions, {"cleanup.policy": "compact"})
    _same_life(target, into)
    into = transactional.begun_with(into)
    lanes = lanes_of(target, into)

    def write(batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as f

        key = f.to_json(f.struct(*BOUNDS, *by))
        rows = batch.select(
            f.to_json(f.struct(*batch.columns)).cast("binary").alias("value"),
            key.cast("binary").alias("key"),
            f.pmod(f.xxhash64(key), f.lit(lanes)).cast("int").alias("lane"),
            f.lit(number + 1).cast("long").alias("position"),
        ).withColumn("partition", f.col("lane"))
        report["written"] += transactional.total(transactional.write(rows, into))

    return write


def _to_parquet(target: Table, report: dict[str, Any]) -> Any:
    def write(batch: DataFrame, number: int) -> None:
        if number in target.batches:
            # The table has the windows of this batch already. Spark was killed before it committed
            # the batch, so its state lacks the batch: run the plan again, without output.
            batch.write.format("noop").mode("overwrite").save()
            return
        stage = target.stage()
        batch.coalesce(1).write.parquet(target.files.at(stage))
        added = target.adopt(
            stage, f"b{number:08}", lambda *of: {"0": [0, 0, target.files.rows(*of)]}
        )
        target.commit(added, [], {number: {}})
        report["written"] += sum(entry.records for entry in added.values())

    return write
