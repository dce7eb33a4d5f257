"""Finds the stock clients. If one is missing, the test that needs it is skipped, with the reason.

`compat_tests/setup` gets all clients. With CI=true, `conftest.py` makes each such skip a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMPAT_DIR = Path(os.environ.get("OTTLA_COMPAT_DIR", ROOT / ".cache" / "compat"))
PEER_DIR = ROOT / "benchmarks" / "peers" / "kafka"
PEER_JARS = Path(os.environ.get("KAFKA_PEER_DIR", ROOT / ".cache" / "kafka-peer")) / "libs"
"""Where the peer's setup.sh puts the jars of Apache Kafka, its Streams and its Connect."""
JAVA_CLIENTS = ("4.4.0", "3.9.2")
OLD_JAVA_CLIENTS = ("2.8.2", "2.0.1", "1.1.1", "0.11.0.3", "0.10.2.2", "0.10.0.1", "0.9.0.1")
Missing = pytest.skip.Exception  # what the functions here raise if something is missing


def missing(what: str) -> None:
    """Skip the running test and say how to get what it needs."""
    pytest.skip(f"{what}: run compat_tests/setup")


def program(name: str) -> str:
    """The path of a system program."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed")
    return str(path)


def built(path: str) -> Path:
    """A file that setup has put below the compat directory."""
    found = COMPAT_DIR / path
    if not found.exists():
        missing(f"{found} is not there")
    return found


@cache
def java_version(java: str) -> int:
    """The feature release of this Java, such as 17 for 17.0.15."""
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return int(text.split('"')[1].split(".")[0])


def java() -> str:
    """The path of Java; skips if it is older than 17, the version that Spark 4 and Kafka 4 need."""
    path = program("java")
    if java_version(path) < 17:
        missing(f"{path} is Java {java_version(path)}, Java 17 is needed")
    return path


def zookeeper() -> None:
    """Skip the running test unless ZooKeeper can run here: it needs Java, and jars from Maven."""
    from ottla.tools.zookeeper import local

    try:
        local.java()
        local.jars()
    except local.ZooKeeperFailed as error:
        missing(str(error))


def java_client(version: str, *arguments: str, program: str = "CompatClient") -> list[str]:
    """The command that runs one of our small Java programs with the Java client of this version."""
    classes = built(f"classes/{version}")
    jars = built(f"jars/{version}")
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx512m",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ]
    return [java(), *options, "-cp", f"{classes}:{jars}/*", program, *arguments]
