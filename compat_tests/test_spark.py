"""Spark's built-in Kafka source and sink on all flights: batch, streaming, checkpoints."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from compat_tests import pipelines, readers
from compat_tests.brokers import Broker
from compat_tests.flights import (
    CODECS,
    PARTITIONS,
    Lines,
    LoadedTopic,
    by_partition,
    produce,
    read_flights,
    same_lines,
    without_timestamps,
)

Flights = Callable[[str], LoadedTopic]
DAY_MS = 86_400_000
JUNE_1_MS = 1_370_044_800_000


def lines_of(records: DataFrame, directory: Path) -> Lines:
    """All records that Spark read, as lines. Spark writes them to text files, so bytes can be
    compared."""
    records.selectExpr(pipelines.AS_LINE).write.text(str(directory / "lines"))
    lines = [
        line
        for part in sorted((directory / "lines").glob("part-*"))
        for line in part.read_bytes().splitlines()
    ]
    return {
        p: sorted(ls, key=lambda t: int(t.split(b"\t", 2)[1]))
        for p, ls in by_partition(lines).items()
    }


def first_at(loaded: LoadedTopic, partition: int, timestamp_ms: int) -> int:
    """The offset of the first record with that time or a later one, as ListOffsets defines it."""
    latest_so_far = list(
        accumulate((e.timestamp_ms for e in loaded.events.get(partition, [])), max)
    )
    return bisect_left(latest_so_far, timestamp_ms)


def between(loaded: LoadedTopic, offsets: dict[int, tuple[int, int]]) -> Lines:
    """The topic's lines in these ranges of offsets by partition; ends are exclusive."""
    lines = {
        p: loaded.lines()[p][start:end] for p, (start, end) in offsets.items() if p in loaded.events
    }
    return {p: ls for p, ls in lines.items() if ls}


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_reads_everything(
    spark: SparkSession, broker: Broker, flights: Flights, directory: Path, codec: str
) -> None:
    loaded = flights(codec)
    records = pipelines.batch(
        spark, broker.bootstrap, loaded.name, startingOffsets="earliest", endingOffsets="latest"
    )
    same_lines(lines_of(records, directory), loaded.lines())


