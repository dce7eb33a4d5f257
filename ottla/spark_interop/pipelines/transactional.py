"""Writes rows to topics exactly once, from Spark tasks: each transaction also stores the progress.

Spark's own sink writes at least once. Here every lane (a partition of the destination) has a
transactional producer. The position up to which rows are written is a record of `progress`, in the
same transaction as the rows. A task that runs again, in this driver or the next, fences its
predecessor, reads that position and skips rows up to it. Readers with
isolation.level=read_committed see every row once; others see aborted rows too.

Before each commit a lane checks the ids of the topics. It does not commit rows if the source or the
destination was created again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ottla.client.errors import cause_of
from ottla.spark_interop.cluster import PATIENCE_SECONDS, Cluster
from ottla.spark_interop.errors import NoBroker, PipelineError
from ottla.spark_interop.pipelines import progress
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTLED_SECONDS = 5.0  # a changed topic id counts only if it is still reported after this time
RECORDS_MAX = 50_000  # of a transaction
SECONDS_MAX = 10.0
AHEAD_SECONDS = 0.05  # by so much a task with a rate may be ahead of it
TRANSACTION_TIMEOUT_MS = 180_000
QUEUED_RECORDS_MAX = 100_000
QUEUED_BYTES_MAX = 64 << 20
COUNTS = ("written", "aside", "skipped", "transactions", "restamped")
RESULT = f"lane INT, {', '.join(f'{name} LONG' for name in COUNTS)}, position LONG"
TIMESTAMP_NONE = -1
LIBRDKAFKA_RECORD_BYTES_MAX = 1_000_000_000  # the topic's own limit applies
BATCH_BYTES_MAX = 1_000_000


@dataclass(frozen=True)
class Origin:
    """The topic that rows are read from, and its id when the pipeline began."""

    cluster: Cluster
    topic: str
    topic_id: str

    def check(self) -> None:
        """Raises PipelineError if the topic was created again: rows may come from the old or the
        new topic."""
        check_ids(self.cluster, {self.topic: self.topic_id})


@dataclass(frozen=True)
class Destination:
    """Where rows are written, and the name under which the progress is kept.

    `writer` names the pipeline. Each combination of writer, source cluster and topic has its own
    progress and transactional ids. `source` names the origin of the rows, and `source_cluster` is
    the id of the origin's cluster. `formerly` is the name that older releases gave to the same
    origin. `aside` is a second topic, for rows whose column `aside` is
    true. Before each commit, `origin` and the ids of the destination topics are checked. These ids
    must equal `known`; if `known` is None, they must equal those that `write` found when it began.
    `rate` limits the records per second of one task; None means no limit. `map_topic`, if any, gets
    one record per transaction. It has two offsets of the transaction's last record: the one in the
    source and the one in `topic`.
    """

    cluster: Cluster
    topic: str
    writer: str
    rate: float | None = None
    map_topic: str | None = None
    map_key: str = ""
    source: str = ""
    source_cluster: str = ""
    formerly: str = ""
    aside: str | None = None
    origin: Origin | None = None
    known: dict[str, str] | None = None
    compression: str = "lz4"

    @property
    def topics(self) -> list[str]:
        """The topics that rows go to."""
        return [self.topic] if self.aside is None else [self.topic, self.aside]

    def check(self) -> None:
        """Raises PipelineError if the topic that rows are read from was created again."""
        if self.origin is not None:
            self.origin.check()

    def reach(self) -> None:
        """Raises NoBroker if no broker of the origin accepts connections. The destination's brokers
        are tried only if there is no origin: only writes need them, and writes wait for them."""
        (self.cluster if self.origin is None else self.origin.cluster).reach()

    def transactional_id(self, lane: int) -> str:
        """The transactional id of one lane. A lane of another source or destination has another
        id, so that these lanes do not fence each other."""
        return f"{self.writer}-{self.source_cluster}-{self.topic}-{lane}"

    def key(self, lane: int) -> str:
        """The key of a lane's progress."""
        return progress.key(self.writer, self.source_cluster, self.topic, lane)

    @property
    def partition(self) -> int:
        """The partition of the progress topic in which the progress is kept."""
        return progress.partition_of(self.writer, self.source_cluster, self.topic)


@dataclass(frozen=True)
class Begun:
    """The state that a driver read before it wrote. `topics` has the topics' ids. `positions` has
    the position of each lane that has one; `read_to` is the offset in the progress topic up to
    which they were read. `batch_bytes_max` and `record_bytes_max` are the smallest and the largest
    `max.message.bytes` of the topics."""

    topics: dict[str, str]
    lanes: list[int]
    positions: dict[int, int]
    read_to: int
    batch_bytes_max: int
    record_bytes_max: int


