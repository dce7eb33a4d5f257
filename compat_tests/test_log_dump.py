"""`ottla log dump` and Apache Kafka's own tool print the same, whichever broker wrote the files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import every_kind
from compat_tests.brokers import Broker
from compat_tests.dumps import (
    files_below,
    kafka_dump,
    lines,
    ottla_dump,
)
from compat_tests.requirements import PEER_DIR, java, missing


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



CASES = {
    "headers": ("*", ()),
    "records": ("*-0", ("--print-data-log",)),
    "sanity": ("*-0", ("--index-sanity-check",)),
    "groups": ("__consumer_offsets-*", ("--offsets-decoder",)),
    "transactions": ("__transaction_state-*", ("--transaction-log-decoder",)),
    "kraft": ("__cluster_metadata-*", ("--cluster-metadata-decoder",)),
}


@pytest.mark.parametrize("case", CASES)
def test_both_tools_print_the_same(data: Path, case: str) -> None:
    pattern, flags = CASES[case]
    files = files_below(data, pattern)
    if not files:
        assert case == "kraft"          # Ottla stores metadata in another form
        return
    theirs, ours = kafka_dump(files, *flags), ottla_dump(files, *flags)
    assert theirs.returncode == 0, theirs.stderr
    assert ours.returncode == 0, ours.stderr
    assert lines(ours.stdout) == lines(theirs.stdout)
    assert sorted(ours.stderr.splitlines()) == sorted(theirs.stderr.splitlines())
    assert len(lines(ours.stdout)) > 10
