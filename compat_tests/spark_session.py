"""The Spark session of tests and demo; run as a module it only fetches the connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.requirements import COMPAT_DIR
from ottla.spark_interop import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_RUN = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of a Spark that works for seconds only: its JVM compiles less."""


def local_session(log_level: str = "ERROR") -> SparkSession:
    """Two threads and little memory, with the jars of the compat directory."""
    return session(
        master="local[2]",
        jars=COMPAT_DIR / "ivy",
        memory="2g",
        shuffle_partitions=4,
        log_level=log_level,
    )


if __name__ == "__main__":
    local_session().stop()
