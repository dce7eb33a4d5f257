"""Mirror: copies a topic into a topic of another cluster, each record exactly once.

Partition, key, value, timestamp and headers are kept. Offsets cannot be kept: the destination
assigns its own, and its transaction markers take offsets, too. The topic `DESTINATION.offsets` has
both the old and the new offsets: each transaction writes a record to it. The record's key is
`CLUSTER/TOPIC/PARTITION`. Its value is `{"source_offset": …, "offset": …}`, the two offsets of the
transaction's last record.

Loops: every record gets the header `ottla.mirror.path`, the names of the clusters it came through.
A record whose path has the destination's name came from there and is skipped, so two clusters may
mirror each other's topics.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster, offsets_json
from ottla.spark_interop.errors import NoBroker, PipelineError
from ottla.spark_interop.pipelines import query_run, table, targets, transactional
from ottla.spark_interop.pipelines.archive import read_offsets
from ottla.spark_interop.pipelines.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATH_HEADER = "ottla.mirror.path"


def mirror(
    spark: SparkSession,
    source: str | Cluster,
    topic: str,
    destination: str | Cluster,
    checkpoint: str | Path,
    *,
    to: str | None = None,
    name: str | None = None,
    names: tuple[str, str] | None = None,
    every: str | None = None,
    records_per_batch: int = 500_000,
    allow_gaps: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Copy new records of `topic` to another cluster, into the topic `to` (default: the same name).

    If the destination topic does not exist, it is created with the settings of the source
    topic. If it exists, it must have at least as many partitions as the source topic. `name` is
    the mirror's name, by default `mirror-TOPIC`. The destination cluster keeps the progress under
    that name, so each record is copied exactly once even if the checkpoint is lost. The header
    `ottla.mirror.path` of a copy lists the clusters that the record came through; `names` are the
    names of source and destination in this header, by default their cluster ids. A record that
    came through the destination is not copied. `every` is as in `archive`.

    Returns {"written", "already_there", "left_out" (came from the destination), "restamped"
    (as in `replay`), "seconds", "lag": {p: number of source offsets not mirrored yet}}. Raises
    as `archive` does. Also raises PipelineError if the name or the checkpoint belongs to another
    topic; if the destination topic was created again; or if the compaction or (unless `allow_gaps`)
    the retention of the destination topic would delete the written records.
    """
    target, begin = to or topic, time.monotonic()
    with query_run.telling(f"mirror {topic}", progress, source, destination) as shown:
        there, here = Cluster.begun(destination), Cluster.begun(source)
        check_target(here, topic, there, target)
        ours, theirs = names or (here.id(), there.id())
        place = Files(spark, checkpoint)
        claimed, into = claim_of(here, topic, there, target, name)
        into = replace(into, map_topic=f"{target}.offsets", map_key=f"{ours}/{topic}")
        table.check_claim(place, claimed, into)
        like, partitions = targets.settings_like(here, topic), len(here.partitions(topic))
        has_older = targets.older_in_topic(here, topic, targets.read_up_to(into, place))
        # With allow_gaps, records that the target would delete count as a gap.
        if allow_gaps and there.exists(target):
            has_older = lambda _: False  # noqa: E731
        targets.prepare(there, target, partitions, like, has_older)
        kept = there.settings(target)["retention.ms"].value
        there.create(f"{target}.offsets", 1, {"retention.ms": kept})
        into = transactional.begun_with(into)
        starting = _starting(here, topic, into, None if allow_gaps else place)
        table.claim(place, claimed, into)
        report: dict[str, Any] = {"written": 0, "already_there": 0, "left_out": 0, "restamped": 0}
        stream = _stream(spark, here, topic, starting, records_per_batch, allow_gaps)

        def write(batch: DataFrame, number: int) -> None:
            rows = _rows(batch, ours, theirs)
            rows = rows.where("NOT looped").drop("looped")
            with telling_of(there, here, shown):
                done = transactional.write(rows, into, in_order=True)
            report["written"] += transactional.total(done)
            report["already_there"] += transactional.total(done, "skipped")
            report["restamped"] += transactional.total(done, "restamped")

        with place.lock(table.LOCK):
            rows = query_run.drain(stream.writeStream.foreachBatch(write), place, "", every, shown,
                                   watch=into.check, reach=into.reach)  # fmt: skip
        report["lag"] = _lag_at_the_end(here, topic, place, shown)
    report["left_out"] = max(rows - report["written"] - report["already_there"], 0)
    report["seconds"] = round(time.monotonic() - begin, 3)
    return report


def telling_of(
    there: Cluster, here: Cluster, shown: query_run.Progress
) -> AbstractContextManager[None]:
    """Reports outages of the destination, but only while a batch is written: an idle mirror does
    not need the destination. `drain` reports outages of the source."""
    if there.bootstrap == here.bootstrap:
        return nullcontext()
    return query_run.looking(shown, there.reach, beside_query=True)


