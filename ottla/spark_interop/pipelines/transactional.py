"""Rows into a topic exactly once, from Spark tasks: each transaction carries its own progress.

Spark's sink is at least once. Here every lane (a partition of the destination) has a transactional
producer; the position up to which rows are written is committed as the offset of a consumer group,
in the same transaction as the rows (KIP-98). A task that runs again, in this driver or the next,
fences its predecessor, fetches that position and skips what is written. Readers with
isolation.level=read_committed see every row once; others see aborted rows too.

The metadata of these offsets says of what source they are positions. Another source under the same
name is refused: its rows would be skipped as if they were written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_SECONDS = 120  # a broker may restart meanwhile
RECORDS_MAX = 50_000  # of a transaction
SECONDS_MAX = 10.0
TRANSACTION_TIMEOUT_MS = 180_000
QUEUED_RECORDS_MAX = 100_000
QUEUED_KBYTES_MAX = 65_536
SOURCE_BYTES_MAX = 2_000  # brokers take 4,096 (offset.metadata.max.bytes)
COUNTS = ("written", "skipped", "transactions", "restamped")
RESULT = f"lane INT, {', '.join(f'{name} LONG' for name in COUNTS)}, position LONG"
TIMESTAMP_NONE = -1
COORDINATOR_AWAY = frozenset({
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "_ALL_BROKERS_DOWN", "_TRANSPORT", "_WAIT_COORD", "UNSTABLE_OFFSET_COMMIT",
})  # fmt: skip


@dataclass(frozen=True)
class Destination:
    """Where rows are written, and the name under which the progress is kept.

    `writer` names the pipeline: it is the group whose offsets are the positions, and the beginning
    of the transactional ids. `rate` is records a second of one task, None without a limit.
    `map_topic` gets one record per transaction: which position is at which offset. `source` names
    what the rows are of, up to SOURCE_BYTES_MAX in UTF-8.
    """

    cluster: Cluster
    topic: str
    writer: str
    rate: float | None = None
    map_topic: str | None = None
    map_key: str = ""
    source: str = ""
    compression: str = "lz4"


def positions(cluster: Cluster, topic: str, writer: str) -> dict[int, int]:
    """The committed position of each lane, for those that have one."""
    return check(Destination(cluster, topic, writer))


def check(to: Destination) -> dict[int, int]:
    """The position of each lane that has one; PipelineError if they are of another source."""
    from confluent_kafka import Consumer, TopicPartition

    lanes = [TopicPartition(to.topic, p) for p in to.cluster.partitions(to.topic)]
    consumer = Consumer(to.cluster.client(**_group(to.writer)))
    try:
        found = _committed(consumer, lanes)
    finally:
        consumer.close()
    for at in found:
        _check_source(to, at)
    return {at.partition: at.offset for at in found if at.offset >= 0}


def _check_source(to: Destination, committed: Any) -> None:
    """Positions of an older version have no source: they are taken as this one's."""
    there = committed.metadata if committed.offset >= 0 else None
    if there and to.source and there != to.source:
        raise PipelineError(
            f"`{to.writer}` has written to {to.topic} from another source ({there}), not from "
            f"{to.source}: give this pipeline a name of its own"
        )