def test_a_batch_reads_between_explicit_offsets(
    spark: SparkSession, broker: Broker, flights: Flights, directory: Path
) -> None:
    loaded = flights("snappy")
    ends = {p: len(loaded.events.get(p, [])) for p in range(PARTITIONS)}
    ranges = {p: (end // 3 + 7, end * 2 // 3 + 1) for p, end in ends.items() if end} | {1: (0, 0)}
    records = pipelines.batch(
        spark,
        broker.bootstrap,
        loaded.name,
        startingOffsets=json.dumps({loaded.name: {p: start for p, (start, _) in ranges.items()}}),
        endingOffsets=json.dumps({loaded.name: {p: end for p, (_, end) in ranges.items()}}),
    )
    same_lines(lines_of(records, directory), between(loaded, ranges))


def test_earliest_and_latest_may_be_named_by_partition(
    spark: SparkSession, broker: Broker, flights: Flights, directory: Path
) -> None:
    loaded = flights("lz4")
    full = {p: (0, len(e)) for p, e in loaded.events.items()}
    starts, ends = dict.fromkeys(range(PARTITIONS), -2), dict.fromkeys(range(PARTITIONS), -1)
    records = pipelines.batch(
        spark,
        broker.bootstrap,
        loaded.name,
        startingOffsets=json.dumps({loaded.name: starts | {3: 100_000}}),
        endingOffsets=json.dumps({loaded.name: ends | {0: 5}}),
    )
    ranges = full | {3: (100_000, full[3][1]), 0: (0, 5)}
    same_lines(lines_of(records, directory), between(loaded, ranges))


def test_a_batch_reads_between_timestamps(
    spark: SparkSession, broker: Broker, flights: Flights, directory: Path
) -> None:
    loaded = flights("zstd")
    end_ms = JUNE_1_MS + 7 * DAY_MS
    records = pipelines.batch(
        spark,
        broker.bootstrap,
        loaded.name,
        startingTimestamp=str(JUNE_1_MS),
        endingTimestamp=str(end_ms),
        startingOffsetsByTimestampStrategy="latest",  # one partition has no record from June 1 on
    )
    ranges = {
        p: (first_at(loaded, p, JUNE_1_MS), first_at(loaded, p, end_ms)) for p in range(PARTITIONS)
    }
    assert sum(end - start for start, end in ranges.values()) > 5_000
    same_lines(lines_of(records, directory), between(loaded, ranges))


def run_until_batch(query: StreamingQuery, batch_id: int) -> None:
    """Wait until a stream has finished this micro-batch, and stop it at once."""
    deadline = time.monotonic() + 120
    while not any(p["batchId"] >= batch_id for p in query.recentProgress):
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, f"batch {batch_id} not finished: {query.status}"
        time.sleep(0.05)
    query.stop()


def test_a_stream_that_was_stopped_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: Broker, flights: Flights, directory: Path
) -> None:
    loaded = flights("lz4")

    def start(**trigger: object) -> StreamingQuery:
        records = pipelines.stream(
            spark, broker.bootstrap, loaded.name, maxOffsetsPerTrigger="50000"
        )
        writer = records.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
        return writer.trigger(**trigger).start(str(directory / "copy"), format="parquet")

    run_until_batch(start(processingTime="0 seconds"), 2)
    written = spark.read.parquet(str(directory / "copy")).count()
    assert 0 < written < sum(map(len, loaded.events.values())), "stopped in the middle"
    start(availableNow=True).awaitTermination()
    same_lines(lines_of(spark.read.parquet(str(directory / "copy")), directory), loaded.lines())


def test_a_windowed_aggregate_equals_the_one_from_the_file(
    spark: SparkSession, broker: Broker, flights: Flights, directory: Path
) -> None:
    loaded = flights("zstd")

    def start(name: str, **trigger: object) -> StreamingQuery:
        records = pipelines.stream(
            spark, broker.bootstrap, loaded.name, maxOffsetsPerTrigger="80000"
        )
        writer = pipelines.departures_by_day(records).writeStream.outputMode("complete")
        writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(
            **trigger
        )
        return writer.queryName(name).start(format="memory")

    run_until_batch(start("departures", processingTime="0 seconds"), 1)
    start("departures", availableNow=True).awaitTermination()
    assert (
        pipelines.collect_departures(spark.table("departures")) == pipelines.departures_by_pandas()
    )


def test_a_batch_copy_is_read_back_byte_for_byte(
    spark: SparkSession, broker: Broker, flights: Flights, new_topic: Callable[..., str]
) -> None:
    """The same key goes to the same partition, so the copy has every record at its old offset."""
    loaded = flights("zstd")
    copy = new_topic("copy", partitions=PARTITIONS)
    records = pipelines.batch(spark, broker.bootstrap, loaded.name).select("key", "value")
    writer = records.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.option("topic", copy).option("kafka.compression.type", "lz4").save()
    expected = without_timestamps(loaded.lines())
    same_lines(without_timestamps(readers.read_with_kcat(broker.bootstrap, copy)), expected)
    same_lines(without_timestamps(readers.read_with_kafka_python(broker.bootstrap, copy)), expected)


def test_a_streaming_copy_takes_each_record_once(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], directory: Path
) -> None:
    """Two runs share one checkpoint, and more records arrive between the runs."""
    events = read_flights()[:60_000]
    original = new_topic("original", partitions=PARTITIONS)
    copy = new_topic("streamed", partitions=PARTITIONS)
    for some in (events[:40_000], events[40_000:]):
        produce(broker.bootstrap, original, "gzip", some)
        records = pipelines.stream(spark, broker.bootstrap, original, maxOffsetsPerTrigger="25000")
        writer = records.select("key", "value").writeStream.format("kafka").option("topic", copy)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    expected = without_timestamps(readers.read_with_kcat(broker.bootstrap, original))
    assert sum(map(len, expected.values())) == len(events)
    same_lines(without_timestamps(readers.read_with_kcat(broker.bootstrap, copy)), expected)


def test_headers_nulls_and_chosen_partitions_go_there_and_back(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("headers", partitions=3)
    rows = [
        (
            2,
            bytearray(b"key"),
            bytearray(b"value"),
            [("trace", bytearray(b"\x00\xff")), ("empty", None)],
        ),
        (0, None, bytearray(b"no key"), []),
        (
            0,
            bytearray(b"tombstone"),
            None,
            [("again", bytearray(b"1")), ("again", bytearray(b"2"))],
        ),
    ]
    schema = (
        "partition INT, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.option("topic", topic).option("includeHeaders", "true").save()
    read = pipelines.batch(spark, broker.bootstrap, topic, includeHeaders="true")
    got = [
        (r.partition, r.key, r.value, [tuple(h) for h in r.headers or []])
        for r in read.orderBy("partition", "offset").collect()
    ]
    assert got == [rows[1], rows[2], rows[0]]
