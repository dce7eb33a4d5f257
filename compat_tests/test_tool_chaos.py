"""Six seeds of `make chaos-tools` with one broker and six with three, half a minute each where the
machine has nothing else to do: our commands and stock clients are killed, as are their brokers and
the readers of their pipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.requirements import zookeeper
from compat_tests.tool_chaos.__main__ import run

SEEDS = 6


@pytest.mark.parametrize(
    ("brokers", "first"), [(1, 378), pytest.param(3, 1435, marks=pytest.mark.long)]
)
def test_commands_and_clients_keep_their_promises_amid_kills(
    brokers: int, first: int, tmp_path: Path
) -> None:
    """The first seeds were chosen for different scenes."""
    if brokers > 1:
        zookeeper()
    report = run(tmp_path, range(first, first + SEEDS), brokers)
    print(report)
    assert not report.problems, str(report)
    assert len(report.scenes) == SEEDS