def write(rows: DataFrame, to: Destination, *, in_order: bool = False) -> dict[int, dict[str, int]]:
    """Write rows that have not been written before.

    Columns: lane int (a partition of the destination), position bigint (grows within a lane; rows
    of one position are written in one transaction), key binary, value binary, and where there are
    headers array<struct<key, value>>, partition int (else the key decides, as Java's partitioner
    does), timestamp_ms bigint. With `in_order` the caller's tasks already have the rows of a lane
    together and by position; else rows are shuffled and sorted so.

    Returns {lane: {"written", "skipped", "transactions", "restamped" (records with times up to
    1970-01-01, which librdkafka cannot send and sends with the present time), "position"}}. Raises
    PipelineError where a lane is no partition of the destination, the name was used for another
    source, or the brokers refuse.
    """
    lanes = to.cluster.partitions(to.topic)
    if not in_order:
        rows = rows.repartition(min(len(lanes), 32), "lane").sortWithinPartitions(
            "lane", "position"
        )
    names = [name for name in ("lane", "position", "key", "value", "headers", "partition",
                               "timestamp_ms") if name in rows.columns]  # fmt: skip
    done = rows.select(*names).mapInArrow(_task(to, len(lanes)), RESULT).collect()
    report: dict[int, dict[str, int]] = {}
    for row in done:
        one = report.setdefault(row.lane, dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            one[name] += row[name]
        one["position"] = max(row.position, one.get("position", 0))
    return report


def total(report: dict[int, dict[str, int]], name: str = "written") -> int:
    """The sum over the lanes of a report of `write`."""
    return sum(one[name] for one in report.values())


def empty(spark: SparkSession) -> DataFrame:
    """No rows, with the columns of `write`."""
    return spark.createDataFrame([], "lane INT, position LONG, key BINARY, value BINARY")


def _group(writer: str) -> dict[str, Any]:
    return {
        "group.id": writer,
        "isolation.level": "read_committed",  # wait for offsets of open transactions
        "enable.auto.commit": False,
    }


def _task(to: Destination, lanes: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Runs a Spark task on its Arrow batches."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        lane: Lane | None = None
        finished = []
        try:
            for batch in batches:
                columns = {n: batch.column(i).to_pylist() for i, n in enumerate(batch.schema.names)}
                for number, wanted in enumerate(columns["lane"]):
                    if lane is None or lane.number != wanted:
                        if lane is not None:
                            finished.append(lane.finish())
                        lane = Lane(to, wanted, lanes)
                    lane.add({name: column[number] for name, column in columns.items()})
            if lane is not None:
                finished.append(lane.finish())
        except BaseException:
            if lane is not None:
                lane.abandon()
            raise
        names = [part.split()[0] for part in RESULT.split(", ")]
        types = [pyarrow.int32()] + [pyarrow.int64()] * (len(names) - 1)
        arrays = [
            pyarrow.array([done[i] for done in finished], kind) for i, kind in enumerate(types)
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=names)

    return run


class Lane:
    """One transactional producer, from a task's first row of a lane to its last."""

    def __init__(self, to: Destination, number: int, lanes: int) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        if not 0 <= number < lanes:
            raise PipelineError(
                f"partition {number} does not exist in {to.topic}, which has {lanes} partitions: "
                "make it with as many as the source has"
            )
        self.number, self._to = number, to
        self._at = TopicPartition(to.topic, number)
        self._producer = Producer(
            to.cluster.client(
                **{
                    "transactional.id": f"{to.writer}-{number}",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "compression.type": to.compression,
                    "partitioner": "murmur2_random",
                    "linger.ms": 20,
                    "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
                    "queue.buffering.max.kbytes": QUEUED_KBYTES_MAX,
                }
            )
        )
        _patiently(lambda: self._producer.init_transactions(PATIENCE_SECONDS))
        # Only now: the previous owner of this id can no longer commit.
        self._consumer = Consumer(to.cluster.client(**_group(to.writer)))
        [committed] = _committed(self._consumer, [self._at])
        _check_source(to, committed)
        self._done = committed.offset if committed.offset >= 0 else -1
        self._position = self._done
        self._open_since: float | None = None
        self._in_transaction = 0
        self._failed: list[str] = []
        self._last: tuple[int, int] | None = None
        self._begin = time.monotonic()
        self.written = self.skipped = self.transactions = self.restamped = 0

    def add(self, row: dict[str, Any]) -> None:
        """Writes a row unless it is written; commits when a transaction is large or old enough."""
        position = row["position"]
        if position <= self._done:
            self.skipped += 1
            return
        if position < self._position:
            raise PipelineError(
                f"lane {self.number} has position {position} after {self._position}: not in order"
            )
        if position > self._position and self._is_due():
            self._commit()
        if self._open_since is None:
            self._producer.begin_transaction()
            self._open_since = time.monotonic()
        self._position = position
        self._produce(row)

    def _is_due(self) -> bool:
        return self._open_since is not None and (
            self._in_transaction >= RECORDS_MAX
            or time.monotonic() - self._open_since >= SECONDS_MAX
        )

    def _produce(self, row: dict[str, Any]) -> None:
        headers = row.get("headers")
        more: dict[str, Any] = {}
        if row.get("partition") is not None:
            more["partition"] = row["partition"]
        timestamp_ms = row.get("timestamp_ms")
        if timestamp_ms is not None and timestamp_ms > 0:
            more["timestamp"] = timestamp_ms
        elif timestamp_ms is not None and timestamp_ms != TIMESTAMP_NONE:
            self.restamped += 1
        if headers:
            more["headers"] = [(h["key"], h["value"]) for h in headers]
        while True:
            try:
                self._producer.produce(
                    self._to.topic, row["value"], row["key"], on_delivery=self._delivered, **more
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._in_transaction += 1
        self.written += 1
        if self._in_transaction % 1000 == 0:
            self._producer.poll(0)
        if self._to.rate:
            ahead = self.written / self._to.rate - (time.monotonic() - self._begin)
            if ahead > 0.05:
                self._producer.poll(min(ahead, 5.0))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error.str())
        else:
            self._last = (message.partition(), message.offset())

    def _commit(self) -> None:
        """Rows, map record and position become visible together, or not at all."""
        from confluent_kafka import TopicPartition

        producer = self._producer
        if self._to.map_topic is not None:
            producer.flush(PATIENCE_SECONDS)
            if self._last is not None and not self._failed:
                text = f'{{"source_offset": {self._position - 1}, "offset": {self._last[1]}}}'
                key = f"{self._to.map_key}/{self.number}"
                producer.produce(self._to.map_topic, text, key, on_delivery=self._mapped)
        at = TopicPartition(self._to.topic, self.number, self._position, self._to.source or None)
        group = self._consumer.consumer_group_metadata()
        _patiently(lambda: producer.send_offsets_to_transaction([at], group, 30))
        if producer.flush(PATIENCE_SECONDS) or self._failed:
            raise PipelineError(
                f"{self._to.topic} did not take {len(self._failed) or 'all'} records: "
                f"{self._failed[0] if self._failed else 'no answer in time'}"
            )
        _patiently(lambda: producer.commit_transaction(30))
        self._done = self._position
        self._open_since, self._in_transaction = None, 0
        self.transactions += 1

    def _mapped(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error.str())

    def finish(self) -> tuple[int, ...]:
        """Commits what is open; returns a row of the report."""
        if self._open_since is not None:
            self._commit()
        self._consumer.close()
        counts = (getattr(self, name) for name in COUNTS)
        return self.number, *counts, self._done

    def abandon(self) -> None:
        """Aborts what is open, so that readers do not wait for its timeout."""
        if self._open_since is not None:
            try:
                self._producer.abort_transaction(5)
            except Exception:  # the error that led here is the one to report
                return


def _committed(consumer: Any, lanes: list[Any]) -> list[Any]:
    """The committed offsets. librdkafka does not mark these errors of a consumer as retriable."""
    from confluent_kafka import KafkaException

    def ask() -> list[Any]:
        found = list(consumer.committed(lanes, PATIENCE_SECONDS))
        for at in found:
            if at.error is not None:    # and no offset, as where none was ever committed
                raise KafkaException(at.error)
        return found

    answers: list[Any] = _patiently(ask, COORDINATOR_AWAY)
    return answers


def _patiently(call: Callable[[], Any], passing: Collection[str] = ()) -> Any:
    """Retry while the broker or its coordinator is away; other errors become a PipelineError.

    Errors named in `passing` are retried, too.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            code = error.args[0]
            waits = code.retriable() or code.name() in passing
            if not waits or time.monotonic() > deadline:
                raise PipelineError(f"{code.name()}: {code.str()}") from error
            time.sleep(0.2)
