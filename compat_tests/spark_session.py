"""The Spark session of tests and demo; run as a module it only fetches the connector."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.requirements import COMPAT_DIR
from ottla.spark_interop import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_RUN = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of a Spark whose queries are small: its JVM does not optimize what it compiles, which
took 44 % of the processor's time of a session of all tests."""


def local_session(log_level: str = "ERROR") -> SparkSession:
    """Two threads and little memory, with the jars of the compat directory.

    Processes with a Spark of their own inherit the options of its JVM.
    """
    os.environ.update(SHORT_RUN)
    return session(
        master="local[2]",
        jars=COMPAT_DIR / "ivy",
        memory="2g",
        shuffle_partitions=4,
        log_level=log_level,
    )


if __name__ == "__main__":
    local_session().stop()
