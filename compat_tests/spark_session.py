"""The Spark session of tests and demo; run as a module it only fetches the connector."""

from __future__ import annotations

import os

import pyspark
from pyspark.sql import SparkSession

from compat_tests.requirements import COMPAT_DIR

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def local_session(log_level: str = "ERROR") -> SparkSession:
    """Two threads, no web pages, UTC, and the stock Kafka connector through spark.jars.packages."""
    # Not the user's own Maven repository: where that has an artifact's pom and not its jar, because
    # Maven needed no more, Spark would take it for the whole and fail.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Duser.home={COMPAT_DIR}")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("ottla")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.jars.ivy", str(COMPAT_DIR / "ivy"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel(log_level)
    return session


if __name__ == "__main__":
    local_session().stop()
