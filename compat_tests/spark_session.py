"""The Spark session of tests and demo. Run as a program, this module only fetches the connector."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.requirements import COMPAT_DIR
from ottla.spark_interop import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_RUN = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of a Spark whose queries are small: its JVM uses only the first compiler. With all
compilers, optimization took 44 % of the CPU time of a session in which all tests ran."""


def local_session(log_level: str = "ERROR") -> SparkSession:
    """A session with two threads and little memory, with the jars of the compat directory.

    Child processes that start their own Spark inherit SHORT_RUN.
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
