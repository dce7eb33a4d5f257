"""Runs `make chaos-tools` with six seeds on one broker, and with six seeds on three brokers.
Commands, brokers and the readers of pipes are killed. On an idle machine, six seeds take half a
minute."""

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
    """The first seed was chosen so that the six seeds run different scenes."""
    if brokers > 1:
        zookeeper()
    report = run(tmp_path, range(first, first + SEEDS), brokers)
    print(report)
    assert not report.problems, str(report)
    assert len(report.scenes) == SEEDS
