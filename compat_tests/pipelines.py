"""The Spark jobs of tests and demo: they read a topic, and count departures by day and carrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from compat_tests.flights import source_csv

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

EVENT = "carrier STRING, dep_delay INT, time_hour TIMESTAMP"
AS_LINE = "concat_ws('\t', partition, offset, unix_millis(timestamp), decode(key, 'UTF-8'), value)"

# (day, carrier) -> all flights, flights that departed, sum of the departures' delays in minutes
Departures = dict[tuple[str, str], tuple[int, int, int]]


def batch(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """A topic as a batch: all of it, or between the offsets or timestamps of the options."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """A topic as a stream from its beginning."""
    reader: DataStreamReader = spark.readStream.format("kafka")
    reader = reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def departures_by_day(records: DataFrame) -> DataFrame:
    """Departures by day and carrier, in windows of event time."""
    events = records.select(f.from_json(f.col("value").cast("string"), EVENT).alias("e")).select(
        "e.*"
    )
    windows = events.groupBy(f.window("time_hour", "1 day").alias("window"), "carrier").agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("delay_minutes"),
    )
    return windows.withColumn("day", f.date_format("window.start", "yyyy-MM-dd"))


def collect_departures(table: DataFrame) -> Departures:
    """The rows of `departures_by_day` as a dictionary."""
    rows = table.collect()
    assert len({(r.day, r.carrier) for r in rows}) == len(rows)
    return {(r.day, r.carrier): (r.flights, r.departed, r.delay_minutes) for r in rows}


def departures_by_pandas() -> Departures:
    """The same figures, computed by pandas from the source file."""
    with source_csv() as source:
        table = pandas.read_csv(source, usecols=["carrier", "dep_delay", "time_hour"])
    table["day"] = table.time_hour.str[:10]
    groups = table.groupby(["day", "carrier"]).dep_delay
    sums = groups.agg(["size", "count", "sum"])
    return {k: (int(n), int(c), int(s)) for k, n, c, s in sums.itertuples()}
