"""Archive: writes a topic to Parquet files by date and hour, each record exactly once.

The archive keeps every record unchanged, with its partition, offset and timestamp. `verify` finds
gaps and duplicates: it compares these offsets with the ranges that each batch read. `table` defines
the layout and the commits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster, offsets_json
from ottla.spark_interop.errors import PipelineError, WrongOption
from ottla.spark_interop.pipelines import query_run, table, targets, transactional
from ottla.spark_interop.pipelines.files import Files, Readable
from ottla.spark_interop.pipelines.table import CHECKPOINT, SETTINGS, Table
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
GRAINS = {"hour": ["date", "hour"], "date": ["date"], "none": []}
# Spark's time functions use the days of the session's time zone, which may not be UTC.
UTC_SQL = {
    "date": "date_from_unix_date(CAST((unix_seconds(timestamp) - pmod(unix_seconds(timestamp), "
    "86400)) DIV 86400 AS INT))",
    "hour": "CAST(pmod(unix_seconds(timestamp), 86400) DIV 3600 AS INT)",
}
EXAMPLES_MAX = 32
RECORD_GAPS = f"{query_run.ALLOW_GAPS}; `verify` then shows the gap"
COMPRESSION = "zstd"
RECORDED = ("by", "isolation")
"""Options of `archive` that must have the same values in every run on a path."""


def archive(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    path: str | Path,
    *,
    by: str = "hour",
    every: str | None = None,
    starting: str = "earliest",
    records_per_batch: int = 2_000_000,
    isolation: str = "read_committed",
    allow_gaps: bool = False,
    options: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Append to the archive at `path` the records of `topic` that the archive does not have yet.

    With `by="hour"` or `by="date"`, each hour or date has a directory of its own; with `by="none"`
    there is only one directory. If `every` is None, the run ends at the end of the topic; with
    an interval like `1m` or `1 minute` it runs until it is stopped. `starting` says where the first
    run begins: earliest, latest or Spark's offsets JSON. `records_per_batch` limits the memory,
    and the work that is repeated after a crash. With `allow_gaps` the run continues if retention
    removed unread records; `verify` then shows the gap. `options` are options of Spark's source.

    Returns {"records", "batches", "files", "bytes", "seconds"} of this run, and "whole_archive":
    {p: {"first", "last", "records"}}. "whole_archive" has each partition's first and last offset
    and number of records, over all runs. Raises PipelineError if the topic is missing, if the path
    belongs to another topic, if the disk is full, or if no broker answers. Raises DataLost if
    retention removed unread records (unless `allow_gaps`).
    """
    if by not in GRAINS:
        raise WrongOption(f"{by!r} is not valid for `by`: use hour, date or none", "by")
    check_options(topic, starting)
    with query_run.telling(f"archive {topic}", progress, bootstrap) as shown:
        cluster = Cluster.begun(bootstrap)
        cluster.partitions(topic)
        files = Files(spark, path)
        about = cluster.identity(topic) | {"by": by, "isolation": isolation}
        origin = transactional.Origin(cluster, topic, about["topic_id"])
        source = cluster.spark_options() | {
            "subscribe": topic,
            "startingOffsets": starting,
            "includeHeaders": "true",
            "kafka.isolation.level": isolation,
            "maxOffsetsPerTrigger": str(records_per_batch),
            "failOnDataLoss": str(not allow_gaps).lower(),
        }
        stream = spark.readStream.format("kafka").options(**(source | dict(options or {}))).load()
        begin = time.monotonic()
        with Table.writing(files, "archive", about, origin) as target:
            if SETTINGS not in target.about:
                target.note({SETTINGS: targets.settings_like(cluster, topic)})
            before = set(target.live), set(target.batches)

            def write(batch: DataFrame, number: int) -> None:
                if number not in target.batches:  # a run that crashed may have committed this batch
                    _write_batch(target, batch, number, by, allow_gaps)

            query_run.drain(stream.writeStream.foreachBatch(write), files, CHECKPOINT, every, shown,
                            watch=origin.check, after_loss=RECORD_GAPS,
                            reach=cluster.reach)  # fmt: skip
    new = [target.live[name] for name in target.live.keys() - before[0]]
    return {
        "records": sum(entry.records for entry in new),
        "batches": len(target.batches.keys() - before[1]),
        "files": len(new),
        "bytes": sum(entry.bytes for entry in new),
        "seconds": round(time.monotonic() - begin, 3),
        "whole_archive": labelled(table.totals(target.live)),
    }