def positions(to: Destination) -> dict[int, int]:
    """The committed position of each lane that has one. Raises PipelineError as `begin` does."""
    if None in to.cluster.topic_ids([progress.TOPIC, to.topic]).values():
        return {}
    return begin(to).positions


def begin(to: Destination) -> Begun:
    """Reads the progress. Progress about earlier topics of the same names is ignored. Raises
    PipelineError if a topic is missing or no longer has its id in `to.known`, if the progress
    belongs to another source, or if only one of two topics was created again."""
    progress.prepare(to.cluster)
    if to.known is not None:
        check_ids(to.cluster, to.known)
    topics = _ids(to)
    found, read_to = progress.read(to.cluster, to.partition)
    lanes = to.cluster.partitions(to.topic)
    done = {lane: _position(to, topics, found.get(to.key(lane))) for lane in lanes}
    limits = [int(to.cluster.settings(name)["max.message.bytes"].value) for name in topics]
    return Begun(
        topics, lanes, {lane: at for lane, at in done.items() if at is not None}, read_to,
        min(limits), max(limits),
    )  # fmt: skip


def begun_with(to: Destination) -> Destination:
    """The destination with the ids of the existing topics, so that later topics of the same names
    are not written to. Raises as `begin` does."""
    return replace(to, known=begin(to).topics)


def _ids(to: Destination) -> dict[str, str]:
    ids = to.cluster.topic_ids(to.topics)
    for name, known in ids.items():
        if known is None:
            raise PipelineError(f"topic {name} not found at {to.cluster.bootstrap}")
    return {name: str(known) for name, known in ids.items()}


def _position(to: Destination, topics: dict[str, str], entry: progress.Entry | None) -> int | None:
    """The position in an entry; None if the entry is about earlier topics of these names."""
    if entry is None:
        return None
    if to.source and entry.source not in (to.source, to.formerly or to.source):
        raise PipelineError(
            f"`{to.writer}` has written to {to.topic} from another source ({entry.source}), not "
            f"from {to.source}: give this pipeline a name of its own with --name (name=); it then"
            " writes all of its records"
        )
    again = [name for name, known in topics.items() if entry.topics.get(name) != known]
    if again and len(again) < len(topics):
        raise PipelineError(
            f"an earlier run named `{to.writer}` used another topic instead of {again[0]}, or"
            f" {again[0]} was deleted and created again after that run. Give this pipeline a name"
            " of its own with --name (name=), and new topics"
        )
    return None if again else entry.position


