"""Runs `ottla log dump` and Apache Kafka's kafka-dump-log on log files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from compat_tests.requirements import PEER_DIR

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8"


SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


def files_below(data: Path, pattern: str) -> str:
    """The log files in the directories of `data` that match `pattern`, separated by commas. Files
    that Kafka's tool cannot read are left out."""
    found = [
        str(path)
        for directory in sorted(data.glob(pattern))
        if directory.is_dir() and not directory.name.startswith("__ottla")
        for path in sorted(directory.iterdir())
        if path.name.endswith(SUFFIXES)
    ]
    return ",".join(found)


def kafka_dump(files: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run Kafka's tool."""
    return subprocess.run(
        [PEER_DIR / "tool.sh", "dump-log", "--files", files, *flags],
        env=os.environ | {"TOOL_FLAGS": JVM}, capture_output=True, text=True, timeout=180,
    )  # fmt: skip


def ottla() -> str:
    """The console script that belongs to this interpreter."""
    return str(Path(sys.executable).with_name("ottla"))


def lines(printed: str) -> list[str]:
    """The printed lines. Each run of U+FFFD becomes one, because Java and Python replace a run of
    bytes that are not UTF-8 with different numbers of this character."""
    return re.sub("\ufffd+", "\ufffd", printed).splitlines()


def ottla_dump(files: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run Ottla's tool."""
    return subprocess.run(
        [ottla(), "log", "dump", "--files", files, *flags],
        env=os.environ | {"PYTHONUTF8": "1"}, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
