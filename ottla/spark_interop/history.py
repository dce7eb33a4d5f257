"""Large histories: the rules of `history_rules`, applied to each group of rows in a Spark task.

The two events of an operation are paired by process. Sends and polls are grouped by key; the rows
of the tables in LISTS are grouped by, for example, key and leader epoch. Rules over several keys
need little data of each key, so the final check of transactions runs in the driver.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop import history_rules as rules
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.history_events import HistoryError, operations, spread
from ottla.spark_interop.history_lists import LISTS, judge_lists

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_history_file(
    spark: SparkSession | None,
    path: str | Path,
    *,
    small: bool = False,
    not_idempotent: bool = False,
) -> dict[str, Any]:
    """Check the history in a file: JSON lines, or Parquet whose `mops` column is JSON text.

    Does not use Spark if `small` is true or `spark` is None. With `not_idempotent`, duplicates are
    legal. Returns {"valid", "anomalies": {rule: count}, "rules": {rule: what breaks it},
    "examples": {rule: [{"where", "what"}], at most 32}, "operations": {type: count}, "doubts":
    [text]}. Raises PipelineError for a file that is not a history, or inconsistent events.
    """
    if not Path(path).exists():
        raise PipelineError(f"history {path} not found")
    try:
        if small or spark is None:
            verdict = rules.check(_read(Path(path)), idempotent=not not_idempotent)
        else:
            verdict = check_history(spark, path, idempotent=not not_idempotent)
    except HistoryError as error:
        raise PipelineError(f"{path}: {error}") from error
    return verdict.to_json()


def _read(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.dataset

        for batch in pyarrow.dataset.dataset(path, format="parquet").to_batches():
            for row in batch.to_pylist():
                yield _event({name: value for name, value in row.items() if value is not None})
        return
    with path.open() as file:
        yield from _parsed(file, path)


def _parsed(lines: Any, path: str | Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield event_of(line, f"{path}, line {number}")


def event_of(line: str, where: str = "an event") -> dict[str, Any]:
    """Parses one event. Raises HistoryError if it is not valid."""
    try:
        event = json.loads(line)
    except ValueError as error:
        raise HistoryError(f"{where} is not JSON: {error}") from None
    if not isinstance(event, dict):
        raise HistoryError(f"{where} is not a JSON object")
    return _event(event)


def _event(event: dict[str, Any]) -> dict[str, Any]:
    if isinstance(event.get("mops"), str):
        try:
            event["mops"] = json.loads(event["mops"])
        except ValueError as error:
            shown = str(event)[:200]
            raise HistoryError(f"the field `mops` of {shown} is not JSON: {error}") from None
    return event


def check_history(
    spark: SparkSession, path: str | Path, *, idempotent: bool = True, ok_share_min: float = 0.5
) -> rules.Verdict:
    """Check the history in a file of any size by the same rules as `history_rules.check`. The
    events of one process, and those of one key (a topic-partition), must fit into the memory of a
    Spark task.

    Raises HistoryError if a line is not an event, or if events contradict each other.
    """
    if str(path).endswith(".parquet"):
        lines = spark.read.parquet(str(path)).toJSON()
    else:
        lines = spark.sparkContext.textFile(str(path))
    events = lines.filter(lambda line: bool(line.strip())).map(event_of)
    try:
        return _judge(events, idempotent, ok_share_min)
    except HistoryError:
        raise
    except Exception as error:
        text = str(error)
        if "HistoryError: " in text:
            line = text.partition("HistoryError: ")[2].splitlines()[0]
            raise HistoryError(line) from error
        raise


def _judge(events: Any, idempotent: bool, ok_share_min: float) -> rules.Verdict:
    verdict = rules.Verdict()
    by_process = events.keyBy(lambda event: event.get("process")).groupByKey()
    ops = by_process.flatMap(lambda one: operations(one[1])).persist()
    verdict.operations = dict(ops.map(lambda op: op.kind).countByValue())
    grouped = ops.groupBy(lambda op: op.process)
    rows = grouped.flatMap(lambda one: spread(sorted(one[1], key=lambda op: op.idx))).persist()
    try:
        keyed = rows.filter(lambda row: row[0] in ("send", "poll")).map(
            lambda row: (row[1], (row[0], row[2]))
        )
        finals = set(ops.filter(lambda op: op.event.get("final")).map(lambda op: op.kind)
                     .distinct().collect())
        ended = finals == {"ok"}
        facts = keyed.groupByKey().map(
            lambda one: _facts(one[0], list(one[1]), idempotent, ended)
        )
        facts = facts.persist()
        lists = rows.filter(lambda row: row[0] in LISTS).map(lambda r: ((r[0], r[1]), r[2]))
        broken = lists.groupByKey().flatMap(
            lambda one: judge_lists(one[0][0], one[0][1], list(one[1]))
        )
        own = rows.filter(lambda row: row[0] == "own").map(lambda row: row[2])
        for anomaly in (
            facts.flatMap(lambda f: f.anomalies).union(broken).union(own).toLocalIterator()
        ):
            verdict.add(anomaly)
        edges = set(facts.flatMap(lambda f: f.reads_from).collect())
        seen = facts.flatMap(lambda f: list(f.seen.items())).reduceByKey(
            lambda a, b: (a[0] + b[0], a[1] + b[1])
        )
        torn = dict(seen.filter(lambda one: one[1][0] > 0 and one[1][1] > 0).collect())
        inside = {op for edge in edges for op in edge}
        times = rows.filter(lambda row: row[0] == "txn" and row[1] in inside)
        for anomaly in rules.judge_transactions(
            torn, edges, dict(times.map(lambda row: (row[1], row[2])).collect())
        ):
            verdict.add(anomaly)
        unread = facts.flatMap(lambda f: f.unread).collect() if finals - {"ok"} else []
    finally:
        rows.unpersist()
        ops.unpersist()
    verdict.doubt(ok_share_min, sorted(unread, key=str))
    return verdict


def _facts(
    key: Hashable, rows: list[tuple[str, Any]], idempotent: bool, ended: bool
) -> rules.KeyFacts:
    sends = [row for table, row in rows if table == "send"]
    # Rows come from many processes in any order; `judge_key` sorts the rows of each process.
    polls = [row for table, row in rows if table == "poll"]
    return rules.judge_key(key, sends, polls, idempotent, ended)
