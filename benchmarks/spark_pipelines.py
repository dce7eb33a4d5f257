"""How fast are the archive and the in-place read compared with Spark's own query and source?

A topic has six partitions with records of 100 bytes in lz4 batches; their timestamps cover four
hours. One Spark session with two threads runs the queries in turn. The first two are a bare query
and `archive`. The other queries write to Spark's noop sink. They read all columns, then key and
value, then partition and offset, each first with the kafka source and then in place. A small first
round warms the JVM up.

The bare query is what a user would write to get the same files without `archive`. It is a stream
from the kafka source with headers, with the same columns and batches. It computes date and hour
with Spark's functions, partitions by both, and writes zstd files with Spark's file sink and its
checkpoint. Both queries use the session's setting spark.sql.maxConcurrentOutputFileWriters, so
neither sorts or shuffles. Unlike `archive`, the bare query does not name files by batch, does not
count records, and leaves nothing that `verify` could check.

The memory is the peak of Spark's processes (the driver's Python, the JVM and the Python workers); a
page that they share is counted once. When other programs run, CPU time varies less than rates.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine, report
from benchmarks.raw_client import RawClient
from compat_tests.brokers import OttlaBroker
from compat_tests.requirements import COMPAT_DIR
from ottla.spark_interop import archive, session
from ottla.spark_interop.in_place.source import FIELDS, read_in_place
from ottla.wire.messages import ProduceRequest
from ottla.wire.records import Record, build_batch

PARTITIONS = 6
BATCH = 500
START_MS = 1_370_044_800_000
HOURS_MS = 4 * 3_600_000
LZ4 = 3
COLUMNS = [name for name in FIELDS if name != "headers"]


def fill(broker: OttlaBroker, topic: str, records: int) -> None:
    """Write batches evenly over partitions and time. A value is 50 random characters, twice."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"retention.ms": "-1", "segment.bytes": str(64 << 20)}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    chance = random.Random(1)
    values = [chance.randbytes(25).hex().encode() * 2 for _ in range(4096)]
    client = RawClient(broker.port)
    for first in range(0, records, BATCH):
        time_ms = START_MS + HOURS_MS * first // records
        these = [
            Record(-1, time_ms + n, b"key-%06d" % (first + n), values[(first + 7 * n) % 4096])
            for n in range(min(BATCH, records - first))
        ]
        place = ProduceRequest.TopicData.PartitionData(
            index=first // BATCH % PARTITIONS, records=build_batch(these, codec=LZ4)
        )
        topics = [ProduceRequest.TopicData(name=topic, partition_data=[place])]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
        error = client.ask(request, 9).responses[0].partition_responses[0].error_code
        if error:
            raise RuntimeError(f"produce to {topic}: error {error}")
    client.close()


def processes(root: int, without: int) -> list[int]:
    """A process and its descendants, except process `without` and the descendants of that one."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) != without:
            children[int(fields[1])].append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """The CPU seconds of processes, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / machine.TICKS_A_SECOND


class Use:
    """Measures, for a block, this process and its descendants except the broker: their CPU seconds,
    and their highest memory in MiB."""

    def __init__(self, broker: int) -> None:
        self.broker, self.mb, self.cpu = broker, 0.0, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            total = 0.0
            for pid in self._processes():
                try:
                    total += machine.proportional_mb(pid)
                except OSError:
                    continue
            self.mb = max(self.mb, total)

    def _processes(self) -> list[int]:
        return processes(os.getpid(), self.broker)

    def __enter__(self) -> Use:
        self.cpu = -cpu_seconds(self._processes())
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.cpu += cpu_seconds(self._processes())
        self._stop.set()
        self._thread.join()


def bare(spark: Any, bootstrap: str, topic: str, path: Path, batch: int) -> None:
    """The query that a user would write without `archive`."""
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    stream = stream.option("maxOffsetsPerTrigger", str(batch)).option("includeHeaders", "true")
    rows = stream.load().selectExpr("*", "to_date(timestamp) AS date", "hour(timestamp) AS hour")
    writer = rows.writeStream.partitionBy("date", "hour").option("compression", "zstd")
    writer = writer.option("checkpointLocation", str(path / "c")).trigger(availableNow=True)
    writer.start(str(path / "d"), format="parquet").awaitTermination()


