"""`ottla log dump` and Apache Kafka's own tool print the same, whoever wrote the files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import every_kind
from compat_tests.brokers import Broker
from compat_tests.requirements import PEER_DIR, java, missing

pytestmark = pytest.mark.timeout(180)

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
CASES = {
    "headers": ("*", ()),
    "records": ("*-0", ("--print-data-log",)),
    "sanity": ("*-0", ("--index-sanity-check",)),
    "groups": ("__consumer_offsets-*", ("--offsets-decoder",)),
    "transactions": ("__transaction_state-*", ("--transaction-log-decoder",)),
    "kraft": ("__cluster_metadata-*", ("--cluster-metadata-decoder",)),
}


def files_below(data: Path, pattern: str) -> str:
    """The files of these partitions that Kafka's tool knows."""
    found = [
        str(path)
        for directory in sorted(data.glob(pattern))
        if directory.is_dir() and not directory.name.startswith("__ottla")
        for path in sorted(directory.iterdir())
        if path.name.endswith(SUFFIXES)
    ]
    return ",".join(found)


def kafka_dump(files: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Kafka's tool."""
    return subprocess.run(
        [PEER_DIR / "tool.sh", "dump-log", "--files", files, *flags],
        env=os.environ | {"TOOL_FLAGS": JVM}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def ottla() -> str:
    """The console script that belongs to this interpreter."""
    return str(Path(sys.executable).with_name("ottla"))


def lines(printed: str) -> list[str]:
    """The lines, with each run of bytes that are not UTF-8 as one mark: Java counts them
    differently."""
    return re.sub("\ufffd+", "\ufffd", printed).splitlines()


def ottla_dump(files: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Ottla's tool."""
    return subprocess.run(
        [ottla(), "log", "dump", "--files", files, *flags],
        env=os.environ | {"PYTHONUTF8": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(new_broker: Callable[..., Broker]) -> Path:
    """The log directory of the broker under test, filled and stopped."""
    java()
    if subprocess.run([PEER_DIR / "setup.sh"], capture_output=True).returncode != 0:
        missing("Kafka's own tools are not there")
    broker = new_broker(*every_kind.BROKER)
    broker.start()
    every_kind.write(broker.bootstrap)
    broker.stop()
    return broker.directory / "data"


@pytest.mark.parametrize("case", CASES)
def test_both_tools_print_the_same(data: Path, case: str) -> None:
    pattern, flags = CASES[case]
    files = files_below(data, pattern)
    if not files:
        assert case == "kraft"          # Ottla's metadata have another form
        return
    theirs, ours = kafka_dump(files, *flags), ottla_dump(files, *flags)
    assert theirs.returncode == 0, theirs.stderr
    assert ours.returncode == 0, ours.stderr
    assert lines(ours.stdout) == lines(theirs.stdout)
    assert sorted(ours.stderr.splitlines()) == sorted(theirs.stderr.splitlines())
    assert len(lines(ours.stdout)) > 10