def labelled(totals: table.Ranges) -> dict[str, dict[str, int]]:
    """The first and last offset and the number of records of each partition, for a summary."""
    return {
        partition: dict(zip(("first", "last", "records"), figures, strict=True))
        for partition, figures in totals.items()
    }


def _write_batch(
    target: Table, batch: DataFrame, number: int, by: str, allow_gaps: bool
) -> None:
    stage = target.stage()
    grains = [f"{UTC_SQL[name]} AS {name}" for name in GRAINS[by]]
    rows = batch.selectExpr(*COLUMNS, *grains)
    writer = rows.write.option("compression", COMPRESSION).partitionBy(*GRAINS[by])
    writer.parquet(target.files.at(stage))
    # Every file name has the batch number, so that files of two batches cannot collide.
    added = target.adopt(stage, f"b{number:08}", lambda *of: ranges(target.files, *of))
    started, ended = batch_offsets(target.files, number)
    batch_of: dict[str, Any] = {"from": started, "to": ended}
    if allow_gaps and target.origin is not None and (   # without allow_gaps a gap ends the query
        gaps := gaps_of(target.origin.cluster.starts(target.origin.topic), started, ended, added)
    ):
        batch_of["gaps"] = gaps
    target.commit(added, [], {number: batch_of})


def gaps_of(
    log_starts: dict[int, int],
    started: dict[str, int],
    ended: dict[str, int],
    added: dict[str, table.Entry],
) -> dict[str, list[int]]:
    """The offsets of a batch that were deleted from the log before they were read. Each partition
    has one range: [the first of these offsets, the offset after the last one].

    Retention deletes the oldest records, so the range usually ends where the batch's records begin.
    But if the log now starts after the first of these records, deletion may have overtaken the
    reader, and offsets between the records may be lost too. The range then ends at the log start,
    unless the batch has a record at every offset from its first record to its last.
    """
    deleted = {}
    read = table.totals(added)
    for partition, end in ended.items():
        first = started.get(partition, 0)
        deleted_to = min(log_starts.get(int(partition), 0), end)
        if deleted_to <= first:
            continue
        first_read, last_read, count = read.get(partition, (end, end, 0))
        passed = deleted_to > first_read and count < last_read - first_read + 1
        lost_to = deleted_to if passed else min(first_read, deleted_to)
        if lost_to > first:
            deleted[partition] = [first, lost_to]
    return deleted


def ranges(files: Files, name: str, size: int) -> table.Ranges:
    """The offsets in one task's file, from its footer: a task reads one partition, in order."""
    footer = files.footer(name, size)
    if not footer.num_rows:
        return {}
    statistics: dict[str, list[int]] = {"partition": [], "offset": []}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in statistics:
                statistics[column.path_in_schema] += [column.statistics.min, column.statistics.max]
    [partition, *others] = set(statistics["partition"])
    if others:
        raise PipelineError(
            f"{files.at(name)} has records of several partitions, but each file must have records"
            " of one partition only: remove the option that changes how Spark divides the topic"
            " into tasks"
        )
    return {str(partition): [min(statistics["offset"]), max(statistics["offset"]), footer.num_rows]}


def batch_offsets(files: Files, number: int) -> tuple[dict[str, int], dict[str, int]]:
    """Where a batch begins (included) and ends (excluded), by partition, from the checkpoint."""
    ended = query_run.offsets_in(files, f"{CHECKPOINT}/offsets/{number}")
    if number:
        return query_run.offsets_in(files, f"{CHECKPOINT}/offsets/{number - 1}"), ended
    return first_offsets(files), ended


def first_offsets(files: Files) -> dict[str, int]:
    """Where the first batch of a checkpoint began, by partition."""
    return query_run.offsets_in(files, f"{CHECKPOINT}/sources/0/0")


def read_offsets(files: Readable, folder: str) -> dict[str, int]:
    """Where the newest batch of a checkpoint ends, by partition; {} before the first batch."""
    newest = query_run.newest(files, folder, "offsets")
    place = f"{folder}/offsets" if folder else "offsets"
    return {} if newest is None else query_run.offsets_in(files, f"{place}/{newest}")


