"""A minute of `make chaos-tools` with one broker and one with three: our commands and stock clients
are killed, as are their brokers and the readers of their pipes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from compat_tests.requirements import zookeeper
from compat_tests.tool_chaos.__main__ import run

SECONDS = 50


@pytest.mark.parametrize("brokers", [1, 3])
def test_commands_and_clients_keep_their_promises_amid_kills(brokers: int, tmp_path: Path) -> None:
    if brokers > 1:
        zookeeper()
    report = run(tmp_path, itertools.count(100 * brokers), brokers, SECONDS)
    print(report)
    assert not report.problems, str(report)
    assert report.scenes.total() >= 5
