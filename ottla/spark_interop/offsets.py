"""Offsets of queries and of consumer groups, conversions between them, and lag as metrics.

Spark keeps a query's offsets in its checkpoint, where no Kafka tool finds them. `OffsetCommitter`
commits them to a consumer group after each batch, for monitoring only: the query never reads them.
"""

from __future__ import annotations

import ast
import json
import logging
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster, offsets_json
from ottla.spark_interop.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

TopicOffsets = dict[str, dict[int, int]]
ANSWER_SECONDS = 15
PENDING_MAX = 64  # progress events that wait for a commit; the oldest are dropped
logger = logging.getLogger(__name__)


def commit(where: str | Cluster, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Set a group's offsets. Raises PipelineError if the group has members or a topic does not
    exist."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    wanted = [TopicPartition(t, p, o) for t, ps in offsets.items() for p, o in ps.items()]
    consumer = Consumer(
        Cluster.of(where).client(**{"group.id": group, "enable.auto.commit": False})
    )
    try:
        done = consumer.commit(offsets=wanted, asynchronous=False)
        failed = [at for at in done if at.error is not None]
    except KafkaException as error:
        raise PipelineError(
            f"the offsets of group {group} were not set: {error.args[0].str()}. If the "
            "group has consumers, only they can set its offsets: use a group without consumers"
        ) from error
    finally:
        consumer.close()
    if failed:
        at = f"{failed[0].topic}-{failed[0].partition}"
        raise PipelineError(
            f"the offset of group {group} in {at} was not set: {failed[0].error.str()}")


def group_offsets(where: str | Cluster, group: str, topic: str) -> dict[int, int]:
    """The offsets that a group has committed for a topic, by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    cluster = Cluster.reached(where)
    places = [TopicPartition(topic, p) for p in cluster.partitions(topic)]
    asked = ConsumerGroupTopicPartitions(group, places)

    def ask(admin: Any) -> list[TopicPartition]:
        [answer] = admin.list_consumer_group_offsets(
            [asked], request_timeout=ANSWER_SECONDS
        ).values()
        return list(answer.result().topic_partitions)

    answers = cluster.asked(ask, f"group {group}")
    for at in answers:
        if at.error is not None:        # its offset is negative, as if none had been committed
            raise PipelineError(
                f"the offset of group {group} in {topic}-{at.partition} is unknown:"
                f" {at.error.str()}")
    return {at.partition: at.offset for at in answers if at.offset >= 0}


def starting_offsets_from_group(
    where: str | Cluster, group: str, topic: str, missing: str = "earliest"
) -> str:
    """The value of Spark's option `startingOffsets` (JSON), made from a consumer group's offsets.

    Partitions without a committed offset get the value of `missing`: earliest or latest. Raises
    PipelineError if the group has no committed offset for the topic.
    """
    found = group_offsets(where, group, topic)
    if not found:
        raise PipelineError(f"group {group} has no committed offset for {topic}")
    other = {"earliest": -2, "latest": -1}[missing]
    partitions = Cluster.of(where).partitions(topic)
    return offsets_json(topic, {p: found.get(p, other) for p in partitions})


def offsets_from_checkpoint(checkpoint: str | Path) -> TopicOffsets:
    """The offsets at which a query will continue: those after the last committed batch in its
    checkpoint, as {topic: {partition: offset}}. The checkpoint must be on a local file system.

    Raises PipelineError if the checkpoint has no committed batch, or if the query does not read a
    Kafka topic.
    """
    place = Path(checkpoint)
    numbers = [int(f.name) for f in (place / "commits").glob("[0-9]*") if f.name.isdigit()]
    if not numbers:
        raise PipelineError(f"{place} is not a checkpoint, or no batch is committed yet")
    batch = place / "offsets" / str(max(numbers))
    if not batch.is_file():
        raise PipelineError(f"the checkpoint {place} is incomplete: it lacks {batch}")
    lines = batch.read_text().splitlines()
    result: TopicOffsets = {}
    for line in lines[2:]:  # the version, the batch's settings, then a line per source
        if line.startswith("{"):
            _merge(result, json.loads(line))
    if not result:
        raise PipelineError(f"the query with the checkpoint {place} does not read a Kafka topic")
    return result


def starting_offsets_from_checkpoint(checkpoint: str | Path) -> str:
    """The value of Spark's option `startingOffsets` (JSON) for a new query that continues where the
    query of the checkpoint stopped.

    Raises PipelineError for a directory that is not a checkpoint.
    """
    found = offsets_from_checkpoint(checkpoint)
    return json.dumps({t: {str(p): o for p, o in ps.items()} for t, ps in found.items()})


def checkpoint_to_group(checkpoint: str | Path, where: str | Cluster, group: str) -> TopicOffsets:
    """Set the offsets of a consumer group to those of a checkpoint, so that a consumer of the group
    continues where the query stopped. Stop the query first. Returns the offsets.

    Raises PipelineError for a directory that is not a checkpoint, a group with members, or a topic
    that does not exist.
    """
    found = offsets_from_checkpoint(checkpoint)
    commit(Cluster.reached(where), group, found)
    return found


def _merge(into: TopicOffsets, offsets: Any) -> None:
    if isinstance(offsets, dict):
        for topic, partitions in offsets.items():
            if isinstance(partitions, dict):
                into.setdefault(topic, {}).update({int(p): int(o) for p, o in partitions.items()})


def _sources(progress: Any) -> list[Any]:
    return [s for s in progress.sources if str(s.description).startswith("KafkaV2")]


def _is_batch(progress: Any) -> bool:
    """Whether a progress report is about a batch that ran, and not about an idle trigger."""
    return bool(progress.numInputRows) or "addBatch" in progress.durationMs


def OffsetCommitter(where: str | Cluster, group: str | Mapping[str, str]) -> Any:
    """A StreamingQueryListener that commits each batch's end offsets to a consumer group.

    To use it, call `spark.streams.addListener(OffsetCommitter("localhost:9092", "my-query"))`.
    `group` is one group for all queries, or {query name: group}; offsets of queries without a group
    are not committed. A separate thread commits, so an unreachable broker does not delay queries.
    If a commit fails, errors are only logged; the group's offsets stay as they were until the
    next batch's offsets are committed. `close()` waits for pending commits.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    class Committer(StreamingQueryListener):
        def __init__(self) -> None:
            self._cluster = Cluster.of(where)
            self._pending: queue.Queue[tuple[str, TopicOffsets] | None] = queue.Queue(PENDING_MAX)
            self._thread = threading.Thread(target=self._run, name="OffsetCommitter", daemon=True)
            self._thread.start()

        def onQueryStarted(self, event: Any) -> None:
            """Does nothing: there is nothing to commit yet."""

        def onQueryProgress(self, event: Any) -> None:
            """Queues the end offsets."""
            to = group if isinstance(group, str) else group.get(event.progress.name or "")
            if to is None:
                return
            offsets: TopicOffsets = {}
            for source in _sources(event.progress):
                _merge(offsets, offsets_of(source.endOffset))
            while offsets:
                try:
                    return self._pending.put_nowait((to, offsets))
                except queue.Full:
                    self._drop_oldest()

        def _drop_oldest(self) -> None:
            try:
                self._pending.get_nowait()
            except queue.Empty:
                return

        def onQueryIdle(self, event: Any) -> None:
            """Does nothing: there are no new offsets."""

        def onQueryTerminated(self, event: Any) -> None:
            """Does nothing: the thread still commits pending offsets."""

        def _run(self) -> None:
            while (item := self._pending.get()) is not None:
                try:
                    commit(self._cluster, *item)
                except Exception as error:
                    logger.warning(
                        "offsets of group %s were not committed: %s. The next commit is after"
                        " the query's next batch", item[0], error)

        def close(self, seconds: float = 30) -> None:
            """Commit pending offsets, then end the thread."""
            self._pending.put(None)
            self._thread.join(seconds)

    return Committer()


def offsets_of(text: Any) -> Any:
    """The offsets in a progress report. In pyspark before 4.2, they are the text of a Python dict,
    `{'events': {'0': 7}}`, if pyspark has read the report from JSON."""
    if not isinstance(text, str) or not text.startswith("{"):
        return text
    return json.loads(text) if '"' in text else ast.literal_eval(text)


def lag_metrics(query: StreamingQuery) -> str:
    """The lag after a query's last batch, in Prometheus text format; "" before the first batch.

        ottla_spark_offsets_behind_latest{query,topic,partition}   how many offsets follow the batch
        ottla_spark_end_offset{query,topic,partition}              the offset where the batch ended
        ottla_spark_input_rows_per_second{query}, ottla_spark_processed_rows_per_second{query}
        ottla_spark_batch_duration_seconds{query}, ottla_spark_batch_id{query}

    While there is nothing to read, the rates are 0. `ottla_spark_batch_duration_seconds` is
    left out if none of the query's last hundred reports is about a batch, that is, after about
    17 minutes without records. All figures come from the query's progress reports, so no request
    is sent. Raises nothing.
    """
    last = query.lastProgress
    if last is None:
        return ""
    # A report without a batch has the next batch's number.
    number = last.batchId if _is_batch(last) else last.batchId - 1
    if number < 0:
        return ""
    name = _label(query.name or str(query.id))
    reports = [last] if _is_batch(last) else reversed(query.recentProgress)
    ran = next(filter(_is_batch, reports), None)
    gauges: dict[str, list[tuple[str, float]]] = {
        "batch_id": [("", number)],
        "batch_duration_seconds": [] if ran is None else [("", ran.batchDuration / 1000)],
        "input_rows_per_second": [("", last.inputRowsPerSecond)],
        "processed_rows_per_second": [("", last.processedRowsPerSecond)],
        "end_offset": [],
        "offsets_behind_latest": [],
    }
    for source in _sources(last):
        ended: TopicOffsets = {}
        latest: TopicOffsets = {}
        _merge(ended, offsets_of(source.endOffset))
        _merge(latest, offsets_of(source.latestOffset))
        for topic, partitions in ended.items():
            for partition, offset in sorted(partitions.items()):
                labels = f',topic="{_label(topic)}",partition="{partition}"'
                gauges["end_offset"].append((labels, offset))
                behind = max(latest.get(topic, {}).get(partition, offset) - offset, 0)
                gauges["offsets_behind_latest"].append((labels, behind))
    lines = []
    for gauge, values in gauges.items():
        lines.append(f"# TYPE ottla_spark_{gauge} gauge")
        lines += [f'ottla_spark_{gauge}{{query="{name}"{more}}} {v:g}' for more, v in values
                  if v == v]  # fmt: skip
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