def write(rows: DataFrame, to: Destination, *, in_order: bool = False) -> dict[int, dict[str, int]]:
    """Write rows to the topics of `to`, exactly once: rows that are already written are skipped.

    `to` is a `Destination` (in the same module). `rows` has these columns; `headers` and those
    after it are optional:

        lane          int      a partition of the destination topic; one producer writes the rows of
                               a lane, and keeps the progress of the lane
        position      bigint   grows within a lane; rows of one position are written in one
                               transaction
        key, value    binary
        headers       array<struct<key, value>>
        partition     int      by default chosen by the key, as Java's partitioner does
        timestamp_ms  bigint
        aside         boolean  true: the row goes to the second topic, `to.aside`

    `in_order` says that each task of the frame has all rows of its lanes, sorted by position in
    each lane. Without it, `write` shuffles and sorts the rows.

    Returns {lane: {"written" (to both topics), "aside" (to the second topic), "skipped",
    "transactions", "restamped", "position" (the last one that was written)}}. "restamped" counts
    the rows with the present time instead of a timestamp up to 1970-01-01T00:00, which librdkafka
    cannot send. Raises PipelineError if a lane is not a partition of the destination, if the name
    `to.writer` was used for another source, if a topic was created again, or if the brokers refuse
    the write.
    """
    begun: Begun = _while_away(lambda: begin(to))
    lanes = begun.lanes
    if not in_order:
        rows = rows.repartition(min(len(lanes), 32), "lane").sortWithinPartitions(
            "lane", "position"
        )
    names = [name for name in ("lane", "position", "key", "value", "headers", "partition",
                               "timestamp_ms", "aside") if name in rows.columns]  # fmt: skip
    done = rows.select(*names).mapInArrow(_task(to, begun), RESULT).collect()
    report: dict[int, dict[str, int]] = {}
    for row in done:
        one = report.setdefault(row.lane, dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            one[name] += row[name]
        one["position"] = max(row.position, one.get("position", 0))
    return report


def total(report: dict[int, dict[str, int]], name: str = "written") -> int:
    """The sum of one figure over all lanes of a report of `write`."""
    return sum(one[name] for one in report.values())


def empty(spark: SparkSession) -> DataFrame:
    """No rows, with the columns of `write`."""
    return spark.createDataFrame([], "lane INT, position LONG, key BINARY, value BINARY")


def _task(to: Destination, begun: Begun) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function that runs a Spark task on its Arrow batches."""

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
                        lane = Lane(to, begun, wanted)
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

    def __init__(self, to: Destination, begun: Begun, number: int) -> None:
        from confluent_kafka import Producer

        if number not in begun.lanes:
            raise PipelineError(
                f"{to.topic} has {len(begun.lanes)} partitions, so partition {number} does not "
                f"exist in it: give {to.topic} as many partitions as the source has"
            )
        self.number, self._to, self._topics = number, to, begun.topics
        self._queued_bytes_max = max(QUEUED_BYTES_MAX, 2 * begun.record_bytes_max)
        self._producer = Producer(
            to.cluster.client(
                **{
                    "transactional.id": to.transactional_id(number),
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "compression.type": to.compression,
                    "partitioner": "murmur2_random",
                    "linger.ms": 20,
                    # The topic limits the size of a batch; a record above batch.size gets its own
                    # batch.
                    "batch.size": max(min(BATCH_BYTES_MAX, begun.batch_bytes_max), 1),
                    "message.max.bytes": LIBRDKAFKA_RECORD_BYTES_MAX,
                    "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
                    "queue.buffering.max.kbytes": self._queued_bytes_max // 1024,
                }
            )
        )
        _with_retries(lambda: self._producer.init_transactions(PATIENCE_SECONDS))
        # Read after init_transactions: now the previous owner of this id can no longer commit.
        newer, _ = progress.read(to.cluster, to.partition, begun.read_to)
        entry = newer.get(to.key(number))
        done = begun.positions.get(number) if entry is None else _position(to, begun.topics, entry)
        self._done = -1 if done is None else done
        self._position = self._done
        self._open_since: float | None = None
        self._in_transaction = 0
        self._failed: list[str] = []
        self._last: tuple[int, int] | None = None
        self._begin = time.monotonic()
        self.written = self.aside = self.skipped = self.transactions = self.restamped = 0

    def add(self, row: dict[str, Any]) -> None:
        """Writes a row unless it was written before; first commits a large or old transaction."""
        position = row["position"]
        if position <= self._done:
            self.skipped += 1
            return
        if position < self._position:
            raise PipelineError(
                f"lane {self.number}: position {position} came after {self._position}, but the rows"
                " of a lane must be sorted by position"
            )
        if position > self._position:
            self._keep_rate()
            if self._is_due():
                self._commit()
        if self._open_since is None:
            _with_retries(self._producer.begin_transaction)
            self._open_since = time.monotonic()
        self._position = position
        self._produce(row)

    def _is_due(self) -> bool:
        return self._open_since is not None and (
            self._in_transaction >= RECORDS_MAX
            or time.monotonic() - self._open_since >= SECONDS_MAX
        )

    def _keep_rate(self) -> None:
        """Waits until the rate allows the next row; commits a transaction that gets too old."""
        while self._to.rate:
            ahead = self.written / self._to.rate - (time.monotonic() - self._begin)
            if ahead <= AHEAD_SECONDS:
                return
            if self._is_due():
                self._commit()
            self._producer.poll(min(ahead, SECONDS_MAX))    # returns early after a delivery

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
        topic = self._to.topic
        if row.get("aside"):
            assert self._to.aside is not None
            topic = self._to.aside
            self.aside += 1
        size = len(row["value"] or b"") + len(row["key"] or b"")
        if size > self._queued_bytes_max:
            raise PipelineError(self._too_large(topic, size))
        self._send(topic, row["value"], row["key"], on_delivery=self._delivered, **more)
        self._in_transaction += 1
        self.written += 1
        if self._in_transaction % 1000 == 0:
            self._producer.poll(0)

    def _send(self, *record: Any, **more: Any) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                return self._producer.produce(*record, **more)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                code = error.args[0]
                raise PipelineError(f"{record[0]}: {code.name()}: {code.str()}") from error

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            if message.topic() == self._to.topic:
                self._last = (message.partition(), message.offset())
        elif error.name() == "MSG_SIZE_TOO_LARGE":
            size = len(message.value() or b"") + len(message.key() or b"")
            self._failed.append(self._too_large(message.topic(), size))
        else:
            self._failed.append(f"{message.topic()}: {error.name()}: {error.str()}")

    def _too_large(self, topic: str, size: int) -> str:
        return (
            f"{topic} refuses a record of {size} bytes from partition {self.number} at "
            f"position {self._position} or before: raise max.message.bytes of {topic}"
        )

    def _commit(self) -> None:
        """Rows, map record and position become visible together, or not at all."""
        to, producer = self._to, self._producer
        self._flush()
        self._check_topics()
        if to.map_topic is not None and self._last is not None:
            text = f'{{"source_offset": {self._position - 1}, "offset": {self._last[1]}}}'
            key = f"{to.map_key}/{self.number}"
            self._send(to.map_topic, text, key, on_delivery=self._noted)
        self._send(
            progress.TOPIC, progress.value(self._position, to.source, self._topics),
            to.key(self.number), to.partition, on_delivery=self._noted,
        )  # fmt: skip
        self._flush()
        _with_retries(lambda: producer.commit_transaction(30))
        self._done = self._position
        self._open_since, self._in_transaction = None, 0
        self.transactions += 1

    def _flush(self) -> None:
        unsent = self._flushed()
        if self._failed:
            more = f" ({len(self._failed)} such errors)" if len(self._failed) > 1 else ""
            raise PipelineError(self._failed[0] + more)
        if unsent:
            raise PipelineError(
                f"{self._to.topic} at {self._to.cluster.bootstrap} did not acknowledge "
                f"{counted(unsent, 'record')} within {PATIENCE_SECONDS} s: run the same command "
                "again"
            )

    def _flushed(self) -> int:
        """Flushes; returns how many records are unsent. A fatal error may come from a callback,
        inside a SystemError."""
        from confluent_kafka import KafkaException

        try:
            return int(self._producer.flush(PATIENCE_SECONDS))
        except (KafkaException, SystemError) as error:
            known = cause_of(error, KafkaException) or self._lost_error()
            if known is None:
                raise
            raise PipelineError(_sentence(known.args[0])) from error

    def _lost_error(self) -> BaseException | None:
        """The fatal error that a SystemError of confluent-kafka does not contain: an attempt to
        abort the transaction raises the same error."""
        from confluent_kafka import KafkaException

        try:
            self._producer.abort_transaction(PATIENCE_SECONDS)
        except KafkaException as error:
            return error
        return None

    def _check_topics(self) -> None:
        """Checks by ids that all rows so far were read from and written to the same topics."""
        self._to.check()
        check_ids(self._to.cluster, self._topics)

    def _noted(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}: {error.name()}: {error.str()}")

    def finish(self) -> tuple[int, ...]:
        """Commits the open transaction; returns a row of the report."""
        if self._open_since is not None:
            self._commit()
        counts = (getattr(self, name) for name in COUNTS)
        return self.number, *counts, self._done

    def abandon(self) -> None:
        """Aborts the open transaction, so that readers do not wait for its timeout."""
        if self._open_since is not None:
            try:
                self._producer.abort_transaction(5)
            except Exception:  # the earlier error is the one to report
                return


def check_ids(cluster: Cluster, known: dict[str, str]) -> None:
    """Raises PipelineError if a topic was deleted or created again, so that its id is not `known`.

    A broker that has just started may not know every topic yet, so a difference counts only if it
    is still there after SETTLED_SECONDS.
    """
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        now = _while_away(lambda: cluster.topic_ids(known))
        changed = [name for name, topic_id in known.items() if now[name] != topic_id]
        if not changed:
            return
        if time.monotonic() > deadline:
            what = "deleted" if now[changed[0]] is None else "deleted and created again"
            raise PipelineError(
                f"topic {changed[0]} was {what} while this pipeline ran: nothing more was "
                "committed. A new topic of this name has other records at the same offsets: start"
                " again with a new name and path"
            )
        time.sleep(0.2)


def _while_away(call: Callable[[], Any]) -> Any:
    """Retries for up to PATIENCE_SECONDS while no broker answers. There is no pause: each attempt
    waits for an answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except NoBroker:
            if time.monotonic() > deadline:
                raise


def _with_retries(call: Callable[[], Any]) -> Any:
    """Retry while the broker or its coordinator is away; other errors become a PipelineError."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            code = error.args[0]
            if not code.retriable() or time.monotonic() > deadline:
                raise PipelineError(_sentence(code)) from error
            time.sleep(0.2)


def _sentence(code: Any) -> str:
    text = f"{code.name()}: {code.str()}"
    if code.name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
        return f"another run of this pipeline writes to the same topic: stop one of them ({text})"
    return text
