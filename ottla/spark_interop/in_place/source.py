"""`spark.read.format("ottla")`: a topic from its segment files, with the columns of Spark's source.

Segments are read by the executors, in tasks of about TASK_BYTES of a partition, up to the last
stable offset that the leader reported; records that are in no file are fetched from the brokers.
Only committed records are read. Options:

    kafka.bootstrap.servers   the cluster
    topic                     one topic
    logDirs                   the brokers' log.dirs as the executors see them, separated by commas;
                              if none of them has an in-sync replica of a partition, its records
                              are fetched from the brokers
    startingOffsets, endingOffsets       earliest, latest, or {"0": 17, …} by partition, or the same
                              nested, {"TOPIC": {"0": 17, …}}; -2 is earliest, -1 latest
    startingTimestamp, endingTimestamp   epoch ms: in each partition, the range begins with, or ends
                              before, the first record that is not older than this time
    includeHeaders            true adds the column `headers`
    failOnDataLoss            false continues if records were deleted, or if the log ends before the
                              named offsets

A query may not start at latest or end at earliest, as with Spark's own source. Spark does not tell
a Python source which columns a query needs. To create only some columns, name them with
`.schema("partition INT, offset LONG")` or with `read_in_place(columns=…)`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.spark_interop.cluster import Cluster, consumer_goes_on
from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.in_place import segments, wire
from ottla.spark_interop.in_place.columns import Columns
from ottla.spark_interop.in_place.segments import Aborted, Segment, SegmentGone
from ottla.spark_interop.times import milliseconds
from ottla.wire.batch import BatchHeader
from ottla.wire.errors import CorruptMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = {
    "key": "BINARY", "value": "BINARY", "topic": "STRING", "partition": "INT", "offset": "BIGINT",
    "timestamp": "TIMESTAMP", "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}  # fmt: skip
ROWS_MAX = 16_384  # of an Arrow batch
BYTES_MAX = 8 * 1024 * 1024
TASK_BYTES = 128 * 1024 * 1024
WIRE_SECONDS = 60  # the longest wait for the next record
WIRE_STEP_SECONDS = 0.1
OPTIONS = {
    "bootstrap", "security", "kafka.bootstrap.servers", "topic", "logDirs", "startingOffsets",
    "endingOffsets", "startingTimestamp", "endingTimestamp", "includeHeaders", "failOnDataLoss",
}  # fmt: skip
EARLIEST, LATEST = -2, -1


def read_in_place(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    log_dirs: Sequence[str | Path],
    *,
    columns: Sequence[str] | None = None,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    time_zone: str = "UTC",
    options: dict[str, str] | None = None,
) -> DataFrame:
    """Read a topic from its segment files, with the rows and columns of Spark's `kafka` source.

    `log_dirs` are the brokers' log directories (`log.dirs`), as the executors see them; records
    that are in none of them are fetched from the brokers. `columns` are some of key, value, topic,
    partition, offset, timestamp (ms), timestampType (0 create time, 1 append time), headers; by
    default all but headers. `since` and `until` are times. In each partition, the range begins
    with the first record that is not older than `since`. It ends before the first record that is
    not older than `until`. (Spark's startingTimestamp and endingTimestamp work in the same way.)
    `options` are further options of the data source `ottla` (see this module), such as
    endingOffsets and failOnDataLoss.

    Raises PipelineError for an unknown column, or if no broker answers. A missing topic, or log
    directories of another cluster, raise PipelineError only when the rows are read. The query
    ends with DataLost if records of the range have been deleted. It ends with CorruptMessage if a
    segment is damaged, or if the transaction index lacks an aborted transaction.
    """
    spark.dataSource.register(OttlaDataSource)
    unknown = [name for name in columns or () if name not in FIELDS]
    if unknown:
        raise PipelineError(
            f"column {', '.join(unknown)} not found; the columns are {', '.join(FIELDS)}"
        )
    cluster = Cluster.reached(bootstrap)
    given = {
        "bootstrap": cluster.bootstrap,
        "security": json.dumps(dict(cluster.security)),
        "topic": topic,
        "logDirs": ",".join(map(str, log_dirs)),
    }
    if since is not None:
        given["startingTimestamp"] = str(milliseconds(since, time_zone))
    if until is not None:
        given["endingTimestamp"] = str(milliseconds(until, time_zone))
    reader = spark.read.format("ottla").options(**given).options(**(options or {}))
    if columns is not None:
        reader = reader.schema(", ".join(f"{name} {FIELDS[name]}" for name in columns))
    return reader.load()


class OttlaDataSource(DataSource):
    """The data source `ottla`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "ottla"

    def schema(self) -> str:
        """The columns of Spark's kafka source, in its order."""
        low = {key.lower(): value for key, value in self.options.items()}
        headers = _flag(low, "includeHeaders", False)
        names = [name for name in FIELDS if headers or name != "headers"]
        return ", ".join(f"{name} {FIELDS[name]}" for name in names)

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of the columns of the schema."""
        return InPlaceReader(dict(self.options), schema)


@dataclass
class Piece:
    """A range of offsets of a partition. It is read from `segment`, or from the brokers if
    `segment` is None."""

    start: int
    end: int
    segment: Segment | None
    aborted: list[Aborted]


@dataclass
class Pieces(InputPartition):
    """The consecutive pieces of a partition that one task reads.

    A Python task of Spark needs a tenth of a second before its first row, so small segments share a
    task.
    """

    partition: int
    pieces: list[Piece]


class InPlaceReader(DataSourceReader):
    """Plans the tasks in the driver, and reads their pieces in the executors."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        low = {key.lower(): value for key, value in options.items()}
        bootstrap = low.get("bootstrap") or low.get("kafka.bootstrap.servers")
        if not bootstrap or not low.get("topic"):
            raise PipelineError(
                'format("ottla") needs the options kafka.bootstrap.servers and topic')
        self.cluster = Cluster(bootstrap, json.loads(low.get("security", "{}")))
        unknown = sorted(low.keys() - {name.lower() for name in OPTIONS})
        if unknown:
            raise PipelineError(
                f'format("ottla") has no option {", ".join(unknown)}; its options are '
                f"{', '.join(sorted(OPTIONS))}"
            )
        self.fail_on_loss = _flag(low, "failOnDataLoss", True)
        self.topic = low["topic"]
        self.log_dirs = [d for d in low.get("logdirs", "").split(",") if d]
        self.columns = list(schema.names)
        unknown = [name for name in self.columns if name not in FIELDS]
        if unknown:
            raise PipelineError(
                f"column {', '.join(unknown)} not found; the columns are {', '.join(FIELDS)}")
        self.options = low

    def partitions(self) -> list[InputPartition]:
        """The tasks, each with consecutive pieces of one partition."""
        # The bounds are read before the replicas and the files: see `segments_below`.
        starts, ends = self._bounds()
        in_sync = self.cluster.in_sync(self.topic) if self.log_dirs else {}
        parts: list[InputPartition] = []
        for partition in sorted(ends):
            if starts[partition] >= ends[partition]:
                continue
            room = -1               # a partition's first piece begins a task
            directory = segments.partition_directory(
                self.log_dirs, self.topic, partition, in_sync.get(partition, ()))
            for piece in self._pieces(directory, starts[partition], ends[partition]):
                size = 0 if piece.segment is None else segments.size_of(piece.segment)
                if size > room:
                    part = Pieces(partition, [])
                    parts.append(part)
                    room = max(TASK_BYTES, size)
                part.pieces.append(piece)
                room -= size
        return parts

    def _pieces(self, directory: Path | None, start: int, end: int) -> Iterator[Piece]:
        if directory is not None:
            self._check_id(directory)
            found = segments.segments_below(directory, end)
            aborted = segments.aborted_transactions(directory)
            for segment in found:
                low, high = max(start, segment.start), min(end, segment.end)
                if low < high and low == start:
                    mine = [a for a in aborted if a.last >= low and a.first < high]
                    yield Piece(low, high, segment, mine)
                    start = high
        if start < end:
            yield Piece(start, end, None, [])

    def _check_id(self, directory: Path) -> None:
        """Raises PipelineError for a directory of an earlier topic or of another cluster."""
        if not hasattr(self, "_topic_id"):
            self._topic_id = self.cluster.topic_id(self.topic)
        there = segments.topic_id(directory)
        if there is not None and there != self._topic_id:
            raise PipelineError(
                f"{directory} belongs to topic id {there}, but topic {self.topic} at"
                f" {self.cluster.bootstrap} has id {self._topic_id}: these are files of another"
                " cluster, or of a topic that was deleted"
            )

    def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """Start and end offsets by partition; no end is beyond the last stable offset."""
        first, last = self.cluster.starts(self.topic), self.cluster.ends(self.topic)
        starts = self._resolve("starting", first, last)
        ends = self._resolve("ending", first, last)
        lost = {p: o for p, o in starts.items() if o < first[p]}
        if lost and self.fail_on_loss:
            raise DataLost(
                f"records of {self.topic} were deleted. Offsets by partition: the query asked for"
                f" {lost}, but the first ones are {first}"
            )
        for offsets in (starts, ends) if self.fail_on_loss else ():
            self._check_end(offsets, last)
        back = {p: (o, ends[p]) for p, o in starts.items() if o > ends[p] and ends[p] < last[p]}
        if back:
            raise PipelineError(
                "the range starts after its end in these partitions (partition: (start, end)):"
                f" {back}"
            )
        return (
            {p: max(o, first[p]) for p, o in starts.items()},
            {p: min(o, last[p]) for p, o in ends.items()},
        )

    def _check_end(self, offsets: dict[int, int], last: dict[int, int]) -> None:
        """Raises DataLost for offsets beyond the end of the log."""
        if all(offset <= last[p] for p, offset in offsets.items()):
            return
        # `last` may be below the end of the log, because of open transactions.
        log_ends = self.cluster.ends(self.topic, committed=False)
        beyond = {p: o for p, o in offsets.items() if o > log_ends[p]}
        if beyond:
            raise DataLost(
                f"{self.topic} ends at {log_ends} (partition: offset), but the query asked for "
                f"{beyond}: was the topic deleted and created again? With failOnDataLoss=false, "
                "the query reads the records that exist"
            )

    def _resolve(self, which: str, first: dict[int, int], last: dict[int, int]) -> dict[int, int]:
        default = first if which == "starting" else last
        moment = self.options.get(f"{which}timestamp")
        if moment is not None:
            return self.cluster.at_time(self.topic, int(moment))
        text = self.options.get(f"{which}offsets")
        if text is None:
            return default
        special = {EARLIEST: first} if which == "starting" else {LATEST: last}
        if text.lower() in ("earliest", "latest"):
            named: dict[str, Any] = {}
            offset = EARLIEST if text.lower() == "earliest" else LATEST
            if offset not in special:
                raise PipelineError(f"{which}Offsets is {text}: the query would read nothing")
        else:
            named = self._named(which, text)
        unknown = named.keys() - set(map(str, default))
        if unknown:
            raise PipelineError(
                f"{which}Offsets names partition {', '.join(sorted(unknown))}, but {self.topic} "
                f"has only {sorted(default)}"
            )
        offsets = dict(default)
        for name, given in named.items():
            if type(given) is not int or (given < 0 and given not in special):
                raise PipelineError(
                    f"{which}Offsets of partition {name} is {given!r}, not an offset")
            p = int(name)
            offsets[p] = special[given][p] if given in special else given
        return offsets

    def _named(self, which: str, text: str) -> dict[str, Any]:
        """Offsets by partition, from JSON that may nest them under the topic's name."""
        try:
            given = json.loads(text)
        except ValueError as error:
            raise PipelineError(
                f'{which}Offsets={text!r} is not valid: expected JSON such as {{"0": 17}}'
            ) from error
        if isinstance(given, dict) and any(isinstance(value, dict) for value in given.values()):
            others = sorted(given.keys() - {self.topic})
            if others:
                raise PipelineError(
                    f"{which}Offsets has offsets of {', '.join(others)}, but the query reads"
                    f" {self.topic}"
                )
            given = given[self.topic]
        if not isinstance(given, dict):
            raise PipelineError(
                f'{which}Offsets={text!r} is not valid: expected JSON such as {{"0": 17}}')
        return given

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow batches of a task's pieces."""
        if not isinstance(partition, Pieces):
            return  # Spark's placeholder when there is nothing to read
        for piece in partition.pieces:
            yield from self._read_remaining(partition.partition, piece)

    def _read_remaining(self, partition: int, piece: Piece) -> Iterator[Any]:
        """Reads a piece. If records are deleted meanwhile, raises DataLost, or with
        failOnDataLoss=false continues with the first remaining record."""
        while piece.start < piece.end:
            try:
                yield from self._read_piece(partition, piece)
                return
            except DataLost:
                first = 0 if self.fail_on_loss else self.cluster.starts(self.topic)[partition]
                if first <= piece.start:
                    raise
                piece = Piece(first, piece.end, None, [])

    def _read_piece(self, partition: int, piece: Piece) -> Iterator[Any]:
        """Tries the ways to read a piece in turn. If one raises SegmentGone, the next way continues
        after the rows that were returned."""
        done = piece.start
        for batches in self._ways(partition, piece):
            try:
                for rows, after in self._columns(partition, batches(done), done, piece.end):
                    yield rows
                    done = after
                return
            except SegmentGone:
                continue
            except segments.UnindexedAbort:
                raise                       # rows of that transaction may have been returned
            except CorruptMessage:
                # Perhaps this executor does not see the newest bytes of a growing file yet. The
                # next way asks the broker.
                if piece.segment is None or not piece.segment.growing:
                    raise
        yield from self._consume(partition, done, piece.end)

    def _ways(
        self, partition: int, piece: Piece
    ) -> Iterator[Callable[[int], Iterator[memoryview]]]:
        """Functions that read batches from an offset on, the preferred function first."""
        if piece.segment is not None:
            segment = piece.segment
            yield lambda start: segments.committed_batches(
                segment, start, piece.end, piece.aborted)
        if not self.cluster.security:
            yield lambda start: wire.committed_batches(
                self.cluster.bootstrap, self.topic, partition, start, piece.end)

    def _columns(
        self, partition: int, batches: Iterator[memoryview], start: int, end: int
    ) -> Iterator[tuple[Any, int]]:
        """Arrow batches, each with the offset after it."""
        columns = Columns(self.columns)
        for batch in batches:
            columns.add(batch, start, end)
            if columns.rows >= ROWS_MAX or columns.size >= BYTES_MAX:
                yield self._arrow(partition, *columns.take()), BatchHeader(batch).next_offset
        if columns.rows:
            yield self._arrow(partition, *columns.take()), end

    def _arrow(self, partition: int, rows: int, columns: dict[str, Any]) -> Any:
        """The buffers of `Columns` as a RecordBatch: nothing is copied."""
        import pyarrow as pa

        def strings(kind: Any, made: tuple[Any, ...]) -> Any:
            count, nulls, *buffers = made
            return pa.Array.from_buffers(kind, count, [pa.py_buffer(b) for b in buffers], nulls)

        def plain(kind: Any, name: str) -> Any:
            return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(columns[name])])

        def headers() -> Any:
            bits, nulls, offsets, keys, values = columns["headers"]
            pairs = pa.StructArray.from_arrays(
                [strings(pa.string(), keys), strings(pa.binary(), values)],
                fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())],
            )
            buffers = [pa.py_buffer(bits), pa.py_buffer(offsets)]
            return pa.Array.from_buffers(
                pa.list_(pairs.type), rows, buffers, nulls, children=[pairs]
            )

        made = {
            "key": lambda: strings(pa.binary(), columns["key"]),
            "value": lambda: strings(pa.binary(), columns["value"]),
            "topic": lambda: pa.repeat(pa.scalar(self.topic, pa.string()), rows),
            "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "offset": lambda: plain(pa.int64(), "offset"),
            "timestamp": lambda: plain(pa.timestamp("us", "UTC"), "timestamp"),
            "timestampType": lambda: plain(pa.int32(), "timestampType"),
            "headers": headers,
        }
        arrays = [made[name]() for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=self.columns)

    def _consume(self, partition: int, start: int, end: int) -> Iterator[Any]:
        """Rows from confluent-kafka's consumer, for old batch formats and secured clusters."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            self.cluster.client(**{
                "group.id": "ottla-in-place", "enable.auto.commit": False,
                "isolation.level": "read_committed", "enable.partition.eof": True,
                "auto.offset.reset": "error", "queued.max.messages.kbytes": 16_384,
            })
        )  # fmt: skip
        consumer.assign([TopicPartition(self.topic, partition, start)])
        at, deadline = start, time.monotonic() + WIRE_SECONDS
        try:
            while at < end:         # the last offsets may lack records (compaction, markers)
                # At the end of a partition, `consume` waits for more records until its timeout.
                messages = consumer.consume(4096, WIRE_STEP_SECONDS)
                good = [m for m in messages if m.error() is None and m.offset() < end]
                if good:
                    yield self._arrow_of_messages(good)
                before = at
                for message in messages:
                    error = message.error()
                    if error is None:
                        at = message.offset() + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # A new leader may at first report an earlier end of the partition.
                        at = max(at, message.offset())
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                        raise DataLost(f"{self.topic}-{partition}: {error.str()}")
                    elif not consumer_goes_on(error):
                        raise PipelineError(f"{self.topic}-{partition}: {error.str()}")
                if at > before:
                    deadline = time.monotonic() + WIRE_SECONDS
                elif time.monotonic() > deadline:
                    raise PipelineError(
                        f"{self.topic}-{partition}: no record at or after offset {at} was received"
                        f" within {WIRE_SECONDS} s"
                    )
        finally:
            consumer.close()

    def _arrow_of_messages(self, messages: list[Any]) -> Any:
        import pyarrow as pa

        kinds = {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(),
                 "partition": pa.int32(), "offset": pa.int64(),
                 "timestamp": pa.timestamp("us", "UTC"), "timestampType": pa.int32(),
                 "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
                 }  # fmt: skip
        of: dict[str, Any] = {
            "key": lambda m: m.key(),
            "value": lambda m: m.value(),
            "topic": lambda m: m.topic(),
            "partition": lambda m: m.partition(),
            "offset": lambda m: m.offset(),
            "timestamp": lambda m: m.timestamp()[1] * 1000,
            "timestampType": lambda m: int(m.timestamp()[0] == 2),
            "headers": lambda m: [{"key": k, "value": v} for k, v in m.headers() or ()] or None,
        }
        arrays = [pa.array([of[n](m) for m in messages], kinds[n]) for n in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=self.columns)


def _flag(options: dict[str, str], name: str, default: bool) -> bool:
    """An option that is true or false; the names in `options` are in lower case."""
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise PipelineError(f"{name} must be true or false, not {text!r}")
    return text == "true"