def read_archive(spark: SparkSession, path: str | Path) -> DataFrame:
    """The records of an archive.

    Columns: key binary, value binary, headers array<struct<key string, value binary>>, topic
    string, partition int, offset bigint, timestamp timestamp (UTC, ms), timestampType int (0
    create time, 1 append time). An archive by date also has the column date (yyyy-MM-dd). An
    archive by hour also has the columns date and hour (0 to 23). Both are taken from the timestamp,
    in UTC.

    `topics.typed` converts the values to typed columns. Raises PipelineError if there is no
    archive, or if it has no records. Raises DataLost if a file is missing, or if it has another
    size than when it was written.
    """
    return Table.open(Files(spark, path), "archive").read(spark)


def check_options(topic: str, starting: str | None) -> None:
    """Raises PipelineError if `starting` is not a position in the topic that Spark accepts."""
    if starting is None or starting.strip().lower() in ("earliest", "latest"):
        return
    try:
        found = json.loads(starting)
        offsets = [(int(at), offset) for at, offset in found[topic].items()]
        valid = len(found) == 1 and bool(offsets) and all(
            type(offset) is int and -2 <= offset < 1 << 63 and at >= 0 for at, offset in offsets
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        valid = False
    if not valid:
        raise WrongOption(
            f"{starting!r} is not valid for `starting`: use earliest, latest, or an offset for"
            f' each partition, such as {{"{topic}": {{"0": 17}}}}. Offset -2 means earliest, and'
            " offset -1 means latest", "starting"
        )


def compact(
    spark: SparkSession,
    path: str | Path,
    *,
    small_bytes: int = 64 * 1024 * 1024,
    files_min: int = 2,
) -> dict[str, Any]:
    """Merge the small files of each directory into one file, sorted by partition and offset.

    Files below `small_bytes` count as small. Larger files, and directories with fewer than
    `files_min` small files, stay as they are. Returns the numbers of merged directories, and of
    removed and added files: {"directories", "removed", "added"}. Raises PipelineError if there is
    no archive, or if `archive` is running on the same path.
    """
    with Table.writing(Files(spark, path), "archive", {}, create=False) as target:
        return _compact(spark, target, small_bytes, files_min)


def _compact(
    spark: SparkSession, target: Table, small_bytes: int, files_min: int
) -> dict[str, Any]:
    files = target.files
    folders: dict[str, list[str]] = {}
    for name, entry in sorted(target.live.items()):
        if entry.bytes < small_bytes:
            folders.setdefault(name.rpartition("/")[0], []).append(name)
    chosen = {folder: names for folder, names in folders.items() if len(names) >= files_min}
    small = [name for names in chosen.values() for name in names]
    if not small:
        return {"directories": 0, "removed": 0, "added": 0}
    grains = GRAINS[target.about["by"]]
    stage = target.stage()
    reader = spark.read.option("basePath", files.at("data"))
    frame = reader.parquet(*[files.at(name) for name in small])
    # One task handles each directory, so that each directory gets one file.
    frame = frame.repartition(*grains) if grains else frame.coalesce(1)
    frame = frame.sortWithinPartitions(*grains, "partition", "offset")
    writer = frame.write.option("compression", COMPRESSION).partitionBy(*grains)
    writer.parquet(files.at(stage))

    def merged(name: str, size: int) -> table.Ranges:
        folder = f"data{name.removeprefix(stage).rpartition('/')[0]}"
        expected = table.totals({old: target.live[old] for old in chosen[folder]})
        rows, said = files.rows(name, size), sum(count for _, _, count in expected.values())
        if rows != said:
            raise PipelineError(f"{files.at(name)} has {rows} records, expected {said}")
        return expected

    added = target.adopt(stage, f"c{target.next_commit:08}", merged)
    target.commit(added, small)
    return {"directories": len(chosen), "removed": len(small), "added": len(added)}


def verify(
    spark: SparkSession,
    path: str | Path,
    bootstrap: str | Cluster | None = None,
    *,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Check an archive; with `bootstrap`, also compare it with what the topic still has.

    Reads every file. Returns {"ok", "problems": [text], "partitions": {p: figures}, "lost": the
    number of offsets in all gaps}. The figures of a partition are:

    - "from", "to": the archive covers the offsets from "from" up to, but not including, "to";
    - "records": how many records the archive has; "distinct": how many different offsets they have;
    - "in_topic": how many records the topic has at the covered offsets (null without `bootstrap`);
    - "not_archived": how many records the topic has after these offsets (null without `bootstrap`);
    - "missing": the covered offsets at which the topic has a record and the archive has none, at
      most the first 32;
    - "gaps": [[first, end]], ranges of offsets that were deleted before they were read; `end` is
      the offset after the last one of a range;
    - "unreadable_or_gone": how many covered offsets outside the gaps have no record in the archive.
      They are offsets of transaction markers, of aborted records, of records that compaction
      removed, and the like.

    Only runs with `allow_gaps` leave gaps; gaps do not count as problems. Records that are not
    archived yet are a problem only if the archive is empty. Raises PipelineError if there is no
    archive, if the topic does not exist, or if no broker answers. Missing or damaged files raise
    nothing: the report lists them as problems.
    """
    target = Table.open(Files(spark, path), "archive")
    with query_run.telling("verify", progress, bootstrap) as shown, query_run.clock(shown):
        return _verified(spark, target, None if bootstrap is None else Cluster.begun(bootstrap))


def _verified(spark: SparkSession, target: Table, cluster: Cluster | None) -> dict[str, Any]:
    """The report of `verify`, compared with the topic if there is a cluster."""
    from pyspark.sql import functions as f

    problems = target.check_files() + _broken_ranges(target)
    report: dict[str, Any] = {"ok": False, "problems": problems, "lost": 0, "partitions": {}}
    if problems:
        return report
    found: list[Any] = []
    try:
        if target.live:
            figures = f.count("*").alias("n"), f.countDistinct("offset").alias("d"), _content()
            found = target.read(spark).groupBy("partition").agg(*figures).collect()
    except Exception as error:
        report["problems"] = [str(query_run.explained(error))]
        return report
    in_files = {row.partition: (row.n, row.d) for row in found}
    contents = {row.partition: row.content for row in found}
    first, last = _extent(target)
    gaps = _gaps(target)
    for partition in sorted(last, key=int):
        records, distinct = in_files.get(int(partition), (0, 0))
        if records != distinct:
            twice = counted(records - distinct, "record")
            problems.append(f"partition {partition} has {twice} twice")
        said = table.totals(target.live).get(partition, [0, 0, 0])[2]
        if said != records:
            problems.append(
                f"partition {partition} has {counted(said, 'record')} according to the commits, but"
                f" {records} in the files"
            )
        part = _part(first[partition], last[partition], records, distinct, gaps.get(partition, []))
        report["partitions"][partition] = part
        lost = sum(end - begin for begin, end in part["gaps"])
        part["unreadable_or_gone"] = part["to"] - part["from"] - distinct - lost
        report["lost"] += lost
    if cluster is not None:
        _compare(spark, target, cluster, report, contents)
    report["ok"] = not problems
    return report


def _part(
    first: int, end: int, records: int, distinct: int, gaps: list[list[int]]
) -> dict[str, Any]:
    """The report of `verify` about a partition, before the comparison with the topic."""
    return {
        "from": first, "to": end, "records": records, "distinct": distinct, "in_topic": None,
        "not_archived": None, "missing": [], "gaps": gaps, "unreadable_or_gone": 0,
    }  # fmt: skip


def _extent(target: Table) -> tuple[dict[str, int], dict[str, int]]:
    """Where the archive begins and ends, by partition, according to its batches."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number in sorted(target.batches):
        batch = target.batches[number]
        for partition, end in batch["to"].items():
            first.setdefault(partition, batch["from"].get(partition, 0))
            last[partition] = end
    return first, last


def partitions_read(target: Table) -> int:
    """How many partitions the topic had when the newest batch read it, also those without records.
    The commits record this: a copy of the archive needs no checkpoint."""
    _, last = _extent(target)
    return 1 + max(map(int, last), default=-1)


def _gaps(target: Table) -> dict[str, list[list[int]]]:
    """The offsets that were deleted before batches could read them, by partition, with adjacent
    ranges merged."""
    merged: dict[str, list[list[int]]] = {}
    for _, batch in sorted(target.batches.items()):
        for partition, (first, end) in batch.get("gaps", {}).items():
            gaps = merged.setdefault(partition, [])
            if gaps and gaps[-1][1] == first:
                gaps[-1][1] = end
            else:
                gaps.append([first, end])
    return merged


def _broken_ranges(target: Table) -> list[str]:
    """Problems with batches that are missing or do not begin where the previous batch ended."""
    problems = []
    numbers = sorted(target.batches)
    for before, after in pairwise(numbers):
        if after != before + 1:
            problems.append(f"batches {before + 1} to {after - 1} were never written")
            continue
        ended, started = target.batches[before]["to"], target.batches[after]["from"]
        problems += [
            f"batch {after} begins at offset {started[p]} of partition {p}, but batch {before}"
            f" ended at {o}"
            for p, o in ended.items()
            if started.get(p, o) != o
        ]
    return problems


def _content() -> Any:
    """A checksum over all columns but the topic; to compute it, Spark must read all their bytes."""
    from pyspark.sql import functions as f

    columns = ["key", "value", "headers", "partition", "offset", "timestamp", "timestampType"]
    return f.bit_xor(f.xxhash64(*columns)).alias("content")


def _compare(
    spark: SparkSession,
    target: Table,
    cluster: Cluster,
    report: dict[str, Any],
    contents: dict[int, int],
) -> None:
    """Adds to the report the offsets in the archive's ranges that the topic has but the archive
    lacks. If the topic still has all records, also compares their contents."""
    from pyspark.sql import functions as f

    topic = target.about["topic"]
    if target.about.get("cluster") == cluster.id():
        try:
            table.check_same(target.files, target.about, cluster.identity(topic))
        except PipelineError as error:
            report["problems"].append(str(error))
            return
    starts, ends = cluster.starts(topic), cluster.ends(topic)
    parts = report["partitions"]
    for p in ends:  # adds partitions that no batch has read
        parts.setdefault(str(p), _part(starts[p], starts[p], 0, 0, []))
    begin = {p: max(starts[p], parts[str(p)]["from"]) for p in ends}
    end = {p: max(begin[p], min(ends[p], parts[str(p)]["to"])) for p in ends}
    reader = spark.read.format("kafka").options(**cluster.spark_options())
    reader = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    now = {p: max(end[p], ends[p]) for p in ends}
    later = reader.option("startingOffsets", offsets_json(topic, end))
    later = later.option("endingOffsets", offsets_json(topic, now)).load()
    waiting = {row.partition: row["count"] for row in later.groupBy("partition").count().collect()}
    for p in sorted(ends):
        parts[str(p)]["not_archived"] = waiting.get(p, 0)
        if p in waiting and not target.live:
            report["problems"].append(
                f"the archive is empty, but {topic}-{p} has {counted(waiting[p], 'record')}: run"
                " `ottla pipeline archive`"
            )
    reader = reader.option("startingOffsets", offsets_json(topic, begin))
    reader = reader.option("endingOffsets", offsets_json(topic, end))
    records = reader.option("includeHeaders", "true").load()
    theirs = records.select("partition", "offset")
    ours = (target.read(spark) if target.live else records.limit(0)).select("partition", "offset")
    summed = records.groupBy("partition").agg(f.count("*").alias("n"), _content()).collect()
    counts = {row.partition: row.n for row in summed}
    for row in summed:
        part = parts[str(row.partition)]
        if row.n == part["records"] == part["distinct"] and row.content != contents[row.partition]:
            report["problems"].append(
                f"partition {row.partition} has other records than the topic at the same offsets"
            )
    if all(counts.get(int(p), 0) == part["distinct"] for p, part in parts.items()):
        theirs = theirs.limit(
            0
        )  # the numbers of records are equal, so the join would find nothing
    missing = theirs.join(ours, ["partition", "offset"], "left_anti")
    lost: dict[int, int] = {
        row.partition: row["count"] for row in missing.groupBy("partition").count().collect()
    }
    for name, part in parts.items():
        part["in_topic"] = counts.get(int(name), 0)
    for partition, count in sorted(lost.items()):
        some = missing.where(f"partition = {partition}").orderBy("offset").limit(EXAMPLES_MAX)
        offsets = [row.offset for row in some.collect()]
        parts[str(partition)]["missing"] = offsets
        report["problems"].append(
            f"partition {partition} lacks {counted(count, 'record')} of the topic, the first"
            f" at offset {offsets[0]}"
        )