def claim_of(
    here: Cluster, topic: str, there: Cluster, to: str | None, name: str | None
) -> tuple[dict[str, Any], transactional.Destination]:
    """The facts about a mirror that its checkpoint stores, and the mirror's destination."""
    about = here.identity(topic)
    into = transactional.Destination(
        there, to or topic, name or f"mirror-{topic}", source=" ".join(about.values()),
        source_cluster=about["cluster"],
        origin=transactional.Origin(here, topic, about["topic_id"]),
    )  # fmt: skip
    return about | {"to": into.topic, "name": into.writer}, into


def check_target(here: Cluster, topic: str, there: Cluster, target: str) -> None:
    """Raises PipelineError if a topic would be mirrored into itself."""
    if target == topic and here.id() == there.id():
        raise PipelineError(
            f"{topic} would be mirrored into itself: name another topic with --to (to=)")


def mirror_lag(
    source: str | Cluster,
    topic: str,
    destination: str | Cluster,
    *,
    to: str | None = None,
    name: str | None = None,
) -> dict[int, int]:
    """For each partition, how many offsets of the source follow the last record that was copied.

    The numbers include offsets that are never copied: those of transaction markers, of aborted
    records, and of records that came from the destination. The "lag" that a run of `mirror`
    returns includes such offsets only if the run has not read them. Raises PipelineError if the
    topic does not exist, or if no broker answers.
    """
    here, there = Cluster.reached(source), Cluster.reached(destination)
    into = transactional.Destination(
        there, to or topic, name or f"mirror-{topic}", source_cluster=here.id()
    )
    done = transactional.positions(into)
    starts = here.starts(topic)
    return {p: end - max(done.get(p, 0), starts[p]) for p, end in sorted(here.ends(topic).items())}


def _lag_at_the_end(
    here: Cluster, topic: str, checkpoint: Files, shown: query_run.Progress
) -> dict[int, int]:
    """The result of `_lag`. After Ctrl-C, the summary must not wait for a broker: if none answers,
    the result is {}."""
    if not shown.interrupted:
        return _lag(here, topic, checkpoint)
    try:
        return _lag(replace(here, patience_seconds=0), topic, checkpoint)
    except NoBroker:
        return {}


def _lag(here: Cluster, topic: str, checkpoint: Files) -> dict[int, int]:
    """By partition, how many offsets of the source follow the last batch."""
    ends = here.ends(topic)
    done = read_offsets(checkpoint, "")
    return {p: end - done.get(str(p), 0) for p, end in sorted(ends.items())}


def _starting(
    here: Cluster, topic: str, into: transactional.Destination, checkpoint: Files | None
) -> str:
    """Where a mirror without a checkpoint begins: at its progress, but not before the log start.
    If `checkpoint` is given, raises DataLost as `targets.refuse_unread` does."""
    if checkpoint is not None:
        targets.refuse_unread(here, topic, into, checkpoint)
    done = transactional.begin(into).positions
    starts = here.starts(topic)
    return offsets_json(topic, {p: max(done.get(p, 0), start) for p, start in starts.items()})


def _stream(
    spark: SparkSession, here: Cluster, topic: str, starting: str, count: int, allow_gaps: bool
) -> DataFrame:
    source = here.spark_options() | {
        "subscribe": topic,
        "startingOffsets": starting,
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": str(count),
        "failOnDataLoss": str(not allow_gaps).lower(),
    }
    return spark.readStream.format("kafka").options(**source).load()


def _rows(batch: DataFrame, ours: str, theirs: str) -> DataFrame:
    """The rows with the path header, and whether a record came from the destination (`looped`)."""
    from pyspark.sql import functions as f

    mark = f"'{PATH_HEADER}'"
    old = f.expr(f"decode(try_element_at(filter(headers, h -> h.key = {mark}), -1).value, 'UTF-8')")
    path = f.when(old.isNull(), f.lit(ours)).otherwise(f.concat(old, f.lit(f",{ours}")))
    header = f.struct(f.lit(PATH_HEADER).alias("key"), path.cast("binary").alias("value"))
    kept = f.expr(
        f"coalesce(filter(headers, h -> h.key != {mark}), "
        "cast(array() AS array<struct<key:string,value:binary>>))"
    )
    looped = f.coalesce(f.array_contains(f.split(old, ","), theirs), f.lit(False))
    # `looped` is computed from the received headers, not from the new path. The new path has the
    # source's name. If both topics are in one cluster, that is by default also the destination's
    # name, and every record would count as looped.
    batch = batch.withColumn("looped", looped)
    return batch.withColumn("headers", f.concat(kept, f.array(header))).select(
        f.col("partition").alias("lane"),
        (f.col("offset") + 1).alias("position"),
        "key",
        "value",
        "headers",
        "partition",
        f.unix_millis("timestamp").alias("timestamp_ms"),
        "looped",
    )