def questions(
    spark: Any, broker: OttlaBroker, topic: str, directory: Path, batch: int
) -> dict[str, Callable[[Path], None]]:
    """The measured queries, by name."""
    at, data = broker.bootstrap, [broker.directory / "data"]

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def source(columns: list[str]) -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", at)
        return reader.option("subscribe", topic).load().select(*columns)

    pair, few = ["key", "value"], ["partition", "offset"]
    return {
        "bare": lambda path: bare(spark, at, topic, path, batch),
        "archive": lambda path: void(
            archive(spark, at, topic, path / "a", records_per_batch=batch, progress=False)
        ),
        "source": lambda path: noop(source(COLUMNS)),
        "in_place": lambda path: noop(read_in_place(spark, at, topic, data, columns=COLUMNS)),
        "source_pair": lambda path: noop(source(pair)),
        "in_place_pair": lambda path: noop(read_in_place(spark, at, topic, data, columns=pair)),
        "source_few": lambda path: noop(source(few)),
        "in_place_few": lambda path: noop(read_in_place(spark, at, topic, data, columns=few)),
    }


def void(result: object) -> None:
    """Discard the result."""


def measure(records: int, rounds: int, batch: int, directory: Path) -> dict[str, list[float]]:
    """For each question: rows a second, CPU seconds a million rows, and the peaks of memory."""
    broker = OttlaBroker(directory / "broker")
    broker.start()
    measured: dict[str, list[float]] = defaultdict(list)
    try:
        fill(broker, "warm", 200_000)
        fill(broker, "large", records)
        spark = session(master="local[2]", jars=COMPAT_DIR / "ivy", memory="2g")
        for name, run in questions(spark, broker, "warm", directory, batch).items():
            run(directory / f"warm-{name}")
        for number in range(rounds):
            for name, run in questions(spark, broker, "large", directory, batch).items():
                path = directory / f"{number}-{name}"
                with Use(broker.pid) as use:
                    begin = time.monotonic()
                    run(path)
                    seconds = time.monotonic() - begin
                measured[name].append(records / seconds)
                measured[f"{name} MiB"].append(use.mb)
                measured[f"{name} CPU"].append(use.cpu / records * 1e6)
                shutil.rmtree(path, ignore_errors=True)
                print(
                    f"{name}: {records / seconds:,.0f} records/s, {use.cpu:.1f} s of CPU, "
                    f"{use.mb:.0f} MiB",
                    flush=True,
                )
        spark.stop()
    finally:
        broker.stop()
    return dict(measured)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=2_000_000, help="records of a micro-batch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        measured = measure(options.records, options.rounds, options.batch, Path(directory))
    names = {
        "bare": "a hand-written stream from the kafka source to Parquet",
        "archive": "`archive`",
        "source": "all columns by the kafka source",
        "in_place": "all columns in place",
        "source_pair": "key and value by the kafka source",
        "in_place_pair": "key and value in place",
        "source_few": "partition and offset by the kafka source",
        "in_place_few": "partition and offset in place",
    }
    pairs = {
        "archive": "bare", "in_place": "source", "in_place_pair": "source_pair",
        "in_place_few": "source_few",
    }  # fmt: skip
    rows = [
        [
            text,
            report.spread([x / 1000 for x in measured[name]], 0),
            report.spread(measured[f"{name} MiB"], 0),
            report.spread(measured[f"{name} CPU"], 2),
            *(
                report.ratio(measured[name + what], measured[pairs[name] + what])
                if name in pairs
                else ""
                for what in ("", " CPU")
            ),
        ]
        for name, text in names.items()
    ]
    head = ["", "thousand records/s", "peak memory, MiB", "CPU-s a million", "rate / row above",
            "CPU / row above"]
    text = report.table(head, rows)
    question = (f"{options.records:,} records: how fast are `archive` and the in-place read,"
                " compared with Spark's own Kafka source?")
    report.write(question, "spark-pipelines", text, measured)


if __name__ == "__main__":
    main()
