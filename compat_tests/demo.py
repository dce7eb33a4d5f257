"""`make demo`: starts a broker, produces a year of flights, and counts them with a Spark stream.

It takes about two minutes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic
from tqdm import tqdm

from compat_tests.brokers import BrokerFailed, OttlaBroker
from compat_tests.flights import FLIGHTS, PARTITIONS, download, produce, read_flights
from compat_tests.requirements import COMPAT_DIR, Missing, java

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from compat_tests.pipelines import Departures

TOPIC = "flights"


def bar(what: str, takes: str = "") -> tqdm:
    """A progress bar over all flights, titled `what`. Without a terminal, only the title appears.
    If the bar does not move at once, `takes` says how long that may take."""
    if takes or not sys.stderr.isatty():
        print(f"{what}{takes} ...", flush=True)
    return tqdm(
        total=FLIGHTS, desc=f"{what:<28}", unit=" flights", unit_scale=True, ncols=100,
        disable=None,
    )


@contextlib.contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """Send standard error, also of child processes, to a file, because Spark logs much at start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def load(bootstrap: str) -> None:
    """Produce all flights into a new topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[TOPIC].result(30)
    print("The flights are read from the source file ...", flush=True)
    events = read_flights()
    with bar("confluent-kafka produces") as progress:
        produce(bootstrap, TOPIC, "zstd", events, lambda done: progress.update(done - progress.n))


def follow(query: StreamingQuery) -> None:
    """Move a progress bar with a stream's micro-batches until the stream has read everything.
    Raises the error with which the stream ended."""
    with bar("Spark streams and counts", ", up to a minute") as progress:
        while query.isActive:
            done = sum(p["numInputRows"] for p in query.recentProgress)
            progress.update(done - progress.n)
            time.sleep(0.1)
        progress.update(FLIGHTS - progress.n)
    error = query.exception()
    if error is not None:
        raise error


def count(bootstrap: str, directory: Path) -> Departures:
    """Departures by day and carrier, counted by a Spark stream."""
    from compat_tests import pipelines
    from compat_tests.spark_session import local_session

    log = COMPAT_DIR / "demo-spark.log"
    print(f"Spark starts, up to half a minute (its log: {log}) ...", flush=True)
    with standard_error_in(log):
        spark = local_session()
    records = pipelines.stream(spark, bootstrap, TOPIC, maxOffsetsPerTrigger="40000")
    writer = pipelines.departures_by_day(records).writeStream.outputMode("complete")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    follow(writer.queryName("departures").trigger(availableNow=True).start(format="memory"))
    departures = pipelines.collect_departures(spark.table("departures"))
    spark.stop()
    return departures


def show(departures: Departures) -> None:
    """Print the year's figures by carrier, and the days with the largest mean delay."""
    carriers: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    days: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (day, carrier), figures in departures.items():
        for table, key in ((carriers, carrier), (days, day)):
            table[key] = [a + b for a, b in zip(table[key], figures, strict=True)]

    def rows(title: str, table: dict[str, list[int]], wanted: int) -> None:
        print(f"\n{title:<12}{'flights':>10}{'cancelled':>12}{'mean delay, min':>18}")
        worst = sorted(table.items(), key=lambda row: -row[1][2] / max(row[1][1], 1))
        for name, (flights, departed, minutes) in worst[:wanted]:
            cancelled = flights - departed
            print(f"{name:<12}{flights:>10,}{cancelled:>12,}{minutes / max(departed, 1):>18.1f}")

    rows("carrier", carriers, 16)
    rows("worst days", days, 8)


def run(directory: Path) -> None:
    """Run the whole demo."""
    java()
    download()
    broker = OttlaBroker(directory)
    begin = time.monotonic()
    broker.start()
    print(f"ottla serves on {broker.bootstrap} after {time.monotonic() - begin:.2f} s")
    try:
        load(broker.bootstrap)
        departures = count(broker.bootstrap, directory)
    finally:
        broker.stop()
    show(departures)
    from compat_tests.pipelines import departures_by_pandas

    print("\nPandas computes the same from the source file ...", flush=True)
    if departures != departures_by_pandas():
        sys.exit("demo: these are NOT the figures that pandas computes from the source file")
    print(f"{len(departures):,} windows, all equal to what pandas computes from the source file.")


def main() -> None:
    """The command."""
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-demo-") as directory:
            run(Path(directory))
    except Missing as reason:
        sys.exit(f"demo: {reason}")
    except BrokerFailed as reason:
        sys.exit(f"demo: the broker {reason}")


if __name__ == "__main__":
    main()
