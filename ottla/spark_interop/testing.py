"""pytest fixtures for Spark jobs that read and write topics.

In a conftest.py: `pytest_plugins = ["ottla.spark_interop.testing"]`. A test then uses the fixtures:

    def test_my_job(ottla_spark, ottla_broker, ottla_checkpoint):
        stream = stream_topic(ottla_spark, ottla_broker.bootstrap_servers, "orders")
        run_available_now(my_job(stream).writeStream.format("parquet"), ottla_checkpoint, path)
        assert_frames_equal(ottla_spark.read.parquet(path), [(1, "a"), (2, "b")])

ottla_spark        one SparkSession for all tests: two threads, UTC, the Kafka and Avro modules
ottla_broker       a broker that starts in a fraction of a second (`ottla.testing`)
ottla_checkpoint   an empty directory for each test; its path has the test's name, and is the
                   same in every run; its former content is deleted

The session's heap is $OTTLA_SPARK_MEMORY, by default 1g; it uses the same jars as `session`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.wire.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

END_SECONDS = 120
SHOWN_MAX = 10


@pytest.fixture(scope="session")
def ottla_spark() -> Iterator[SparkSession]:
    """One session for the run: starting a JVM costs more than most tests."""
    from ottla.spark_interop.spark_session import session

    memory = os.environ.get("OTTLA_SPARK_MEMORY", "1g")
    spark = session("tests", master="local[2]", memory=memory, shuffle_partitions=2)
    yield spark
    spark.stop()


@pytest.fixture
def ottla_checkpoint(request: pytest.FixtureRequest) -> Path:
    """A directory named after the test, below pytest's cache, and empty when the test begins."""
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid)
    path = Path(str(request.config.cache.mkdir("ottla-checkpoints"))) / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def run_available_now(
    writer: DataStreamWriter, checkpoint: str | Path, path: str | Path | None = None
) -> list[Any]:
    """Runs a streaming query to the end of the present records; returns its progress reports.

    Raises the query's own error. If the query has not ended after two minutes, it is stopped, and
    TimeoutError is raised.
    """
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start(None if path is None else str(path))
    if not query.awaitTermination(END_SECONDS):
        query.stop()
        raise TimeoutError(f"the query did not end within {END_SECONDS} s: {query.status}")
    return list(query.recentProgress)


def assert_frames_equal(
    got: DataFrame, expected: DataFrame | Iterable[Sequence[Any]], *, ordered: bool = False
) -> None:
    """Raises AssertionError unless both frames have the same rows, each equally often.

    `expected` is a frame with the same column names in the same order, or rows whose values are in
    the order of the columns. With `ordered` the order of the rows counts, too. The message has up
    to ten missing and ten unexpected rows, or with `ordered` the first difference.
    """
    columns = got.columns
    rows: Any = expected
    if hasattr(rows, "columns"):
        assert rows.columns == columns, f"columns {columns}, expected {rows.columns}"
        rows = rows.collect()
    ours = [_plain(row) for row in got.collect()]
    theirs = [_plain(row) for row in rows]
    if ordered:
        for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            assert one == other, f"row {number}: {one}, expected {other}"
        assert len(ours) == len(theirs), f"{counted(len(ours), 'row')}, expected {len(theirs)}"
        return
    missing = list((Counter(theirs) - Counter(ours)).elements())
    extra = list((Counter(ours) - Counter(theirs)).elements())
    assert not missing and not extra, (
        f"missing {counted(len(missing), 'row')} of {columns}: {missing[:SHOWN_MAX]}; "
        f"{counted(len(extra), 'unexpected row')}: {extra[:SHOWN_MAX]}"
    )


def _plain(value: Any) -> Any:
    """The value in a hashable form: bytes for a bytearray, tuples for rows, lists and maps."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return tuple(sorted((str(k), _plain(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return value
