"""Quality: statistics about a topic or an archive, as JSON and as a page with plots.

The page is one file with the plots as SVG inside; it opens without a network.
"""

from __future__ import annotations

import html
import io
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop import topics
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import WrongOption
from ottla.spark_interop.pipelines import query_run
from ottla.spark_interop.pipelines.archive import read_archive
from ottla.spark_interop.value_format import Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
LATENESS = ((0, "in order"), (1_000, "1 s"), (60_000, "1 min"), (3_600_000, "1 h"),
            (86_400_000, "1 d"))  # fmt: skip
EXAMPLES = 8
BARS_MAX = 400
COLOUR = "#1f6feb"


def quality_report(
    spark: SparkSession,
    bootstrap: str | Cluster | None = None,
    topic: str | None = None,
    *,
    archive: str | Path | None = None,
    format: str = "raw",
    schema: Any = None,
    schemas: str | Path | None = None,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    html: str | Path | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Statistics of a topic (`bootstrap` and `topic`) or of an archive (its path as `archive`).

    Returns a dict:

    - "source": the name of the topic or the path of the archive;
    - "records", "tombstones", "without_key", "bad" (not in the format): counts of records;
    - "reasons": {error text: count}, the most frequent errors of bad records, at most 8;
    - "columns": {name: {"nulls" (share of the good records, 0 to 1), "distinct" (approximate number
      of values), "least" and "most" (the smallest and the largest value)}}; a column of structs,
      arrays or maps has only "nulls";
    - "duplicate_keys": the number of keys with more than one record;
    - "partitions": {p: {"records", "first" and "last" (offsets), "gaps" (number of offsets without
      a record, which includes transaction markers), "twice" (records whose offset another record
      has already; an offset that occurs three times counts two)}};
    - "bytes": {"key": sizes, "value": sizes}; sizes are the percentiles 0, 50, 90, 99 and 100 of
      the lengths in bytes;
    - "lateness": {limit: count} for the limits "in order", "1 s", "1 min", "1 h", "1 d", "more".
      The lateness of a record is how much older it is than the newest of the records before it in
      its partition. Each record counts for the smallest limit that its lateness does not exceed;
    - "days": {yyyy-MM-dd: number of records}.

    `html` names a file to which the report is also written, as a page.

    Raises PipelineError for a missing topic, archive or schema, and for `since` or `until` with an
    archive.
    """
    check_options(topic, archive, since, until)
    given = Format(format, schema, schemas)
    of, where = (topic, bootstrap) if archive is None else (archive, None)
    with query_run.telling(f"quality of {of}", progress, where) as shown, query_run.clock(shown):
        if archive is not None:
            raw = read_archive(spark, archive)
            frame = topics.typed(raw, given.at(str(raw.select("topic").first()[0])))
        elif bootstrap is not None and topic is not None:
            frame = topics.read_topic(
                spark, Cluster.begun(bootstrap), topic, format=given, since=since, until=until
            )
        else:
            raise WrongOption(
                f"the address of the cluster that has topic {topic} is missing: give `bootstrap`",
                "bootstrap")
        try:
            report = {"source": str(of), **measure(frame)}
        except Exception as error:
            raise query_run.explained(error) from error
    if html is not None:
        Path(html).write_text(page(report))
    return report


def check_options(
    topic: str | None, archive: str | Path | None, since: Any, until: Any
) -> None:
    """Raises PipelineError unless either a topic or an archive is given, and for `since` or `until`
    with an archive."""
    if topic is None and archive is None:
        raise WrongOption(
            "give `topic` and its cluster's address (`bootstrap`), or `archive`",
            "topic", "bootstrap", "archive")
    if topic is not None and archive is not None:
        raise WrongOption(
            "a report is about a topic or about an archive: leave out `topic` or `archive`",
            "topic", "archive")
    if archive is not None and not (since is None and until is None):
        raise WrongOption(
            "a report about an archive covers all of its records: leave out `since` and `until`,"
            " or name the topic instead", "since", "until"
        )


def measure(frame: DataFrame) -> dict[str, Any]:
    """The statistics of a frame that `topics.read_topic` returned, as in the result of
    `quality_report`. Reads the frame several times. Raises Spark's own errors.
    """
    from pyspark.sql import functions as f

    good = f.col("_error").isNull() & f.col("_value").isNotNull()
    names = [name for name in frame.columns if name not in topics.OWN and name != "value"]
    plain = [n for n in names if frame.schema[n].dataType.typeName() not in
             ("struct", "array", "map")]  # fmt: skip
    one = frame.agg(
        f.count("*").alias("records"),
        f.count_if(f.col("_value").isNull()).alias("tombstones"),
        f.count_if(f.col("_key").isNull()).alias("without_key"),
        f.count_if(f.col("_error").isNotNull()).alias("bad"),
        f.count_if(good).alias("good"),
        *[
            f.percentile_approx(f.length(column), list(PERCENTILES)).alias(f"size{column}")
            for column in ("_key", "_value")
        ],
        *[f.count_if(good & f.col(n).isNull()).alias(f"nulls {n}") for n in names],
        *[f.approx_count_distinct(n).alias(f"distinct {n}") for n in plain],
        *[f.min(n).cast("string").alias(f"least {n}") for n in plain],
        *[f.max(n).cast("string").alias(f"most {n}") for n in plain],
    ).first()
    assert one is not None
    row = one.asDict()
    reasons = frame.where("_error IS NOT NULL").groupBy("_error").count()
    days = frame.groupBy(f.to_date("_timestamp").cast("string").alias("day")).count()
    keys = frame.where("_key IS NOT NULL").groupBy("_key").count()
    return {
        **{name: row[name] for name in ("records", "tombstones", "without_key", "bad")},
        "reasons": {r[0]: r[1] for r in reasons.orderBy(f.desc("count")).limit(EXAMPLES).collect()},
        "columns": {
            name: {
                "nulls": round(row[f"nulls {name}"] / max(row["good"], 1), 6),
                **{k: row[f"{k} {name}"] for k in ("distinct", "least", "most") if name in plain},
            }
            for name in names
        },
        "duplicate_keys": keys.where("count > 1").count(),
        "partitions": _partitions(frame),
        "bytes": {kind: row[f"size_{kind}"] or [] for kind in ("key", "value")},
        "lateness": _lateness(frame),
        "days": {r.day: r["count"] for r in days.orderBy("day").collect()},
    }


def _partitions(frame: DataFrame) -> dict[int, dict[str, int]]:
    from pyspark.sql import functions as f

    counted = frame.groupBy("_partition").agg(
        f.count("*").alias("records"),
        f.countDistinct("_offset").alias("distinct"),
        f.min("_offset").alias("first"),
        f.max("_offset").alias("last"),
    )
    return {
        r["_partition"]: {
            "records": r.records,
            "first": r["first"],
            "last": r["last"],
            "gaps": r["last"] - r["first"] + 1 - r.distinct,
            "twice": r.records - r.distinct,
        }
        for r in counted.orderBy("_partition").collect()
    }


def _lateness(frame: DataFrame) -> dict[str, int]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = Window.partitionBy("_partition").orderBy("_offset")
    newest = f.max("_timestamp").over(before.rowsBetween(Window.unboundedPreceding, 0))
    late = f.unix_millis(newest) - f.unix_millis("_timestamp")
    step = f.lit("more")
    for bound, label in reversed(LATENESS):
        step = f.when(late <= bound, label).otherwise(step)
    counted = frame.select(step.alias("step")).groupBy("step").count().collect()
    counts = {r.step: r["count"] for r in counted}
    return {label: counts.get(label, 0) for label in [*(x for _, x in LATENESS), "more"]}


def page(report: dict[str, Any]) -> str:
    """The report as one HTML document."""

    def table(head: list[str], rows: list[list[Any]]) -> str:
        cells = "".join(f"<th>{html.escape(str(x))}</th>" for x in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(x))}</td>" for x in row) + "</tr>"
            for row in rows
        )
        return f"<table><tr>{cells}</tr>{body}</table>"

    parts = [f"<h1>{html.escape(report['source'])}</h1>"]
    names = ("records", "tombstones", "without_key", "bad", "duplicate_keys")
    parts.append(table([n.replace("_", " ") for n in names], [[report[n] for n in names]]))
    if report["days"]:
        parts += ["<h2>Records per day</h2>", plot(report["days"])]
    if report["reasons"]:
        rows = [[reason, count] for reason, count in report["reasons"].items()]
        parts += ["<h2>Bad records</h2>", table(["reason", "records"], rows)]
    if report["columns"]:
        head = ["column", "nulls", "distinct (about)", "least", "most"]
        rows = [
            [n, f"{c['nulls']:.2%}", c.get("distinct", ""), c.get("least", ""), c.get("most", "")]
            for n, c in report["columns"].items()
        ]
        parts += ["<h2>Columns</h2>", table(head, rows)]
    head = ["partition", "records", "first", "last", "gaps", "twice"]
    rows = [[p, *(x[n] for n in head[1:])] for p, x in report["partitions"].items()]
    parts += ["<h2>Offsets</h2>", table(head, rows)]
    late = (
        "Records by lateness: up to this much older than the newest earlier record of the partition"
    )
    parts += [f"<h2>{late}</h2>", plot(report["lateness"])]
    head = ["bytes", "least", "median", "90 %", "99 %", "most"]
    rows = [[kind, *sizes] for kind, sizes in report["bytes"].items() if sizes]
    parts += ["<h2>Sizes</h2>", table(head, rows)]
    return PAGE.replace("TITLE", html.escape(report["source"])).replace("BODY", "\n".join(parts))


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def plot(bars: dict[str, int]) -> str:
    """Bars as SVG. If there are more than BARS_MAX, each bar is the sum of several neighbours."""
    from matplotlib.figure import Figure

    names, values = list(bars), list(bars.values())
    group = -(-len(names) // BARS_MAX)
    names = names[::group]
    values = [sum(values[i : i + group]) for i in range(0, len(values), group)]
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(len(names)), values, color=COLOUR, width=0.9)
    step = max(len(names) // 8, 1)
    axes.set_xticks(range(0, len(names), step), names[::step], fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]


def to_json(report: dict[str, Any]) -> str:
    """The report as indented JSON."""
    return json.dumps(report, indent=1, default=str)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>TITLE</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;
margin:2rem auto;padding:0 1rem;color:#1f2328}
table{border-collapse:collapse;margin:.5rem 0}
td,th{padding:.25rem .8rem;border-bottom:1px solid #d1d9e0;
text-align:left;font-variant-numeric:tabular-nums}svg{width:100%;height:auto}h2{margin-top:2rem}
</style><body>BODY</body></html>
"""
